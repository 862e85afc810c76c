#include "api/usage.h"

#include <algorithm>
#include <string_view>

#include "api/json_writer.h"

namespace deepinfer {
namespace {

// ,"cached_tokens_by_tier":{"device":64,"disk":128}, or nothing.
void AppendTiers(const Usage& usage, JsonWriter* json) {
  const auto has_tokens = [](const CachedTokens& cached) { return cached.tokens > 0; };
  const auto is_behind = [&](const CachedTokens& cached) { return cached.tier != "device" && has_tokens(cached); };
  if (std::ranges::none_of(usage.cached_tokens_by_tier, is_behind)) return;
  std::string_view before = R"(,"cached_tokens_by_tier":{)";
  for (const CachedTokens& cached : usage.cached_tokens_by_tier) {
    if (!has_tokens(cached)) continue;
    json->Raw(before).Text(cached.tier).Raw(":").Integer(cached.tokens);
    before = ",";
  }
  json->Raw("}");
}

}  // namespace

void AppendCompletionUsage(const Usage& usage, bool thinking, std::string* out) {
  JsonWriter json(out);
  json.Raw(R"({"prompt_tokens":)").Integer(usage.prompt_tokens);
  json.Raw(R"(,"completion_tokens":)").Integer(usage.completion_tokens);
  json.Raw(R"(,"total_tokens":)").Integer(usage.prompt_tokens + usage.completion_tokens);
  json.Raw(R"(,"prompt_tokens_details":{"cached_tokens":)").Integer(usage.cached_tokens);
  AppendTiers(usage, &json);
  json.Raw(R"(},"prompt_cache_hit_tokens":)").Integer(usage.cached_tokens);
  json.Raw(R"(,"prompt_cache_miss_tokens":)").Integer(usage.prompt_tokens - usage.cached_tokens);
  if (thinking) {
    json.Raw(R"(,"completion_tokens_details":{"reasoning_tokens":)").Integer(usage.reasoning_tokens).Raw("}");
  }
  json.Raw("}");
}

void AppendResponsesUsage(const Usage& usage, std::string* out) {
  JsonWriter json(out);
  json.Raw(R"({"input_tokens":)").Integer(usage.prompt_tokens);
  json.Raw(R"(,"input_tokens_details":{"cached_tokens":)").Integer(usage.cached_tokens);
  AppendTiers(usage, &json);
  json.Raw(R"(},"output_tokens":)").Integer(usage.completion_tokens);
  json.Raw(R"(,"output_tokens_details":{"reasoning_tokens":)").Integer(usage.reasoning_tokens);
  json.Raw(R"(},"total_tokens":)").Integer(usage.prompt_tokens + usage.completion_tokens).Raw("}");
}

void AppendMessagesUsage(const Usage& usage, std::string* out) {
  JsonWriter json(out);
  json.Raw(R"({"input_tokens":)").Integer(usage.prompt_tokens - usage.cached_tokens);
  json.Raw(R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)").Integer(usage.cached_tokens);
  AppendTiers(usage, &json);
  json.Raw(R"(,"output_tokens":)").Integer(usage.completion_tokens).Raw(R"(,"service_tier":"standard"})");
}

}  // namespace deepinfer
