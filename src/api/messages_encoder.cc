#include "api/messages_encoder.h"

#include "api/event_runs.h"
#include "api/json_writer.h"
#include "text/json_text.h"

namespace deepinfer {
namespace {

enum class BlockKind : uint8_t { kThinking, kText, kToolUse };

struct Block {
  BlockKind kind = BlockKind::kText;
  std::string id;    // kToolUse
  std::string name;  // kToolUse
  std::string text;  // thinking, text or the JSON of the input; empty when streaming
};

std::string_view StopReasonName(AnswerFinish reason) {
  switch (reason) {
    case AnswerFinish::kStopSequence:
      return "stop_sequence";
    case AnswerFinish::kLength:
      return "max_tokens";
    case AnswerFinish::kToolCalls:
      return "tool_use";
    case AnswerFinish::kContentFilter:
      return "refusal";
    default:
      return "end_turn";
  }
}

class MessagesEncoder final : public AnswerEncoder {
 public:
  explicit MessagesEncoder(AnswerHead head) : head_(std::move(head)) {}

  void Start(const Usage& usage, std::string* out) override {
    if (head_.stream) {
      BeginEvent("message_start", out);
      *out += R"(,"message":)";
      AppendMessage(usage, out);
      *out += "}\n\n";
    }
    if (head_.thinking) OpenBlock({BlockKind::kThinking, "", "", ""}, out);
  }

  void Add(int64_t, const AnswerPiece& piece, std::string* out) override {
    ForEachRun(piece.events, [&](OutputEvent::Kind kind, std::string_view text, int call) {
      switch (kind) {
        case OutputEvent::Kind::kReasoning:
          AddText(BlockKind::kThinking, text, out);
          break;
        case OutputEvent::Kind::kText:
          AddText(BlockKind::kText, text, out);
          break;
        case OutputEvent::Kind::kCallBegin:
          OpenBlock({BlockKind::kToolUse, "toolu_" + head_.id + "_" + std::to_string(call), std::string(text), ""},
                    out);
          break;
        case OutputEvent::Kind::kCallArguments:
          AddDelta(text, out);
          break;
        case OutputEvent::Kind::kCallEnd:
          CloseBlock(out);
          break;
      }
    });
  }

  void Finish(int64_t, const AnswerEnd& end, const Usage&, std::string* out) override {
    CloseBlock(out);
    stop_reason_ = StopReasonName(end.reason);
    if (end.reason == AnswerFinish::kStopSequence) stop_sequence_ = end.stop_sequence;
  }

  void End(const Usage& usage, std::string* out) override {
    if (!head_.stream) return AppendMessage(usage, out);
    BeginEvent("message_delta", out);
    JsonWriter(out).Raw(R"(,"delta":{)");
    AppendStop(out);
    *out += R"(},"usage":)";
    AppendMessagesUsage(usage, out);
    *out += "}\n\n";
    BeginEvent("message_stop", out);
    *out += "}\n\n";
  }

  void Fail(const ApiError& error, std::string* out) override {
    if (!head_.stream) {
      *out += ErrorBody(Protocol::kMessages, error);
      return;
    }
    JsonWriter(out).Raw("event: error\ndata: ").Raw(ErrorBody(Protocol::kMessages, error)).Raw("\n\n");
  }

 private:
  static void BeginEvent(std::string_view type, std::string* out) {
    JsonWriter(out).Raw("event: ").Raw(type).Raw("\ndata: {\"type\":\"").Raw(type).Raw("\"");
  }

  // An event about the last block.
  void BeginBlockEvent(std::string_view type, std::string* out) const {
    BeginEvent(type, out);
    JsonWriter(out).Raw(R"(,"index":)").Integer(static_cast<int64_t>(blocks_.size()) - 1);
  }

  // The default signature is the id of the response: reasoning is neither encrypted nor checked when it comes back.
  void AppendBlock(const Block& block, bool opening, std::string* out) const {
    JsonWriter json(out);
    switch (block.kind) {
      case BlockKind::kThinking:
        json.Raw(R"({"type":"thinking","thinking":)").Text(block.text);
        json.Raw(R"(,"signature":)").Text(opening ? "" : head_.id).Raw("}");
        break;
      case BlockKind::kText:
        json.Raw(R"({"type":"text","text":)").Text(block.text).Raw("}");
        break;
      case BlockKind::kToolUse: {
        json.Raw(R"({"type":"tool_use","id":)").Text(block.id).Raw(R"(,"name":)").Text(block.name);
        const Result<JsonValue> input = ParseJson(block.text);
        const bool is_object = input.ok() && input->AsObject() != nullptr;
        json.Raw(R"(,"input":)").Raw(is_object ? block.text : "{}").Raw("}");
      }
    }
  }

  void OpenBlock(Block block, std::string* out) {
    CloseBlock(out);
    const bool first = blocks_.empty();
    blocks_.push_back(std::move(block));
    open_ = true;
    if (!head_.stream) return;
    BeginBlockEvent("content_block_start", out);
    *out += R"(,"content_block":)";
    AppendBlock(blocks_.back(), /*opening=*/true, out);
    *out += "}\n\n";
    if (!first) return;
    BeginEvent("ping", out);
    *out += "}\n\n";
  }

  void AddText(BlockKind kind, std::string_view text, std::string* out) {
    if (!open_ || blocks_.back().kind != kind) OpenBlock({kind, "", "", ""}, out);
    AddDelta(text, out);
  }

  void AddDelta(std::string_view text, std::string* out) {
    Block& block = blocks_.back();
    if (!head_.stream) {
      block.text += text;
      return;
    }
    static constexpr std::string_view kDeltas[] = {R"({"type":"thinking_delta","thinking":)",
                                                   R"({"type":"text_delta","text":)",
                                                   R"({"type":"input_json_delta","partial_json":)"};
    BeginBlockEvent("content_block_delta", out);
    JsonWriter(out).Raw(R"(,"delta":)").Raw(kDeltas[static_cast<size_t>(block.kind)]).Text(text).Raw("}}\n\n");
  }

  void CloseBlock(std::string* out) {
    if (!open_) return;
    open_ = false;
    if (!head_.stream) return;
    if (blocks_.back().kind == BlockKind::kThinking) {
      BeginBlockEvent("content_block_delta", out);
      JsonWriter(out).Raw(R"(,"delta":{"type":"signature_delta","signature":)").Text(head_.id).Raw("}}\n\n");
    }
    BeginBlockEvent("content_block_stop", out);
    *out += "}\n\n";
  }

  void AppendStop(std::string* out) const {
    JsonWriter json(out);
    json.Raw(R"("stop_reason":)").TextOrNull(stop_reason_).Raw(R"(,"stop_sequence":)").TextOrNull(stop_sequence_);
  }

  // The message; when it starts it has no content and no output tokens.
  void AppendMessage(const Usage& usage, std::string* out) const {
    JsonWriter json(out);
    json.Raw(R"({"id":)").Text(head_.id).Raw(R"(,"type":"message","role":"assistant","model":)").Text(head_.model);
    json.Raw(R"(,"content":[)");
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i > 0) *out += ',';
      AppendBlock(blocks_[i], /*opening=*/false, out);
    }
    json.Raw("],");
    AppendStop(out);
    json.Raw(R"(,"usage":)");
    AppendMessagesUsage(usage, out);
    json.Raw("}");
  }

  const AnswerHead head_;
  std::vector<Block> blocks_;
  bool open_ = false;  // the last block takes more
  std::string_view stop_reason_;
  std::string stop_sequence_;
};

}  // namespace

std::unique_ptr<AnswerEncoder> MakeMessagesEncoder(AnswerHead head) {
  return std::make_unique<MessagesEncoder>(std::move(head));
}

}  // namespace deepinfer
