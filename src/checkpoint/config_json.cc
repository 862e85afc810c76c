// config.json <-> ModelConfig; the checks that need no JSON are in model_config.cc.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/model_config.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxDepth = 64;  // the JSON library prints values by recursion

// Whether brackets outside of strings nest deeper than kMaxDepth.
bool NestsTooDeep(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// One value for a message, on one line and not endless.
std::string Show(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  return text;
}

// Reads keys of one object; remembers the first error and which keys were absent.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  const Status& status() const { return status_; }
  bool IsAbsent(const std::string& key) const { return absent_.contains(key); }

  void Integer(std::string_view key, int64_t* out) {
    if (const Json* value = Find(key)) ReadInteger(key, *value, out);
  }

  void Number(std::string_view key, double* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return Fail(key, "a number", *value);
    *out = value->get<double>();
  }

  void Boolean(std::string_view key, bool* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(key, "true or false", *value);
    *out = value->get<bool>();
  }

  template <typename Element>
  void Integers(std::string_view key, std::vector<Element>* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return Fail(key, "a list of integers", *value);
    out->clear();
    for (const Json& element : *value) {
      int64_t number = 0;
      if (!ReadInteger(key, element, &number)) return;
      if (number != static_cast<Element>(number)) return Fail(key, "a list of small integers", element);
      out->push_back(static_cast<Element>(number));
    }
  }

  // A key that this program supports with one value only; absent means that value.
  void Fixed(std::string_view key, const Json& expected) {
    const Json* value = Find(key);
    if (value == nullptr || *value == expected) return;
    status_ = Status::Unsupported(fmt::format("{}{}: expected {}, the only value this program supports, found {}",
                                              prefix_, key, Show(expected), Show(*value)));
  }

  void Require(std::string_view key) {
    if (!status_.ok() || object_.contains(key)) return;
    status_ = Status::InvalidArgument(fmt::format("{}{}: the key is missing", prefix_, key));
  }

  // The value, or null when it is absent or something failed before.
  const Json* Find(std::string_view key) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    absent_.emplace(key);
    return nullptr;
  }

  void Fail(std::string_view key, std::string_view expected, const Json& found) {
    status_ = Status::InvalidArgument(fmt::format("{}{}: expected {}, found {}", prefix_, key, expected, Show(found)));
  }

 private:
  bool ReadInteger(std::string_view key, const Json& value, int64_t* out) {
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max());
    if (!fits) {
      Fail(key, "an integer", value);
      return false;
    }
    *out = value.get<int64_t>();
    return true;
  }

  const Json& object_;
  const std::string prefix_;
  Status status_;
  std::set<std::string, std::less<>> absent_;
};

ModelConfig ReleaseDefaults() {
  ModelConfig config;
  config.compress_ratios.assign(2, 0);
  config.compress_ratios.insert(config.compress_ratios.end(), 18, 2);
  config.compress_ratios.insert(config.compress_ratios.end(), 20, 1);
  config.compress_ratios.insert(config.compress_ratios.end(), 3, 0);
  config.kv_source_layer_ids = {2, 8, 14, 20};
  config.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  config.engram_layer_ids = {1, 14};
  config.dspark_target_layer_ids = {37, 38, 39};
  config.eos_token_ids = {1};
  return config;
}

Status ReadRopeScaling(ObjectReader& text, const std::string& prefix, RopeScaling* scaling) {
  const Json* value = text.Find("rope_scaling");
  if (value == nullptr || value->is_null()) return text.status();
  if (!value->is_object()) {
    text.Fail("rope_scaling", "an object", *value);
    return text.status();
  }
  ObjectReader reader(*value, prefix + "rope_scaling.");
  reader.Fixed("rope_type", "yarn");
  reader.Fixed("type", "yarn");
  reader.Require("factor");
  reader.Require("original_max_position_embeddings");
  reader.Number("factor", &scaling->factor);
  reader.Number("beta_fast", &scaling->beta_fast);
  reader.Number("beta_slow", &scaling->beta_slow);
  reader.Integer("original_max_position_embeddings", &scaling->original_max_position_embeddings);
  return reader.status();
}

Status ReadText(const Json& object, const std::string& prefix, ModelConfig* config) {
  ObjectReader reader(object, prefix);
  reader.Require("vocab_size");
  reader.Require("hidden_size");
  reader.Require("num_hidden_layers");
  reader.Fixed("scoring_func", "sqrtsoftplus");
  reader.Fixed("topk_method", "noaux_tc");
  reader.Fixed("n_shared_experts", 1);
  reader.Fixed("num_key_value_heads", 1);
  reader.Fixed("hidden_act", "silu");
  reader.Fixed("attention_bias", false);
  reader.Fixed("tie_word_embeddings", false);
  for (const IntegerSetting& setting : IntegerSettings()) reader.Integer(setting.key, &(config->*setting.member));
  reader.Number("rms_norm_eps", &config->rms_norm_eps);
  reader.Number("rope_theta", &config->rope_theta);
  reader.Number("compress_rope_theta", &config->compress_rope_theta);
  reader.Number("routed_scaling_factor", &config->routed_scaling_factor);
  reader.Number("swiglu_limit", &config->swiglu_limit);
  reader.Number("hc_eps", &config->hc_eps);
  reader.Boolean("norm_topk_prob", &config->norm_topk_prob);
  reader.Integers("compress_ratios", &config->compress_ratios);
  reader.Integers("kv_source_layer_ids", &config->kv_source_layer_ids);
  reader.Integers("index_source_layer_ids", &config->index_source_layer_ids);
  reader.Integers("engram_layer_ids", &config->engram_layer_ids);
  reader.Integers("engram_num_embeddings", &config->engram_num_embeddings);
  reader.Integers("dspark_target_layer_ids", &config->dspark_target_layer_ids);
  DEEPINFER_RETURN_IF_ERROR(ReadRopeScaling(reader, prefix, &config->rope_scaling));

  const Status checked = CheckModelConfig(config);
  if (checked.ok()) return checked;
  const std::string key = checked.message().substr(0, checked.message().find_first_of(":["));
  const char* note = reader.IsAbsent(key) ? " (the key is absent, this is the release's value)" : "";
  return {checked.code(), prefix + checked.message() + note};
}

Status ReadTokenIds(const Json& root, const Json& text, ModelConfig* config) {
  const auto reader_of = [&](std::string_view key) {
    return root.contains(key) ? ObjectReader(root, "") : ObjectReader(text, "text_config.");
  };
  const auto read_id = [&](std::string_view key, int64_t* id) {
    ObjectReader reader = reader_of(key);
    const Json* value = reader.Find(key);
    if (value == nullptr || value->is_null()) return Status::Ok();
    reader.Integer(key, id);
    if (reader.status().ok() && (*id < 0 || *id >= config->vocab_size)) {
      reader.Fail(key, fmt::format("an id below vocab_size ({})", config->vocab_size), *value);
    }
    return reader.status();
  };
  DEEPINFER_RETURN_IF_ERROR(read_id("bos_token_id", &config->bos_token_id));
  DEEPINFER_RETURN_IF_ERROR(read_id("pad_token_id", &config->pad_token_id));
  DEEPINFER_RETURN_IF_ERROR(read_id("image_token_id", &config->image_token_id));
  ObjectReader reader = reader_of("eos_token_id");
  const Json* value = reader.Find("eos_token_id");
  if (value != nullptr && value->is_array()) {
    reader.Integers("eos_token_id", &config->eos_token_ids);
    const bool in_range =
        std::ranges::all_of(config->eos_token_ids, [config](int64_t id) { return id >= 0 && id < config->vocab_size; });
    if (reader.status().ok() && (!in_range || config->eos_token_ids.empty())) {
      reader.Fail("eos_token_id", fmt::format("ids below vocab_size ({})", config->vocab_size), *value);
    }
    return reader.status();
  }
  return read_id("eos_token_id", &config->eos_token_ids[0]);
}

Status ReadQuantization(const Json& root, const Json& text) {
  const Json& holder = root.contains("quantization_config") ? root : text;
  const auto found = holder.find("quantization_config");
  if (found == holder.end()) return Status::Ok();  // the tensors' dtypes decide
  ObjectReader reader(*found, "quantization_config.");
  if (!found->is_object()) {
    return Status::InvalidArgument("quantization_config: expected an object, found " + Show(*found));
  }
  reader.Fixed("quant_method", "fp8");
  reader.Fixed("activation_scheme", "dynamic");
  reader.Fixed("weight_block_size", Json::array({32, 32}));
  reader.Fixed("scale_fmt", "ue8m0");
  reader.Fixed("expert_dtype", "fp4");
  return reader.status();
}

Status ReadVision(const Json& root, ModelConfig* config) {
  const auto found = root.find("vision_config");
  if (found == root.end() || found->is_null()) return Status::Ok();
  if (!found->is_object()) {
    return Status::InvalidArgument("vision_config: expected an object, found " + Show(*found));
  }
  ObjectReader reader(*found, "vision_config.");
  VisionConfig vision;
  reader.Fixed("model_type", "deepseek_v41_vision");
  const auto read = [&reader](std::string_view key, int64_t maximum, int64_t* value) {
    reader.Integer(key, value);
    if (reader.status().ok() && (*value < 1 || *value > maximum)) {
      reader.Fail(key, fmt::format("an integer from 1 to {}", maximum), *value);
    }
  };
  constexpr int64_t kWidth = 1 << 16;
  read("num_hidden_layers", 1024, &vision.num_hidden_layers);
  read("hidden_size", kWidth, &vision.hidden_size);
  read("num_attention_heads", 1024, &vision.num_attention_heads);
  read("intermediate_size", kWidth, &vision.intermediate_size);
  read("patch_size", 1024, &vision.patch_size);
  read("downsample_ratio", 64, &vision.downsample_ratio);
  read("max_image_tokens", 1 << 20, &vision.max_image_tokens);
  read("min_pixels", int64_t{1} << 32, &vision.min_pixels);
  reader.Number("rope_theta", &vision.rope_theta);
  const Json* ratio = reader.Find("max_wh_ratio");
  if (ratio != nullptr && !ratio->is_null()) {
    vision.max_wh_ratio.emplace();
    reader.Number("max_wh_ratio", &*vision.max_wh_ratio);
  }
  DEEPINFER_RETURN_IF_ERROR(reader.status());
  // Two-dimensional RoPE turns pairs of a quarter of a head (spec c.10).
  if (vision.hidden_size % (4 * vision.num_attention_heads) != 0) {
    reader.Fail("hidden_size", fmt::format("a multiple of 4 * num_attention_heads ({})", vision.num_attention_heads),
                vision.hidden_size);
  } else if (!(vision.rope_theta >= 1 && vision.rope_theta <= 1e15)) {
    reader.Fail("rope_theta", "a number from 1 to 1e+15", vision.rope_theta);
  } else if (vision.max_wh_ratio.has_value() && !(*vision.max_wh_ratio > 0)) {
    reader.Fail("max_wh_ratio", "null or a number above 0", *vision.max_wh_ratio);
  }
  config->vision = vision;
  return reader.status();
}

Result<ModelConfig> ParseChecked(std::string_view text_of_file) {
  if (text_of_file.size() > kMaxConfigBytes) {
    return Status::InvalidArgument(
        fmt::format("expected at most {} bytes of JSON, found {}", kMaxConfigBytes, text_of_file.size()));
  }
  if (NestsTooDeep(text_of_file)) {
    return Status::InvalidArgument(fmt::format("expected JSON nested at most {} deep, found deeper", kMaxDepth));
  }
  const Json root = Json::parse(text_of_file, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) {
    return Status::InvalidArgument("expected a JSON object, found text that is not one");
  }
  const auto nested = root.find("text_config");
  if (nested != root.end() && !nested->is_object()) {
    return Status::InvalidArgument("text_config: expected an object, found " + Show(*nested));
  }
  const bool flat = nested == root.end();
  const Json& text = flat ? root : *nested;

  ObjectReader types(root, "");
  if (!flat || root.value("model_type", Json()) != "deepseek_v41_text") types.Fixed("model_type", "deepseek_v41");
  types.Fixed("tie_word_embeddings", false);
  DEEPINFER_RETURN_IF_ERROR(types.status());
  if (!flat) {
    ObjectReader text_type(text, "text_config.");
    text_type.Fixed("model_type", "deepseek_v41_text");
    DEEPINFER_RETURN_IF_ERROR(text_type.status());
  }

  ModelConfig config = ReleaseDefaults();
  DEEPINFER_RETURN_IF_ERROR(ReadQuantization(root, text));
  DEEPINFER_RETURN_IF_ERROR(ReadText(text, flat ? "" : "text_config.", &config));
  DEEPINFER_RETURN_IF_ERROR(ReadTokenIds(root, text, &config));
  DEEPINFER_RETURN_IF_ERROR(ReadVision(root, &config));
  return config;
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view json) {
  try {
    return ParseChecked(json);
  } catch (const std::exception& error) {  // out of memory, or a case of the JSON library that the checks missed
    return Status::InvalidArgument(fmt::format("expected a readable configuration, found: {}", error.what()));
  }
}

std::string WriteModelConfig(const ModelConfig& config) {
  using Json = nlohmann::ordered_json;
  Json text;
  text["model_type"] = "deepseek_v41_text";
  for (const IntegerSetting& setting : IntegerSettings()) text[std::string(setting.key)] = config.*setting.member;
  text["rms_norm_eps"] = config.rms_norm_eps;
  text["rope_theta"] = config.rope_theta;
  text["compress_rope_theta"] = config.compress_rope_theta;
  if (config.rope_scaling.original_max_position_embeddings > 0) {
    text["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", config.rope_scaling.factor},
                            {"beta_fast", config.rope_scaling.beta_fast},
                            {"beta_slow", config.rope_scaling.beta_slow},
                            {"original_max_position_embeddings", config.rope_scaling.original_max_position_embeddings}};
  }
  text["compress_ratios"] = config.compress_ratios;
  text["kv_source_layer_ids"] = config.kv_source_layer_ids;
  text["index_source_layer_ids"] = config.index_source_layer_ids;
  text["norm_topk_prob"] = config.norm_topk_prob;
  text["routed_scaling_factor"] = config.routed_scaling_factor;
  text["swiglu_limit"] = config.swiglu_limit;
  text["hc_eps"] = config.hc_eps;
  text["engram_layer_ids"] = config.engram_layer_ids;
  text["engram_num_embeddings"] = config.engram_num_embeddings;
  text["dspark_target_layer_ids"] = config.dspark_target_layer_ids;
  text["n_shared_experts"] = 1;
  text["num_key_value_heads"] = 1;
  text["scoring_func"] = "sqrtsoftplus";
  text["topk_method"] = "noaux_tc";
  text["hidden_act"] = "silu";
  text["attention_bias"] = false;
  text["tie_word_embeddings"] = false;

  Json root;
  root["architectures"] = {"DeepseekV41ForCausalLM"};
  root["model_type"] = "deepseek_v41";
  root["dtype"] = "bfloat16";
  root["bos_token_id"] = config.bos_token_id;
  root["eos_token_id"] = config.eos_token_ids;
  root["pad_token_id"] = config.pad_token_id;
  if (config.image_token_id >= 0) root["image_token_id"] = config.image_token_id;
  root["text_config"] = text;
  if (config.vision) {
    const VisionConfig& vision = *config.vision;
    root["vision_config"] = {{"model_type", "deepseek_v41_vision"},
                             {"num_hidden_layers", vision.num_hidden_layers},
                             {"hidden_size", vision.hidden_size},
                             {"num_attention_heads", vision.num_attention_heads},
                             {"intermediate_size", vision.intermediate_size},
                             {"patch_size", vision.patch_size},
                             {"rope_theta", vision.rope_theta},
                             {"downsample_ratio", vision.downsample_ratio},
                             {"max_image_tokens", vision.max_image_tokens},
                             {"min_pixels", vision.min_pixels}};
    root["vision_config"]["max_wh_ratio"] = vision.max_wh_ratio ? Json(*vision.max_wh_ratio) : Json();
  }
  root["quantization_config"] = {{"quant_method", "fp8"},
                                 {"activation_scheme", "dynamic"},
                                 {"expert_dtype", "fp4"},
                                 {"weight_block_size", {32, 32}},
                                 {"scale_fmt", "ue8m0"}};
  return root.dump(2) + "\n";
}

}  // namespace deepinfer
