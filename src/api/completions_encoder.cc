#include "api/completions_encoder.h"

#include "api/event_runs.h"
#include "api/json_writer.h"

namespace deepinfer {
namespace {

class CompletionsEncoder final : public AnswerEncoder {
 public:
  explicit CompletionsEncoder(AnswerHead head) : head_(std::move(head)), choices_(static_cast<size_t>(head_.choices)) {
    JsonWriter json(&body_head_);
    json.Raw(R"({"id":)").Text(head_.id).Raw(R"(,"object":"text_completion","created":)");
    json.Integer(head_.created_unix_seconds).Raw(R"(,"model":)").Text(head_.model);
    json.Raw(R"(,"system_fingerprint":)").TextOrNull(head_.system_fingerprint).Raw(R"(,"choices":[)");
  }

  void Start(const Usage&, std::string* out) override {
    for (size_t i = 0; i < choices_.size() && i < head_.echo.size(); ++i) {
      if (head_.logprobs && i < head_.echo_logprobs.size()) choices_[i].logprobs.Add(head_.echo_logprobs[i]);
      TakeText(i, head_.echo[i], out);
    }
  }

  void Add(int64_t choice, const AnswerPiece& piece, std::string* out) override {
    const auto index = static_cast<size_t>(choice);
    if (head_.logprobs) choices_[index].logprobs.Add(piece.content_logprobs);
    ForEachRun(piece.events, [&](OutputEvent::Kind kind, std::string_view text, int) {
      if (kind == OutputEvent::Kind::kText) TakeText(index, text, out);
    });
  }

  void Finish(int64_t choice, const AnswerEnd& end, const Usage&, std::string* out) override {
    Choice& of = choices_[static_cast<size_t>(choice)];
    of.finish_reason = end.reason == AnswerFinish::kLength          ? "length"
                       : end.reason == AnswerFinish::kContentFilter ? "content_filter"
                                                                    : "stop";
    if (head_.stream) AppendChunk(static_cast<size_t>(choice), "", out);
  }

  void End(const Usage& usage, std::string* out) override {
    if (head_.stream && head_.include_usage) {
      JsonWriter(out).Raw("data: ").Raw(body_head_);
      AppendUsageAndEnd(usage, out);
      *out += "\n\n";
    }
    if (head_.stream) {
      *out += "data: [DONE]\n\n";
      return;
    }
    *out += body_head_;
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) *out += ',';
      AppendChoice(i, choices_[i].text, out);
    }
    AppendUsageAndEnd(usage, out);
  }

  void Fail(const ApiError& error, std::string* out) override {
    if (!head_.stream) {
      *out += ErrorBody(Protocol::kCompletions, error);
      return;
    }
    JsonWriter(out).Raw("data: ").Raw(ErrorBody(Protocol::kCompletions, error)).Raw("\n\ndata: [DONE]\n\n");
  }

 private:
  struct Choice {
    std::string text;             // of the whole answer; empty when streaming
    CompletionLogprobs logprobs;  // when streaming those of tokens whose text is not sent yet
    std::string_view finish_reason;
  };

  void TakeText(size_t choice, std::string_view text, std::string* out) {
    if (head_.stream) {
      AppendChunk(choice, text, out);
    } else {
      choices_[choice].text += text;
    }
  }

  void AppendChunk(size_t choice, std::string_view text, std::string* out) {
    JsonWriter(out).Raw("data: ").Raw(body_head_);
    AppendChoice(choice, text, out);
    *out += head_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }

  void AppendChoice(size_t choice, std::string_view text, std::string* out) {
    Choice& of = choices_[choice];
    JsonWriter json(out);
    json.Raw(R"({"index":)").Integer(static_cast<int64_t>(choice)).Raw(R"(,"text":)").Text(text);
    json.Raw(R"(,"logprobs":)");
    if (head_.logprobs && !(head_.stream && of.logprobs.empty())) {
      of.logprobs.Take(out);
    } else {
      json.Raw("null");
    }
    json.Raw(R"(,"finish_reason":)").TextOrNull(of.finish_reason).Raw("}");
  }

  static void AppendUsageAndEnd(const Usage& usage, std::string* out) {
    *out += R"(],"usage":)";
    AppendCompletionUsage(usage, /*thinking=*/false, out);
    *out += '}';
  }

  const AnswerHead head_;
  std::string body_head_;  // what every chunk and the body begin with, up to the first choice
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerEncoder> MakeCompletionsEncoder(AnswerHead head) {
  return std::make_unique<CompletionsEncoder>(std::move(head));
}

}  // namespace deepinfer
