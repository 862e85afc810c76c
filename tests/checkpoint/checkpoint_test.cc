#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/dtype.h"
#include "checkpoint/weight_layout.h"
#include "checkpoint/weights.h"
#include "test_files.h"

namespace deepinfer {
namespace {

using testing_files::kNano;
using testing_files::kTiny2;

Checkpoint Open(const std::filesystem::path& directory) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(directory);
  if (!checkpoint.ok()) throw std::runtime_error(checkpoint.status().message());
  return std::move(checkpoint).value();
}

// What a tensor should be, read by other means: nlohmann on the header, std::ifstream for the bytes.
std::string BytesOf(const std::filesystem::path& directory, const std::string& tensor) {
  const auto index = nlohmann::json::parse(testing_files::ReadText(directory / "model.safetensors.index.json"));
  const std::string file = testing_files::ReadText(directory / index["weight_map"][tensor].get<std::string>());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto offsets = nlohmann::json::parse(file.substr(8, length))[tensor]["data_offsets"];
  const uint64_t begin = offsets[0], end = offsets[1];
  return file.substr(8 + length + begin, end - begin);
}

bool SameBytes(const uint8_t* data, const std::string& bytes) {
  return std::memcmp(data, bytes.data(), bytes.size()) == 0;
}

TEST(Checkpoint, NanoViewsPointAtTheRightBytes) {
  const Checkpoint checkpoint = Open(kNano);
  const Weights& weights = checkpoint.weights();
  EXPECT_EQ(checkpoint.tensor_count(), 1534);
  EXPECT_EQ(checkpoint.files().size(), 3u);
  EXPECT_EQ(checkpoint.directory(), kNano);
  EXPECT_TRUE(weights.vision.empty());

  EXPECT_TRUE(SameBytes(weights.embed.data, BytesOf(kNano, "embed.weight")));
  const WeightMatrix& wo_a = weights.layers[7].attention.wo_a;
  EXPECT_EQ(wo_a.format, WeightFormat::kF8Block32);
  EXPECT_EQ(wo_a.rows, 2 * 96);
  EXPECT_EQ(wo_a.columns, 4 * 128 / 2);
  EXPECT_TRUE(SameBytes(wo_a.data, BytesOf(kNano, "layers.7.attn.wo_a.weight")));
  EXPECT_TRUE(SameBytes(wo_a.scale, BytesOf(kNano, "layers.7.attn.wo_a.scale")));
  const WeightMatrix& w2 = weights.mtp.stages[1].ffn.experts[6].w2;
  EXPECT_EQ(w2.format, WeightFormat::kF4Row32);
  EXPECT_EQ(w2.rows, 320);
  EXPECT_EQ(w2.columns, 128);
  EXPECT_TRUE(SameBytes(w2.data, BytesOf(kNano, "mtp.1.ffn.experts.6.w2.weight")));
  EXPECT_TRUE(SameBytes(w2.scale, BytesOf(kNano, "mtp.1.ffn.experts.6.w2.scale")));
  const EngramWeights& engram = *weights.layers[4].engram;
  EXPECT_EQ(engram.embed.format, WeightFormat::kF8Row32);
  EXPECT_EQ(engram.embed.rows, 96484);
  EXPECT_TRUE(SameBytes(engram.embed.scale, BytesOf(kNano, "layers.4.engram.embed.scale")));
  EXPECT_EQ(engram.k_weight.size, 4 * 320);
  EXPECT_TRUE(engram.k_weight.is_bf16);
  EXPECT_TRUE(SameBytes(engram.k_weight.data, BytesOf(kNano, "layers.4.engram.k_weight")));
  const HyperConnectionWeights& site = weights.layers[9].hc_ffn;
  EXPECT_EQ(site.fn.format, WeightFormat::kF32);
  EXPECT_EQ(site.fn.columns, 4 * 320);
  EXPECT_FALSE(site.scale.is_bf16);
  EXPECT_TRUE(SameBytes(site.scale.data, BytesOf(kNano, "layers.9.hc_ffn_scale")));
}

TEST(Checkpoint, Tiny2HasExtrasWhereItsConfigSays) {
  const Checkpoint checkpoint = Open(kTiny2);
  const Weights& weights = checkpoint.weights();
  ASSERT_EQ(weights.layers.size(), 9u);
  ASSERT_EQ(weights.mtp.stages.size(), 2u);
  for (int layer = 0; layer < 9; ++layer) {
    const LayerWeights& part = weights.layers[static_cast<size_t>(layer)];
    const bool kv = layer == 1 || layer == 3 || layer == 5;
    const bool index = kv || layer == 4 || layer == 7 || layer == 8;
    EXPECT_EQ(part.attention.compressor.has_value(), kv) << layer;
    EXPECT_EQ(part.attention.indexer.has_value(), index) << layer;
    EXPECT_EQ(part.engram.has_value(), layer == 2 || layer == 6) << layer;
    EXPECT_EQ(part.ffn.experts.size(), 7u);
    if (kv) {
      EXPECT_EQ(part.attention.compressor->wgate.present(), layer != 5) << layer;
    }
    if (index) {
      EXPECT_EQ(part.attention.indexer->wk.present(), kv) << layer;
    }
  }
  EXPECT_EQ(weights.mtp.stages[1].ffn.experts.size(), 6u);
  EXPECT_EQ(weights.mtp.main_proj.columns, 2 * 96);
  EXPECT_TRUE(SameBytes(weights.mtp.markov_embed.data, BytesOf(kTiny2, "mtp.1.markov_head.embed.weight")));
  EXPECT_TRUE(SameBytes(weights.mtp.norm.data, BytesOf(kTiny2, "mtp.1.norm.weight")));
  EXPECT_EQ(weights.mtp.confidence_proj.columns, 96 + 16);
  EXPECT_EQ(weights.layers[0].hc_attn.base.size, 8);
}

TEST(Checkpoint, ViewsSurviveAMove) {
  Checkpoint first = Open(kTiny2);
  const uint8_t* head = first.weights().head.data;
  const uint8_t value = *head;
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.weights().head.data, head);
  EXPECT_EQ(*second.weights().head.data, value);
}

// The slots, whose pointers the bindings go through, name each tensor of the release once.
TEST(WeightLayout, NamesAreUniqueAndEveryTextSlotHasOneDestination) {
  const ModelConfig config = ParseModelConfig(testing_files::ReadText(testing_files::kReleaseConfig)).value();
  Weights weights;
  const std::vector<WeightSlot> slots = LayOutWeights(config, &weights);
  std::set<std::string> names;
  std::set<const void*> destinations;
  for (const WeightSlot& slot : slots) {
    EXPECT_TRUE(names.insert(slot.name).second) << slot.name;
    if (HasScale(slot)) {
      EXPECT_TRUE(names.insert(ScaleTensor(slot).name).second) << slot.name;
    }
    const void* destination = slot.matrix != nullptr ? static_cast<const void*>(slot.matrix) : slot.vector;
    EXPECT_EQ(destination == nullptr, slot.part == ModelPart::kVision) << slot.name;
    if (destination != nullptr) {
      EXPECT_TRUE(destinations.insert(destination).second) << slot.name;
    }
  }
  EXPECT_EQ(names.size(), 96085u);
  EXPECT_EQ(names.count("layers.39.ffn.experts.383.w3.scale"), 1u);
  EXPECT_EQ(names.count("layers.20.attn.compressor.wgate.weight"), 0u);
  EXPECT_EQ(names.count("mtp.2.confidence_head.proj.weight"), 1u);
}

// The tiny checkpoint of ../shared is not in this repository; a developer who has it can point here.
TEST(Checkpoint, OpensTheFolderInTheEnvironment) {
  const char* directory = std::getenv("DEEPINFER_TEST_CHECKPOINT");
  if (directory == nullptr) directory = kTiny2.c_str();
  const Result<Checkpoint> checkpoint = Checkpoint::Open(directory);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
}

}  // namespace
}  // namespace deepinfer
