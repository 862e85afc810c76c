// Checkpoint::Generate, and the layers of v41-flash against the release.
#include <gtest/gtest.h>

#include <map>

#include "base/dtype.h"
#include "base/generated_weights.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/parameter_summary.h"
#include "checkpoint/synthetic_spec.h"
#include "test_files.h"

namespace deepinfer {
namespace {

ModelConfig Config(std::string_view spec) { return ParseSyntheticSpec(spec).value().config; }

TEST(V41Flash, FortyLayersAreTheRelease) {
  const ModelConfig release = ParseModelConfig(testing_files::ReadText(testing_files::kReleaseConfig)).value();
  const ModelConfig config = Config("v41-flash:40,engram_vocab_size=16000000,num_nextn_predict_layers=3");
  EXPECT_EQ(config.compress_ratios, release.compress_ratios);
  EXPECT_EQ(config.kv_source_layer_ids, release.kv_source_layer_ids);
  EXPECT_EQ(config.index_source_layer_ids, release.index_source_layer_ids);
  EXPECT_EQ(config.candidate_source_layer_id, release.candidate_source_layer_id);
  EXPECT_EQ(config.engram_layer_ids, release.engram_layer_ids);
  EXPECT_EQ(config.engram_num_embeddings, release.engram_num_embeddings);
  EXPECT_EQ(config.dspark_target_layer_ids, release.dspark_target_layer_ids);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings,
            release.rope_scaling.original_max_position_embeddings);
  for (const IntegerSetting& setting : IntegerSettings()) {
    EXPECT_EQ(config.*setting.member, release.*setting.member) << setting.key;
  }
  const ParameterSummary expected = SummariseParameters(release);
  const ParameterSummary found = SummariseParameters(config);
  for (int part = 0; part < kModelParts; ++part) {
    if (part == static_cast<int>(ModelPart::kVision)) continue;
    EXPECT_EQ(found.parts[static_cast<size_t>(part)].bytes, expected.parts[static_cast<size_t>(part)].bytes) << part;
  }
}

TEST(V41Flash, TwelveLayersHaveEveryRole) {
  const SyntheticSpec spec = ParseSyntheticSpec("v41-flash").value();
  const ModelConfig& config = spec.config;
  EXPECT_TRUE(spec.generated);
  EXPECT_EQ(WriteModelConfig(config), WriteModelConfig(Config("v41-flash:12")));
  EXPECT_EQ(config.compress_ratios, (std::vector<int32_t>{0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(config.kv_source_layer_ids, (std::vector<int32_t>{1, 6}));
  EXPECT_EQ(config.index_source_layer_ids, (std::vector<int32_t>{1, 6, 10}));
  EXPECT_EQ(config.engram_layer_ids, (std::vector<int32_t>{1}));
  // The table of the spec (b): bytes of experts, attention, shared expert, mHC, router.
  const ParameterSummary summary = SummariseParameters(config);
  EXPECT_EQ(summary.part(ModelPart::kRoutedExperts).bytes, int64_t{12} * 384 * 18800640);
  EXPECT_NEAR(static_cast<double>(summary.part(ModelPart::kSharedExperts).bytes), 12 * 35.4e6, 12 * 0.1e6);
  EXPECT_NEAR(static_cast<double>(summary.part(ModelPart::kAttention).bytes), 12 * 126.7e6, 40e6);
  EXPECT_NEAR(static_cast<double>(summary.part(ModelPart::kHyperConnections).bytes), 12 * 3.9e6, 12 * 0.1e6);
  EXPECT_EQ(summary.part(ModelPart::kDraft).bytes, 0);
  EXPECT_LT(summary.total.bytes, 95'000'000'000);
  EXPECT_LT(summary.part(ModelPart::kEngramTables).bytes, 1'100'000'000);
}

TEST(V41Flash, AnyDepthIsAModel) {
  for (int layers = 4; layers <= 64; ++layers) {
    const auto spec = ParseSyntheticSpec("v41-flash:" + std::to_string(layers) + ",engram_vocab_size=100");
    EXPECT_TRUE(spec.ok()) << spec.status().message();
  }
  EXPECT_NE(ParseSyntheticSpec("v41-flash:3").status().message().find("layers: expected an integer from 4"),
            std::string::npos);
  EXPECT_NE(ParseSyntheticSpec("v41-flash:x").status().message().find("layers=INTEGER"), std::string::npos);
  EXPECT_NE(ParseSyntheticSpec("mid:12").status().message().find("unknown key '12'"), std::string::npos);
}

TEST(Generate, EveryWeightHasAnAddressOfItsOwn) {
  const ModelConfig config = Config("v41-flash:4,experts=8,engram_vocab_size=1000,num_nextn_predict_layers=1");
  const Checkpoint checkpoint = Checkpoint::Generate(config, "v41-flash:4", 1).value();
  EXPECT_EQ(checkpoint.bytes(), SummariseParameters(config).total.bytes);
  std::map<const uint8_t*, int64_t> pieces;
  const auto add = [&](const WeightMatrix& matrix) {
    const int64_t values = matrix.rows * matrix.row_bytes();
    EXPECT_TRUE(pieces.emplace(matrix.data, values).second);
    if (matrix.scale == nullptr) return;
    EXPECT_TRUE(pieces.emplace(matrix.scale, matrix.total_bytes() - values).second);
  };
  const Weights& weights = checkpoint.weights();
  for (const WeightMatrix* matrix : {&weights.embed, &weights.head, &weights.mtp.markov_head}) add(*matrix);
  for (const LayerWeights& layer : weights.layers) {
    add(layer.attention.wq_b);
    for (const ExpertWeights& expert : layer.ffn.experts) add(expert.w2);
  }
  add(weights.layers[1].engram->embed);
  const uint8_t* end = nullptr;
  for (const auto& [data, bytes] : pieces) {
    EXPECT_GE(data, end);
    end = data + bytes;
    const auto place = GeneratedWeights::Find(data);
    EXPECT_TRUE(place.has_value() && place->offset == 0);
  }
}

TEST(Generate, ValuesAreFiniteAndTheirSeedAndNameDecide) {
  const ModelConfig config = Config("v41-flash:4,experts=8,engram_vocab_size=1000");
  const Checkpoint a = Checkpoint::Generate(config, "a", 1).value();
  const Checkpoint b = Checkpoint::Generate(config, "b", 1).value();
  const Checkpoint c = Checkpoint::Generate(config, "c", 2).value();
  const auto bytes = [](const uint8_t* data) {
    std::vector<uint8_t> values(4096);
    const auto place = GeneratedWeights::Find(data);
    FillGenerated(place->recipe, place->offset, std::ssize(values), values.data());
    return values;
  };
  const auto matrix = [](const Checkpoint& checkpoint) { return checkpoint.weights().layers[1].attention.wo_b; };
  EXPECT_EQ(bytes(matrix(a).data), bytes(matrix(b).data));
  EXPECT_NE(bytes(matrix(a).data), bytes(matrix(c).data));
  EXPECT_NE(bytes(matrix(a).data), bytes(a.weights().layers[2].attention.wo_b.data));
  for (const uint8_t code : bytes(matrix(a).data)) EXPECT_NE(code & 0x7f, 0x7f);
  for (const uint8_t scale : bytes(matrix(a).scale)) EXPECT_NE(scale, 255);
  EXPECT_EQ(Fingerprint(a), Fingerprint(b));
  EXPECT_NE(Fingerprint(a),
            Fingerprint(Checkpoint::Generate(Config("v41-flash:5,experts=8,engram_vocab_size=1000"), "a", 1).value()));
  // The table can be read here, in both of its parts.
  const WeightMatrix table = a.weights().layers[1].engram->embed;
  double squares = 0;
  for (int64_t i = 0; i < 4096; ++i) {
    const double value = double{E4m3ToFloat(table.data[i])} * double{E8m0ToFloat(table.scale[i / 32])};
    squares += value * value;
  }
  EXPECT_NEAR(squares / 4096, 1, 0.2);
}

}  // namespace
}  // namespace deepinfer
