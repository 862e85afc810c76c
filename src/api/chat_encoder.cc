#include "api/chat_encoder.h"

#include "api/event_runs.h"
#include "api/json_writer.h"

namespace deepinfer {
namespace {

std::string_view FinishReasonName(AnswerFinish reason) {
  switch (reason) {
    case AnswerFinish::kLength:
      return "length";
    case AnswerFinish::kToolCalls:
      return "tool_calls";
    case AnswerFinish::kContentFilter:
      return "content_filter";
    default:
      return "stop";
  }
}

class ChatEncoder final : public AnswerEncoder {
 public:
  explicit ChatEncoder(AnswerHead head)
      : head_(std::move(head)), choices_(static_cast<size_t>(head_.choices)), unfinished_(head_.choices) {
    JsonWriter json(&body_head_);
    json.Raw(R"({"id":)").Text(head_.id).Raw(R"(,"object":")");
    json.Raw(head_.stream ? "chat.completion.chunk" : "chat.completion").Raw(R"(","created":)");
    json.Integer(head_.created_unix_seconds).Raw(R"(,"model":)").Text(head_.model);
    json.Raw(R"(,"system_fingerprint":)").TextOrNull(head_.system_fingerprint).Raw(R"(,"choices":[)");
  }

  void Start(const Usage&, std::string* out) override {
    if (!head_.stream) return;
    for (size_t choice = 0; choice < choices_.size(); ++choice) {
      BeginChunk(choice, out);
      *out += R"({"role":"assistant",)";
      *out += head_.thinking ? R"("content":null,"reasoning_content":""})" : R"("content":""})";
      EndChunk("", "", "", out);
    }
  }

  void Add(int64_t choice, const AnswerPiece& piece, std::string* out) override {
    Choice& of = choices_[static_cast<size_t>(choice)];
    if (head_.logprobs) {
      AppendLogprobItems(piece.content_logprobs, &of.content_logprobs);
      AppendLogprobItems(piece.reasoning_logprobs, &of.reasoning_logprobs);
    }
    ForEachRun(piece.events, [&](OutputEvent::Kind kind, std::string_view text, int call) {
      if (head_.stream) {
        StreamEvent(static_cast<size_t>(choice), kind, text, call, out);
      } else {
        Keep(kind, text, &of);
      }
    });
  }

  void Finish(int64_t choice, const AnswerEnd& end, const Usage& usage, std::string* out) override {
    --unfinished_;
    Choice& of = choices_[static_cast<size_t>(choice)];
    of.finish_reason = FinishReasonName(end.reason);
    if (!head_.stream) return;
    BeginChunk(static_cast<size_t>(choice), out);
    *out += head_.thinking ? R"({"content":"","reasoning_content":null})" : R"({"content":""})";
    std::string usage_json;
    if (unfinished_ == 0 && !head_.usage_in_own_chunk) AppendCompletionUsage(usage, head_.thinking, &usage_json);
    EndChunk(of.content_logprobs, of.reasoning_logprobs, of.finish_reason, out, usage_json);
  }

  void End(const Usage& usage, std::string* out) override {
    if (!head_.stream) return AppendBody(usage, out);
    if (head_.usage_in_own_chunk && head_.include_usage) {
      JsonWriter(out).Raw("data: ").Raw(body_head_).Raw(R"(],"usage":)");
      AppendCompletionUsage(usage, head_.thinking, out);
      *out += "}\n\n";
    }
    *out += "data: [DONE]\n\n";
  }

  void Fail(const ApiError& error, std::string* out) override {
    if (!head_.stream) {
      *out += ErrorBody(Protocol::kChat, error);
      return;
    }
    JsonWriter(out).Raw("data: ").Raw(ErrorBody(Protocol::kChat, error)).Raw("\n\ndata: [DONE]\n\n");
  }

 private:
  struct Call {
    std::string name;
    std::string arguments;
  };
  struct Choice {
    // Of the whole answer; when streaming they stay empty.
    std::string text;
    std::string reasoning;
    std::vector<Call> calls;
    // JSON objects; when streaming those of tokens whose text is not sent yet.
    std::string content_logprobs;
    std::string reasoning_logprobs;
    std::string_view finish_reason;
  };

  // Choices after the first have their number in the id, so that ids are unique in a response.
  void AppendCallId(size_t choice, int64_t call, JsonWriter* json) const {
    std::string id = "call_" + head_.id;
    if (choice > 0) id.append("_").append(std::to_string(choice));
    json->Text(id.append("_").append(std::to_string(call)));
  }

  void BeginChunk(size_t choice, std::string* out) const {
    JsonWriter(out).Raw("data: ").Raw(body_head_).Raw(R"({"index":)");
    JsonWriter(out).Integer(static_cast<int64_t>(choice)).Raw(R"(,"delta":)");
  }

  void EndChunk(std::string_view content_logprobs, std::string_view reasoning_logprobs, std::string_view finish_reason,
                std::string* out, std::string_view usage = "") const {
    JsonWriter json(out);
    const bool none = content_logprobs.empty() && reasoning_logprobs.empty();
    json.Raw(R"(,"logprobs":)").Raw(none ? "null" : LogprobsObject(content_logprobs, reasoning_logprobs));
    json.Raw(R"(,"finish_reason":)").TextOrNull(finish_reason).Raw("}]");
    if (!usage.empty() || head_.include_usage) json.Raw(R"(,"usage":)").Raw(usage.empty() ? "null" : usage);
    json.Raw("}\n\n");
  }

  // DeepSeek's extension of the object: tokens of the reasoning stand in a list of their own.
  static std::string LogprobsObject(std::string_view content, std::string_view reasoning) {
    std::string object;
    JsonWriter json(&object);
    json.Raw(R"({"content":[)").Raw(content).Raw(R"(],"refusal":null)");
    if (!reasoning.empty()) json.Raw(R"(,"reasoning_content":[)").Raw(reasoning).Raw("]");
    json.Raw("}");
    return object;
  }

  void StreamEvent(size_t choice, OutputEvent::Kind kind, std::string_view text, int call, std::string* out) {
    if (kind == OutputEvent::Kind::kCallEnd) return;
    BeginChunk(choice, out);
    JsonWriter json(out);
    switch (kind) {
      case OutputEvent::Kind::kReasoning:
        json.Raw(R"({"content":null,"reasoning_content":)").Text(text).Raw("}");
        break;
      case OutputEvent::Kind::kText:
        json.Raw(R"({"content":)").Text(text).Raw(head_.thinking ? R"(,"reasoning_content":null})" : "}");
        break;
      case OutputEvent::Kind::kCallBegin:
        json.Raw(R"({"tool_calls":[{"index":)").Integer(call).Raw(R"(,"id":)");
        AppendCallId(choice, call, &json);
        json.Raw(R"(,"type":"function","function":{"name":)").Text(text).Raw(R"(,"arguments":""}}]})");
        break;
      default:
        json.Raw(R"({"tool_calls":[{"index":)").Integer(call);
        json.Raw(R"(,"function":{"arguments":)").Text(text).Raw("}}]}");
    }
    std::string content_logprobs;
    std::string reasoning_logprobs;
    if (kind == OutputEvent::Kind::kReasoning) {
      reasoning_logprobs.swap(choices_[choice].reasoning_logprobs);
    } else {
      content_logprobs.swap(choices_[choice].content_logprobs);
    }
    EndChunk(content_logprobs, reasoning_logprobs, "", out);
  }

  static void Keep(OutputEvent::Kind kind, std::string_view text, Choice* of) {
    switch (kind) {
      case OutputEvent::Kind::kReasoning:
        of->reasoning += text;
        break;
      case OutputEvent::Kind::kText:
        of->text += text;
        break;
      case OutputEvent::Kind::kCallBegin:
        of->calls.push_back({std::string(text), ""});
        break;
      case OutputEvent::Kind::kCallArguments:
        of->calls.back().arguments += text;
        break;
      case OutputEvent::Kind::kCallEnd:
        break;
    }
  }

  void AppendBody(const Usage& usage, std::string* out) const {
    JsonWriter json(out);
    json.Raw(body_head_);
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& of = choices_[i];
      json.Raw(i > 0 ? R"(,{"index":)" : R"({"index":)").Integer(static_cast<int64_t>(i));
      json.Raw(R"(,"message":{"role":"assistant","content":)");
      if (of.text.empty() && !of.calls.empty()) {
        json.Raw("null");
      } else {
        json.Text(of.text);
      }
      if (head_.thinking || !of.reasoning.empty()) json.Raw(R"(,"reasoning_content":)").Text(of.reasoning);
      for (size_t call = 0; call < of.calls.size(); ++call) {
        json.Raw(call > 0 ? R"(,{"id":)" : R"(,"tool_calls":[{"id":)");
        AppendCallId(i, static_cast<int64_t>(call), &json);
        json.Raw(R"(,"type":"function","function":{"name":)").Text(of.calls[call].name);
        json.Raw(R"(,"arguments":)").Text(of.calls[call].arguments).Raw("}}");
      }
      json.Raw(of.calls.empty() ? "}" : "]}").Raw(R"(,"logprobs":)");
      json.Raw(head_.logprobs ? LogprobsObject(of.content_logprobs, of.reasoning_logprobs) : "null");
      json.Raw(R"(,"finish_reason":)").TextOrNull(of.finish_reason).Raw("}");
    }
    json.Raw(R"(],"usage":)");
    AppendCompletionUsage(usage, head_.thinking, out);
    *out += '}';
  }

  const AnswerHead head_;
  std::string body_head_;  // what every chunk and the body begin with, up to the first choice
  std::vector<Choice> choices_;
  int64_t unfinished_;
};

}  // namespace

std::unique_ptr<AnswerEncoder> MakeChatEncoder(AnswerHead head) {
  return std::make_unique<ChatEncoder>(std::move(head));
}

}  // namespace deepinfer
