#include "api/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/duration.h"

namespace deepinfer {
namespace {

Status CheckCount(const std::string& path, std::string_view what, size_t found, size_t most) {
  if (found <= most) return Status::Ok();
  return FieldError(
      path, "expected at most " + std::to_string(most) + " " + std::string(what) + ", found " + std::to_string(found));
}

// {"50256": -100}: token ids, which JSON can only spell as strings, to biases.
Status ReadLogitBias(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> biases, body.OptionalObject("logit_bias"));
  if (!biases.has_value()) return Status::Ok();
  const JsonValue::Object& members = *biases->value().AsObject();
  DEEPINFER_RETURN_IF_ERROR(CheckCount(biases->path(), "entries", members.size(), SamplingParams::kMaxLogitBias));
  for (const JsonMember& member : members) {
    LogitBias bias;
    const char* end = member.key.data() + member.key.size();
    const auto [rest, error] = std::from_chars(member.key.data(), end, bias.id);
    // One spelling an id, so that unique keys are unique ids.
    if (error != std::errc() || rest != end || bias.id < 0 || member.key != std::to_string(bias.id)) {
      return FieldError(biases->path(), "expected token ids as keys, found " + Quoted(member.key));
    }
    const std::optional<double> value = member.value.AsDouble();
    if (!value.has_value() || !(*value >= -100 && *value <= 100)) {
      return ExpectedError(biases->PathOf(member.key), "a number from -100 to 100", member.value);
    }
    bias.bias = static_cast<float>(*value);
    settings->logit_bias.push_back(bias);
  }
  return Status::Ok();
}

Status ReadBadWords(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* words, body.OptionalArray("bad_words"));
  if (words == nullptr) return Status::Ok();
  const std::string path = body.PathOf("bad_words");
  DEEPINFER_RETURN_IF_ERROR(CheckCount(path, "texts", words->size(), SamplingParams::kMaxBadWords));
  for (size_t i = 0; i < words->size(); ++i) {
    const std::string* word = (*words)[i].AsString();
    if (word == nullptr || word->empty()) {
      return ExpectedError(ItemPath(path, i), "a string that is not empty", (*words)[i]);
    }
    settings->bad_words.push_back(*word);
  }
  return Status::Ok();
}

Status ReadStopTokenIds(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* ids, body.OptionalArray("stop_token_ids"));
  if (ids == nullptr) return Status::Ok();
  const std::string path = body.PathOf("stop_token_ids");
  DEEPINFER_RETURN_IF_ERROR(CheckCount(path, "ids", ids->size(), SamplingParams::kMaxStopTokenIds));
  for (size_t i = 0; i < ids->size(); ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId((*ids)[i], ItemPath(path, i)));
    settings->stop_token_ids.push_back(id);
  }
  return Status::Ok();
}

// At most 512 characters of any kind.
Status CheckShortText(const std::string& path, std::string_view text) {
  constexpr size_t kMaxCharacters = 512;
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto characters = static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
  return CheckCount(path, "characters", characters, kMaxCharacters);
}

// Seconds as a number, or a text with a unit.
Status ReadCacheTtl(const ObjectReader& body, RequestSettings* settings) {
  const JsonValue* ttl = body.Find("cache_ttl");
  if (ttl == nullptr) {
    // Of OpenAI's policies only this one names a time.
    const JsonValue* retention = body.Find("prompt_cache_retention");
    const std::string* policy = retention == nullptr ? nullptr : retention->AsString();
    if (policy != nullptr && *policy == "24h") settings->cache_ttl_seconds = ParseDuration(*policy);
    return Status::Ok();
  }
  const std::string* text = ttl->AsString();
  const std::optional<int64_t> seconds = text != nullptr ? ParseDuration(*text) : ttl->AsInt64();
  if (!seconds.has_value() || *seconds < 1 || *seconds > kMostCacheTtlSeconds) {
    return ExpectedError(body.PathOf("cache_ttl"),
                         "1 s to 365 d, as whole seconds or a text such as 90s, 30m, 12h or 3d", *ttl);
  }
  settings->cache_ttl_seconds = seconds;
  return Status::Ok();
}

}  // namespace

Result<int32_t> ReadTokenId(const JsonValue& value, std::string_view path) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const std::optional<int64_t> id = value.AsInt64();
  if (!id.has_value() || *id < 0 || *id > kMax) return ExpectedError(path, "a token id, an integer from 0 on", value);
  return static_cast<int32_t>(*id);
}

Status ReadSamplingFields(const ObjectReader& body, RequestSettings* settings) {
  constexpr int64_t kMaxCount = std::numeric_limits<uint32_t>::max();
  DEEPINFER_ASSIGN_OR_RETURN(settings->top_k, body.OptionalInteger("top_k", -1, kMaxCount));
  DEEPINFER_ASSIGN_OR_RETURN(settings->min_p, body.OptionalNumber("min_p", 0, 1));
  if (const JsonValue* penalty = body.Find("repetition_penalty")) {
    settings->repetition_penalty = penalty->AsDouble();
    if (!settings->repetition_penalty.has_value() || !(*settings->repetition_penalty > 0)) {
      return ExpectedError(body.PathOf("repetition_penalty"), "a number above 0", *penalty);
    }
  }
  DEEPINFER_RETURN_IF_ERROR(ReadLogitBias(body, settings));
  DEEPINFER_RETURN_IF_ERROR(ReadBadWords(body, settings));
  DEEPINFER_ASSIGN_OR_RETURN(settings->min_tokens,
                             body.OptionalInteger("min_tokens", 0, settings->max_tokens.value_or(kMaxCount)));
  DEEPINFER_RETURN_IF_ERROR(ReadStopTokenIds(body, settings));
  DEEPINFER_ASSIGN_OR_RETURN(settings->include_stop_str_in_output, body.Bool("include_stop_str_in_output", false));
  DEEPINFER_ASSIGN_OR_RETURN(settings->ignore_eos, body.Bool("ignore_eos", false));
  return Status::Ok();
}

Status ReadServingFields(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> salt, body.OptionalString("cache_salt"));
  settings->cache_salt = salt.value_or("");
  DEEPINFER_RETURN_IF_ERROR(CheckShortText(body.PathOf("cache_salt"), settings->cache_salt));
  DEEPINFER_RETURN_IF_ERROR(ReadCacheTtl(body, settings));
  DEEPINFER_ASSIGN_OR_RETURN(settings->no_store, body.Bool("no_store", false));
  DEEPINFER_ASSIGN_OR_RETURN(
      const std::optional<int64_t> priority,
      body.OptionalInteger("priority", std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
  settings->priority = priority.value_or(0);
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> replay,
                             body.OptionalOneOf("replay", {"bounded", "exact"}));
  if (replay.has_value()) settings->replay = *replay == "exact" ? ReplayMode::kExact : ReplayMode::kBounded;
  return Status::Ok();
}

Status ReadUser(const ObjectReader& holder, std::string_view key, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(std::optional<std::string> user, holder.OptionalString(key));
  if (!user.has_value()) return Status::Ok();
  settings->user = std::move(*user);
  return CheckShortText(holder.PathOf(key), settings->user);
}

}  // namespace deepinfer
