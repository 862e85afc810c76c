// Readers of request fields that several protocols have in common. Errors name the field (json_reader.h).
//
// Thread-safety: pure functions and values. Ownership: results own their texts; the JSON they read must outlive the
// call.
#ifndef DEEPINFER_API_REQUEST_FIELDS_H_
#define DEEPINFER_API_REQUEST_FIELDS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/json_reader.h"
#include "api/request.h"

namespace deepinfer {

/// model, temperature, top_p and stream.
Status ReadCommonSettings(const ObjectReader& body, RequestSettings* settings);

/// The limit on the answer, under the name that it has in the protocol.
Result<std::optional<int64_t>> ReadMaxTokens(const ObjectReader& body, std::string_view key);

/// frequency_penalty, presence_penalty, n, seed, stop and stream_options of the two OpenAI completion protocols.
Status ReadOpenAiSettings(const ObjectReader& body, RequestSettings* settings);

inline constexpr size_t kMaxStopSequences = 16;

/// Effort as a name of `names` or an integer 1..100; kEffortNone for "none", which turns thinking off.
inline constexpr int kEffortNone = 0;
Result<std::optional<int>> ReadEffort(const ObjectReader& holder, std::string_view key,
                                      std::span<const std::string_view> names);
/// The names that Chat Completions and Responses accept.
inline constexpr std::string_view kOpenAiEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

/// The `thinking` object: whether it turns thinking on or off; nullopt when not given.
Result<std::optional<bool>> ReadThinking(const ObjectReader& body);

/// The same from `chat_template_kwargs`, where vLLM's users say it: `thinking`, or else `enable_thinking`.
Result<std::optional<bool>> ReadTemplateThinking(const ObjectReader& body);

/// Precedence: the thinking object, then effort ("none" is off, any other is on), then the server's default.
void ApplyThinking(std::optional<bool> thinking, std::optional<int> effort, const RequestOptions& options,
                   Conversation* conversation);

/// The checks that need the whole request; `format_field` is the path of the response format in this protocol.
Status CheckConversation(const Conversation& conversation, std::string_view format_field);

}  // namespace deepinfer

#endif  // DEEPINFER_API_REQUEST_FIELDS_H_
