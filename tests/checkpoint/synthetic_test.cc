#include "checkpoint/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "checkpoint/parameter_summary.h"
#include "checkpoint/weights.h"
#include "test_files.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
using testing_files::ReadText;
using testing_files::TemporaryFolder;

SyntheticSpec Spec(std::string_view text) {
  Result<SyntheticSpec> spec = ParseSyntheticSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? std::move(spec).value() : SyntheticSpec();
}

TEST(SyntheticSpec, Mid) {
  const SyntheticSpec spec = Spec("mid");
  const ModelConfig& config = spec.config;
  EXPECT_EQ(config.hidden_size, 2560);
  EXPECT_EQ(config.compress_ratios, (std::vector<int32_t>{0, 0, 2, 2, 2, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(config.kv_source_layer_ids, (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(config.index_source_layer_ids, (std::vector<int32_t>{2, 5, 7}));
  EXPECT_EQ(config.candidate_source_layer_id, 5);
  EXPECT_EQ(config.engram_layer_ids, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(config.dspark_target_layer_ids, (std::vector<int32_t>{5, 6, 7}));
  const int64_t bytes = SummariseParameters(config).total.bytes;
  EXPECT_GT(bytes, 3'800'000'000);
  EXPECT_LT(bytes, 4'400'000'000);
}

TEST(SyntheticSpec, Overrides) {
  const SyntheticSpec spec = Spec("mid:experts=64,layers=6,hc_mult=2,candidate_source_layer_id=-1");
  EXPECT_EQ(spec.config.n_routed_experts, 64);
  EXPECT_EQ(spec.config.num_hidden_layers, 6);
  EXPECT_EQ(spec.config.hc_mult, 2);
  EXPECT_EQ(spec.config.compress_ratios, (std::vector<int32_t>{0, 0, 2, 2, 1, 1, 0, 0, 0}));
  EXPECT_EQ(spec.config.candidate_source_layer_id, -1);
  EXPECT_EQ(Spec("smoke:layers=4,num_nextn_predict_layers=0").config.LayerCount(), 4);
}

TEST(SyntheticSpec, ErrorsNameTheKey) {
  const auto error = [](std::string_view text) { return ParseSyntheticSpec(text).status().message(); };
  EXPECT_EQ(error("huge"), "synthetic spec: expected mid, smoke or v41-flash, found 'huge'");
  EXPECT_EQ(error(""), "synthetic spec: expected mid, smoke or v41-flash, found ''");
  EXPECT_EQ(error("mid:expert=3").find("synthetic spec: unknown key 'expert', expected one of layers, experts,"), 0u);
  EXPECT_EQ(error("mid:vocab_size=3").find("synthetic spec: unknown key 'vocab_size'"), 0u);
  EXPECT_EQ(error("mid:,").find("synthetic spec: unknown key ''"), 0u);
  EXPECT_EQ(error("mid:experts"), "synthetic spec: experts: expected experts=INTEGER, found 'experts'");
  EXPECT_EQ(error("mid:experts=x"), "synthetic spec: experts: expected experts=INTEGER, found 'experts=x'");
  EXPECT_EQ(error("mid:experts=3.5"), "synthetic spec: experts: expected experts=INTEGER, found 'experts=3.5'");
  EXPECT_EQ(error("mid:layers=3"), "synthetic spec: layers: expected an integer from 4 to 1024, found 3");
  EXPECT_EQ(error("mid:experts=5"),
            "synthetic spec: num_experts_per_tok: expected at most n_routed_experts (5), found 6");
  EXPECT_EQ(error("mid:hidden=100"),
            "synthetic spec: hidden_size: expected a multiple of 32 from 32 to 1048576, found 100");
}

class SyntheticFolder : public ::testing::Test {
 protected:
  fs::path Write(std::string_view spec, uint64_t seed, const char* name) {
    const fs::path path = folder_.path() / name;
    const Status status = WriteSyntheticCheckpoint(Spec(spec), path, seed);
    EXPECT_TRUE(status.ok()) << status.message();
    return path;
  }

  const TemporaryFolder folder_;
};

// Mean square of the values of a quantised matrix; NaN when one of them is.
double MeanSquare(const WeightMatrix& matrix) {
  double sum = 0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      const uint8_t* values = matrix.data + row * matrix.row_bytes();
      const float scale = E8m0ToFloat(matrix.scale_row(row)[column / 32]);
      const float value = matrix.format == WeightFormat::kF4Row32
                              ? E2m1ToFloat((values[column / 2] >> (column % 2 * 4)) & 15)
                              : E4m3ToFloat(values[column]);
      sum += static_cast<double>(value * scale) * static_cast<double>(value * scale);
    }
  }
  return sum / static_cast<double>(matrix.rows * matrix.columns);
}

TEST_F(SyntheticFolder, SmokeOpensWithValuesOfTheIntendedSize) {
  const fs::path path = Write("smoke:hidden=512,q_lora_rank=512,o_lora_rank=256,intermediate=256", 1, "a");
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_GT(checkpoint->files().size(), 1u);
  const LayerWeights& layer = checkpoint->weights().layers[1];
  const double depth = 2.0 * 8;
  EXPECT_NEAR(MeanSquare(layer.attention.wq_a) * 512, 1, 0.1);
  EXPECT_NEAR(MeanSquare(layer.attention.wo_b) * 512 * depth, 1, 0.1);
  EXPECT_NEAR(MeanSquare(layer.engram->embed), 1, 0.1);
  // The grid of E2M1 is coarse: sixteen slices rounded to it miss their mean square by up to a fifth.
  EXPECT_NEAR(MeanSquare(layer.ffn.experts[0].w1) * 512, 1, 0.25);
  EXPECT_NEAR(MeanSquare(layer.ffn.experts[7].w2) * 256 * depth, 1, 0.25);
  const auto float_at = [](const WeightVector& vector, size_t index) {
    float value = 0;
    std::memcpy(&value, vector.data + index * sizeof value, sizeof value);
    return value;
  };
  EXPECT_NEAR(float_at(layer.hc_attn.scale, 0), 0.5, 0.4);
  EXPECT_NEAR(float_at(layer.hc_attn.base, 0), -std::log(3.0), 0.4);
  EXPECT_NEAR(float_at(layer.hc_attn.base, 4), 0, 0.4);
  EXPECT_NEAR(float_at(layer.hc_attn.base, 8), 3, 0.4);  // the diagonal of comb
  EXPECT_NEAR(float_at(layer.hc_attn.base, 9), 0, 0.4);
}

std::string AllFiles(const fs::path& directory) {
  std::vector<fs::path> paths(fs::directory_iterator(directory), {});
  std::sort(paths.begin(), paths.end());
  std::string bytes;
  for (const fs::path& path : paths) bytes += path.filename().string() + ReadText(path);
  return bytes;
}

TEST_F(SyntheticFolder, SeedDecidesTheBytes) {
  const std::string first = AllFiles(Write("smoke", 7, "a"));
  EXPECT_TRUE(first == AllFiles(Write("smoke", 7, "b")));
  EXPECT_FALSE(first == AllFiles(Write("smoke", 8, "c")));
}

TEST_F(SyntheticFolder, OtherWidthsOpenToo) {
  for (const char* spec : {"smoke:layers=5,hc_mult=1,num_nextn_predict_layers=1,engram_max_ngram_size=2",
                           "smoke:layers=4,num_nextn_predict_layers=0,n_routed_experts=3,hidden=96"}) {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(Write(spec, 1, std::to_string(std::strlen(spec)).c_str()));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  }
}

TEST_F(SyntheticFolder, ProgressEndsAtTheTotalAndTokenizerIsCopied) {
  SyntheticSpec spec = Spec("smoke");
  spec.tokenizer_directory = testing_files::kNano;
  int64_t last = 0, announced = 0;
  const fs::path path = folder_.path() / "a";
  const Status status = WriteSyntheticCheckpoint(spec, path, 1, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    announced = total;
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(last, announced);
  EXPECT_EQ(last, SummariseParameters(spec.config).total.bytes);
  EXPECT_TRUE(ReadText(path / "tokenizer.json") == ReadText(testing_files::kNano / "tokenizer.json"));
}

TEST_F(SyntheticFolder, FailuresLeaveNothingBehind) {
  SyntheticSpec spec = Spec("smoke");
  spec.tokenizer_directory = folder_.path() / "absent";
  const fs::path path = folder_.path() / "a";
  EXPECT_EQ(WriteSyntheticCheckpoint(spec, path, 1).code(), StatusCode::kIo);
  EXPECT_TRUE(fs::is_empty(folder_.path()));

  fs::create_directory(path);
  spec.tokenizer_directory.clear();
  EXPECT_EQ(WriteSyntheticCheckpoint(spec, path, 1).message(),
            path.string() + ": expected a folder that does not exist yet, found one");
  EXPECT_TRUE(fs::is_empty(path));

  const Status no_space =
      WriteSyntheticCheckpoint(Spec("smoke:engram_vocab_size=2000000000,engram_n_heads=64"), folder_.path() / "b", 1);
  EXPECT_EQ(no_space.code(), StatusCode::kResourceExhausted) << no_space.message();
  EXPECT_FALSE(fs::exists(folder_.path() / "b"));
}

}  // namespace
}  // namespace deepinfer
