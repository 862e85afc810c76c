#include "checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test_files.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;
using testing_files::ReadText;

ModelConfig Parse(const std::filesystem::path& path) {
  Result<ModelConfig> config = ParseModelConfig(ReadText(path));
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? std::move(config).value() : ModelConfig();
}

TEST(ModelConfig, Release) {
  const ModelConfig config = Parse(testing_files::kReleaseConfig);
  EXPECT_EQ(config.vocab_size, 129280);
  EXPECT_EQ(config.rms_norm_eps, 1e-20);
  EXPECT_EQ(config.rope_scaling.factor, 16);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_EQ(config.image_token_id, 129264);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{1});
  EXPECT_EQ(config.MixCoefficients(), 24);
  EXPECT_EQ(config.HashColumns(), 24);
  EXPECT_EQ(config.LastKvSource(), 20);
  ASSERT_TRUE(config.vision.has_value());
  EXPECT_EQ(config.vision->min_pixels, 544 * 544);
  EXPECT_FALSE(config.vision->max_wh_ratio.has_value());
}

// The table of spec c.5.
TEST(ModelConfig, LayerRolesOfTheRelease) {
  const ModelConfig config = Parse(testing_files::kReleaseConfig);
  ASSERT_EQ(config.LayerCount(), 43);
  for (const int layer : {0, 1, 40, 41, 42}) {
    EXPECT_EQ(config.ratio(layer), 0) << layer;
    EXPECT_EQ(config.KvSourceOf(layer), -1) << layer;
    EXPECT_EQ(config.IndexSourceOf(layer), -1) << layer;
  }
  for (int layer = 2; layer < 40; ++layer) {
    const int kv = layer < 20 ? 2 + (layer - 2) / 6 * 6 : 20;
    const int index = layer < 24 ? kv : layer / 4 * 4;
    EXPECT_EQ(config.ratio(layer), layer < 20 ? 2 : 1) << layer;
    EXPECT_EQ(config.KvSourceOf(layer), kv) << layer;
    EXPECT_EQ(config.IndexSourceOf(layer), index) << layer;
    EXPECT_EQ(config.RestrictedToCandidates(layer), layer > 20 && layer == index) << layer;
    EXPECT_EQ(config.PublishesCandidates(layer), layer == 20) << layer;
    EXPECT_EQ(config.RoutedExperts(layer), 384) << layer;
    EXPECT_EQ(config.EngramSlot(layer), layer == 14 ? 1 : -1) << layer;
    EXPECT_EQ(config.TapSlot(layer), layer >= 37 ? layer - 37 : -1) << layer;
  }
  EXPECT_EQ(config.EngramSlot(1), 0);
  EXPECT_TRUE(config.IsStage(40));
  EXPECT_EQ(config.RoutedExperts(40), 128);
  EXPECT_EQ(config.ExpertsPerToken(39), 6);
  EXPECT_EQ(config.ExpertsPerToken(42), 3);
}

TEST(ModelConfig, OtherStructure) {
  const ModelConfig config = Parse(testing_files::kTiny2 / "config.json");
  EXPECT_EQ(config.hc_mult, 2);
  EXPECT_EQ(config.KvSourceOf(4), 3);
  EXPECT_EQ(config.IndexSourceOf(4), 4);
  EXPECT_TRUE(config.RestrictedToCandidates(7));
  EXPECT_FALSE(config.RestrictedToCandidates(4));
  EXPECT_EQ(config.HashColumns(), 6);
  EXPECT_EQ(config.TapSlot(8), 1);
  ASSERT_EQ(config.engram_hashes.size(), 2u);
  EXPECT_EQ(config.engram_hashes[0].multipliers.size(), 3u);
  EXPECT_EQ(config.engram_hashes[1].rows, 2148);
}

TEST(ModelConfig, FlatTextConfigReadsTheSame) {
  const Json nested = Json::parse(ReadText(testing_files::kNano / "config.json"));
  Json flat = nested["text_config"];
  const Result<ModelConfig> from_flat = ParseModelConfig(flat.dump());
  ASSERT_TRUE(from_flat.ok()) << from_flat.status().message();
  const Result<ModelConfig> from_nested = ParseModelConfig(nested.dump());
  EXPECT_EQ(WriteModelConfig(*from_flat), WriteModelConfig(*from_nested));
  flat["quantization_config"]["quant_method"] = "gptq";
  EXPECT_EQ(ParseModelConfig(flat.dump()).status().code(), StatusCode::kUnsupported);
}

TEST(ModelConfig, WrittenConfigReadsBack) {
  for (const auto& path :
       {testing_files::kReleaseConfig, testing_files::kNano / "config.json", testing_files::kTiny2 / "config.json"}) {
    const std::string text = WriteModelConfig(Parse(path));
    const Result<ModelConfig> again = ParseModelConfig(text);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(WriteModelConfig(*again), text);
    // Every value of the original is in the copy (which spells eos_token_id as a list and yarn as rope_type).
    Json original = Json::parse(ReadText(path));
    const Json copy = Json::parse(text);
    for (const auto& [key, value] : original["text_config"].items()) {
      if (key == "attention_dropout" || key == "initializer_range" || key == "rope_scaling") continue;
      EXPECT_EQ(copy["text_config"][key], value) << path << " " << key;
    }
    for (const char* key : {"factor", "beta_fast", "beta_slow", "original_max_position_embeddings"}) {
      EXPECT_EQ(copy["text_config"]["rope_scaling"][key], original["text_config"]["rope_scaling"][key]) << key;
    }
    EXPECT_EQ(copy.value("vision_config", Json()), original.value("vision_config", Json()));
  }
}

TEST(ModelConfig, AbsentKeysTakeTheReleaseValues) {
  const Json release = Json::parse(ReadText(testing_files::kReleaseConfig));
  const Json least = {{"text_config",
                       {{"vocab_size", 129280},
                        {"hidden_size", 5120},
                        {"num_hidden_layers", 40},
                        {"rope_scaling", release["text_config"]["rope_scaling"]}}}};
  const Result<ModelConfig> config = ParseModelConfig(least.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  Result<ModelConfig> full = ParseModelConfig(release.dump());
  full->vision.reset();
  full->image_token_id = -1;
  EXPECT_EQ(WriteModelConfig(*config), WriteModelConfig(*full));
}

TEST(ModelConfig, NoRopeScalingIsNoYarn) {
  Json config = Json::parse(ReadText(testing_files::kNano / "config.json"));
  for (const bool null : {true, false}) {
    config["text_config"].erase("rope_scaling");
    if (null) config["text_config"]["rope_scaling"] = nullptr;
    const Result<ModelConfig> parsed = ParseModelConfig(config.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->rope_scaling.original_max_position_embeddings, 0);
    EXPECT_EQ(parsed->rope_scaling.factor, 1);
  }
}

TEST(ModelConfig, WithoutEngramOrStages) {
  Json config = Json::parse(ReadText(testing_files::kNano / "config.json"));
  Json& text = config["text_config"];
  text["engram_layer_ids"] = Json::array();
  text["engram_num_embeddings"] = Json::array();
  text["engram_head_dim"] = 0;
  text["num_nextn_predict_layers"] = 0;
  text["compress_ratios"] = {0, 0, 2, 2, 2, 1, 1, 1, 1, 1};
  text["candidate_source_layer_id"] = -1;
  text["dspark_block_size"] = 0;
  const Result<ModelConfig> parsed = ParseModelConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_TRUE(parsed->engram_hashes.empty());
  EXPECT_TRUE(parsed->dspark_target_layer_ids.empty());
  EXPECT_FALSE(parsed->RestrictedToCandidates(8));
}

// Deriving the primes of an absurd number of hash columns would take minutes.
TEST(ModelConfig, HashColumnsAreLimited) {
  Json text = {{"vocab_size", 8192},
               {"hidden_size", 64},
               {"num_hidden_layers", 40},
               {"dspark_noise_token_id", 3},
               {"engram_compressed_vocab_size", 6661},
               {"engram_max_ngram_size", 8},
               {"engram_n_heads", 64}};
  for (int layer = 0; layer < 40; ++layer) text["engram_layer_ids"].push_back(layer);
  EXPECT_EQ(ParseModelConfig(text.dump()).status().message(),
            "engram_layer_ids: expected at most 4096 hash columns in all layers, found 17920");
}

TEST(ModelConfig, SeveralEndTokens) {
  Json config = Json::parse(ReadText(testing_files::kNano / "config.json"));
  config["eos_token_id"] = {1, 7};
  const Result<ModelConfig> parsed = ParseModelConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->eos_token_ids, (std::vector<int64_t>{1, 7}));
}

struct BadConfig {
  const char* pointer;  // JSON pointer into Nano's configuration
  const char* value;    // JSON, or "" to remove the key
  const char* message;  // exact
  StatusCode code = StatusCode::kInvalidArgument;
};

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, NamesKeyExpectedAndFound) {
  const BadConfig& bad = GetParam();
  Json config = Json::parse(ReadText(testing_files::kNano / "config.json"));
  const Json::json_pointer pointer(bad.pointer);
  if (*bad.value == '\0') {
    config[pointer.parent_pointer()].erase(pointer.back());
  } else {
    config[pointer] = Json::parse(bad.value);
  }
  const Result<ModelConfig> parsed = ParseModelConfig(config.dump());
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().message(), bad.message);
  EXPECT_EQ(parsed.status().code(), bad.code);
}

constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr BadConfig kBadConfigs[] = {
    // Types.
    {"/text_config", "3", "text_config: expected an object, found 3"},
    {"/text_config/hidden_size", "\"320\"", "text_config.hidden_size: expected an integer, found \"320\""},
    {"/text_config/hidden_size", "320.0", "text_config.hidden_size: expected an integer, found 320.0"},
    {"/text_config/hidden_size", "18446744073709551615",
     "text_config.hidden_size: expected an integer, found 18446744073709551615"},
    {"/text_config/hidden_size", "", "text_config.hidden_size: the key is missing"},
    {"/text_config/rope_theta", "\"x\"", "text_config.rope_theta: expected a number, found \"x\""},
    {"/text_config/norm_topk_prob", "1", "text_config.norm_topk_prob: expected true or false, found 1"},
    {"/text_config/compress_ratios", "2", "text_config.compress_ratios: expected a list of integers, found 2"},
    {"/text_config/compress_ratios", "[0.5]", "text_config.compress_ratios: expected an integer, found 0.5"},
    {"/text_config/kv_source_layer_ids", "[4294967298]",
     "text_config.kv_source_layer_ids: expected a list of small integers, found 4294967298"},
    {"/text_config/rope_scaling", "[]", "text_config.rope_scaling: expected an object, found []"},
    {"/text_config/rope_scaling", "{\"factor\": 4}",
     "text_config.rope_scaling.original_max_position_embeddings: the key is missing"},
    {"/quantization_config", "\"fp8\"", "quantization_config: expected an object, found \"fp8\""},
    {"/vision_config", "true", "vision_config: expected an object, found true"},
    // Ranges.
    {"/text_config/hidden_size", "100",
     "text_config.hidden_size: expected a multiple of 32 from 32 to 1048576, found 100"},
    {"/text_config/hidden_size", "-32",
     "text_config.hidden_size: expected a multiple of 32 from 32 to 1048576, found -32"},
    {"/text_config/vocab_size", "0", "text_config.vocab_size: expected an integer from 1 to 16777216, found 0"},
    {"/text_config/qk_rope_head_dim", "33",
     "text_config.qk_rope_head_dim: expected a multiple of 2 from 2 to 4096, found 33"},
    {"/text_config/qk_rope_head_dim", "96",
     "text_config.qk_rope_head_dim: expected at most index_head_dim (64), found 96"},
    {"/text_config/hc_mult", "9", "text_config.hc_mult: expected an integer from 1 to 8, found 9"},
    {"/text_config/num_experts_per_tok", "17",
     "text_config.num_experts_per_tok: expected at most n_routed_experts (16), found 17"},
    {"/text_config/dspark_num_experts_per_tok", "9",
     "text_config.dspark_num_experts_per_tok: expected at most dspark_n_routed_experts (8), found 9"},
    {"/text_config/o_groups", "3", "text_config.o_groups: expected a divisor of num_attention_heads (4), found 3"},
    {"/text_config/rms_norm_eps", "0",
     "text_config.rms_norm_eps: expected a number from 1.1754943508222875e-38 to 1, found 0"},
    {"/text_config/swiglu_limit", "-1", "text_config.swiglu_limit: expected a number from 0 to 1000000, found -1"},
    {"/text_config/rope_scaling/factor", "0.5",
     "text_config.rope_scaling.factor: expected a number from 1 to 1000000, found 0.5"},
    {"/text_config/dspark_noise_token_id", "8192",
     "text_config.dspark_noise_token_id: expected at most vocab_size - 1 (8191), found 8192"},
    {"/text_config/dspark_noise_token_id", "",
     "text_config.dspark_noise_token_id: expected at most vocab_size - 1 (8191), found 128799 (the key is absent, this "
     "is the release's value)"},
    {"/text_config/engram_compressed_vocab_size", "8193",
     "text_config.engram_compressed_vocab_size: expected at most vocab_size (8192), found 8193"},
    {"/bos_token_id", "8192", "bos_token_id: expected an id below vocab_size (8192), found 8192"},
    {"/eos_token_id", "-1", "eos_token_id: expected an id below vocab_size (8192), found -1"},
    {"/eos_token_id", "[]", "eos_token_id: expected ids below vocab_size (8192), found []"},
    {"/eos_token_id", "[1, 9000]", "eos_token_id: expected ids below vocab_size (8192), found [1,9000]"},
    {"/vision_config", "{\"hidden_size\": 1000}",
     "vision_config.hidden_size: expected a multiple of 4 * num_attention_heads (16), found 1000"},
    {"/vision_config", "{\"patch_size\": 0}", "vision_config.patch_size: expected an integer from 1 to 1024, found 0"},
    {"/vision_config", "{\"max_wh_ratio\": 0}",
     "vision_config.max_wh_ratio: expected null or a number above 0, found 0.0"},
    // Structure.
    {"/text_config/compress_ratios", "[0, 0, 2]",
     "text_config.compress_ratios: expected 13 entries (num_hidden_layers + num_nextn_predict_layers), found 3 "
     "entries"},
    {"/text_config/compress_ratios", "",
     "text_config.compress_ratios: expected 13 entries (num_hidden_layers + num_nextn_predict_layers), found 43 "
     "entries (the key is absent, this is the release's value)"},
    {"/text_config/compress_ratios/3", "4", "text_config.compress_ratios[3]: expected 0, 1 or 2, found 4"},
    {"/text_config/compress_ratios/11", "1", "text_config.compress_ratios[11]: expected 0 for a DSpark stage, found 1"},
    {"/text_config/compress_ratios/3", "1",
     "text_config.compress_ratios[3]: expected 2, the ratio of its kv source 2, found 1"},
    {"/text_config/compress_ratios/1", "2",
     "text_config.kv_source_layer_ids: expected a source at or below layer 1, which has ratio 2, found [2, 5]"},
    {"/text_config/kv_source_layer_ids", "[]",
     "text_config.kv_source_layer_ids: expected at least one layer id, found an empty list"},
    {"/text_config/kv_source_layer_ids", "[5, 2]",
     "text_config.kv_source_layer_ids: expected strictly ascending layer ids from 0 to 9, found [5, 2]"},
    {"/text_config/index_source_layer_ids", "[2, 5, 10]",
     "text_config.index_source_layer_ids: expected strictly ascending layer ids from 0 to 9, found [2, 5, 10]"},
    {"/text_config/index_source_layer_ids", "[1, 2, 5]",
     "text_config.index_source_layer_ids: expected layers with compress_ratios 1 or 2, found layer 1"},
    {"/text_config/index_source_layer_ids", "[2, 8]",
     "text_config.kv_source_layer_ids: expected layers that index_source_layer_ids lists too, found layer 5"},
    {"/text_config/candidate_source_layer_id", "6",
     "text_config.candidate_source_layer_id: expected -1 or one of index_source_layer_ids, found 6"},
    {"/text_config/candidate_source_layer_id", "2",
     "text_config.candidate_source_layer_id: expected a layer with the kv source of the later index source 5 (5), "
     "found layer 2 with kv source 2"},
    {"/text_config/candidate_block_size", "0",
     "text_config.candidate_block_size: expected an integer from 1 to 1048576, found 0"},
    {"/text_config/dspark_target_layer_ids", "[]",
     "text_config.dspark_target_layer_ids: expected at least one layer id (num_nextn_predict_layers is not 0), found "
     "an empty list"},
    {"/text_config/dspark_target_layer_ids", "[7, 7]",
     "text_config.dspark_target_layer_ids: expected strictly ascending layer ids from 0 to 9, found [7, 7]"},
    {"/text_config/engram_layer_ids", "[1, 10]",
     "text_config.engram_layer_ids: expected strictly ascending layer ids from 0 to 9, found [1, 10]"},
    {"/text_config/engram_n_heads", "65", "text_config.engram_n_heads: expected an integer from 1 to 64, found 65"},
    {"/text_config/engram_num_embeddings/0", "96223",
     "text_config.engram_num_embeddings: expected [96222, 96484], the sums of the primes from engram_vocab_size 16000 "
     "on, found [96223, 96484]"},
    // Well formed, but nothing that this program runs.
    {"/model_type", "\"deepseek_v4\"",
     "model_type: expected \"deepseek_v41\", the only value this program supports, found \"deepseek_v4\"",
     kUnsupported},
    {"/text_config/scoring_func", "\"sigmoid\"",
     "text_config.scoring_func: expected \"sqrtsoftplus\", the only value this program supports, found \"sigmoid\"",
     kUnsupported},
    {"/text_config/topk_method", "\"greedy\"",
     "text_config.topk_method: expected \"noaux_tc\", the only value this program supports, found \"greedy\"",
     kUnsupported},
    {"/text_config/n_shared_experts", "2",
     "text_config.n_shared_experts: expected 1, the only value this program supports, found 2", kUnsupported},
    {"/text_config/num_key_value_heads", "4",
     "text_config.num_key_value_heads: expected 1, the only value this program supports, found 4", kUnsupported},
    {"/text_config/tie_word_embeddings", "true",
     "text_config.tie_word_embeddings: expected false, the only value this program supports, found true", kUnsupported},
    {"/text_config/hidden_act", "\"gelu\"",
     "text_config.hidden_act: expected \"silu\", the only value this program supports, found \"gelu\"", kUnsupported},
    {"/text_config/attention_bias", "true",
     "text_config.attention_bias: expected false, the only value this program supports, found true", kUnsupported},
    {"/text_config/rope_scaling/rope_type", "\"llama3\"",
     "text_config.rope_scaling.rope_type: expected \"yarn\", the only value this program supports, found \"llama3\"",
     kUnsupported},
    {"/quantization_config/quant_method", "\"awq\"",
     "quantization_config.quant_method: expected \"fp8\", the only value this program supports, found \"awq\"",
     kUnsupported},
    {"/quantization_config/weight_block_size", "[128, 128]",
     "quantization_config.weight_block_size: expected [32,32], the only value this program supports, found [128,128]",
     kUnsupported},
    {"/quantization_config/expert_dtype", "\"fp8\"",
     "quantization_config.expert_dtype: expected \"fp4\", the only value this program supports, found \"fp8\"",
     kUnsupported},
};
INSTANTIATE_TEST_SUITE_P(All, BadConfigTest, ::testing::ValuesIn(kBadConfigs));

TEST(ModelConfig, TextThatIsNoConfiguration) {
  for (const char* text : {"", "{", "[]", "3", "{} x", "\xff", "{\"text_config\": {}", "{\"a\": 1e999}"}) {
    const Result<ModelConfig> parsed = ParseModelConfig(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().message(), "expected a JSON object, found text that is not one") << text;
  }
  EXPECT_EQ(ParseModelConfig("{}").status().message(), "vocab_size: the key is missing");
  EXPECT_EQ(ParseModelConfig(std::string(2 << 20, ' ')).status().message(),
            "expected at most 1048576 bytes of JSON, found 2097152");
  EXPECT_EQ(ParseModelConfig("{\"a\": " + std::string(100000, '[')).status().message(),
            "expected JSON nested at most 64 deep, found deeper");
}

// One line whatever the file says.
TEST(ModelConfig, FoundValuesAreCutAndEscaped) {
  const std::string config = R"({"vocab_size": 8192, "hidden_size": ")" + std::string(300, 'x') + R"(\n"})";
  const std::string message = ParseModelConfig(config).status().message();
  EXPECT_LT(message.size(), 200u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
