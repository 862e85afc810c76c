#include "api/responses_encoder.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "api/custom_tool_input.h"
#include "api/event_runs.h"
#include "api/json_writer.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

enum class ItemKind : uint8_t { kReasoning, kMessage, kFunctionCall, kCustomCall };

// One output item; while it is the last and open, events go into it.
struct Item {
  ItemKind kind = ItemKind::kMessage;
  std::string id;
  std::string_view status = "in_progress";
  std::string text;            // reasoning, answer, arguments or input
  std::string logprobs;        // kMessage: JSON objects
  bool commentary = false;     // kMessage: a call follows it
  std::string call_id;         // calls
  std::string name;            // calls
  std::string tool_namespace;  // calls
  CustomToolInput input;       // kCustomCall
};

std::string_view IdPrefix(ItemKind kind) {
  static constexpr std::string_view kPrefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
  return kPrefixes[static_cast<size_t>(kind)];
}

// The stem of the events that carry the item's text: response.STEM.delta and response.STEM.done.
std::string_view TextEventStem(ItemKind kind) {
  static constexpr std::string_view kStems[] = {"reasoning_text", "output_text", "function_call_arguments",
                                                "custom_tool_call_input"};
  return kStems[static_cast<size_t>(kind)];
}

// The name of the field that holds the item's text.
std::string_view TextKey(ItemKind kind) {
  static constexpr std::string_view kKeys[] = {"text", "text", "arguments", "input"};
  return kKeys[static_cast<size_t>(kind)];
}

bool HasContentPart(ItemKind kind) { return kind == ItemKind::kReasoning || kind == ItemKind::kMessage; }

// The single content part; empty as it is when it is added.
void AppendPart(const Item& item, bool empty, std::string* out) {
  JsonWriter json(out);
  if (item.kind == ItemKind::kReasoning) {
    json.Raw(R"({"type":"reasoning_text")");
  } else {
    json.Raw(R"({"type":"output_text","annotations":[],"logprobs":[)").Raw(empty ? "" : item.logprobs).Raw("]");
  }
  json.Raw(R"(,"text":)").Text(empty ? "" : item.text).Raw("}");
}

void AppendItem(const Item& item, bool empty, std::string* out) {
  static constexpr std::string_view kTypes[] = {"reasoning", "message", "function_call", "custom_tool_call"};
  JsonWriter json(out);
  json.Raw(R"({"type":")").Raw(kTypes[static_cast<size_t>(item.kind)]).Raw(R"(","id":)").Text(item.id);
  json.Raw(R"(,"status":)").Text(item.status);
  if (item.kind == ItemKind::kMessage) {
    json.Raw(R"(,"role":"assistant","phase":)").Text(item.commentary ? "commentary" : "final_answer");
  }
  if (HasContentPart(item.kind)) {
    json.Raw(R"(,"content":[)");
    if (!empty) AppendPart(item, false, out);
    json.Raw(item.kind == ItemKind::kReasoning ? R"(],"summary":[]})" : "]}");
    return;
  }
  json.Raw(R"(,"call_id":)").Text(item.call_id).Raw(R"(,"name":)").Text(item.name);
  if (!item.tool_namespace.empty()) json.Raw(R"(,"namespace":)").Text(item.tool_namespace);
  json.Raw(",\"").Raw(TextKey(item.kind)).Raw("\":").Text(empty ? "" : item.text).Raw("}");
}

class ResponsesEncoder final : public AnswerEncoder {
 public:
  explicit ResponsesEncoder(AnswerHead head) : head_(std::move(head)) {
    const size_t open = head_.repeated_fields.find('{');
    const size_t close = head_.repeated_fields.rfind('}');
    if (open == std::string::npos || close == std::string::npos) return;
    const std::string inner = head_.repeated_fields.substr(open + 1, close - open - 1);
    if (inner.find_first_not_of(" \t\r\n") != std::string::npos) repeated_members_ = "," + inner;
  }

  void Start(const Usage&, std::string* out) override {
    if (!head_.stream) return;
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      BeginEvent(type, out);
      *out += R"(,"response":)";
      AppendResponse("in_progress", nullptr, nullptr, out);
      EndEvent(out);
    }
  }

  void Add(int64_t, const AnswerPiece& piece, std::string* out) override {
    if (head_.logprobs) AppendLogprobItems(piece.content_logprobs, &logprobs_);
    ForEachRun(piece.events, [&](OutputEvent::Kind kind, std::string_view text, int call) {
      switch (kind) {
        case OutputEvent::Kind::kReasoning:
          if (OpenKind() != ItemKind::kReasoning) OpenItem(ItemKind::kReasoning, out);
          AddText(text, out);
          break;
        case OutputEvent::Kind::kText:
          if (OpenKind() != ItemKind::kMessage) OpenItem(ItemKind::kMessage, out);
          AddText(text, out);
          break;
        case OutputEvent::Kind::kCallBegin:
          OpenCall(text, call, out);
          break;
        case OutputEvent::Kind::kCallArguments:
          AddArguments(text, out);
          break;
        case OutputEvent::Kind::kCallEnd:
          CloseItem("completed", out);
          break;
      }
    });
  }

  void Finish(int64_t, const AnswerEnd& end, const Usage&, std::string* out) override {
    if (end.reason == AnswerFinish::kLength) incomplete_reason_ = "max_output_tokens";
    if (end.reason == AnswerFinish::kContentFilter) incomplete_reason_ = "content_filter";
    CloseItem(incomplete_reason_.empty() ? "completed" : "incomplete", out);
  }

  void End(const Usage& usage, std::string* out) override {
    const std::string_view status = incomplete_reason_.empty() ? "completed" : "incomplete";
    AppendResponse(status, &usage, nullptr, &body_);
    if (!head_.stream) {
      *out += body_;
      return;
    }
    BeginEvent(incomplete_reason_.empty() ? "response.completed" : "response.incomplete", out);
    JsonWriter(out).Raw(R"(,"response":)").Raw(body_);
    EndEvent(out);
  }

  void Fail(const ApiError& error, std::string* out) override {
    if (!head_.stream) {
      *out += ErrorBody(Protocol::kResponses, error);
      return;
    }
    CloseItem("incomplete", out);
    AppendResponse("failed", nullptr, &error, &body_);
    BeginEvent("response.failed", out);
    JsonWriter(out).Raw(R"(,"response":)").Raw(body_);
    EndEvent(out);
  }

  std::string StoredBody() const override { return body_; }

 private:
  static void BeginEvent(std::string_view type, std::string* out) {
    JsonWriter(out).Raw("event: ").Raw(type).Raw("\ndata: {\"type\":\"").Raw(type).Raw("\"");
  }

  void EndEvent(std::string* out) {
    JsonWriter(out).Raw(R"(,"sequence_number":)").Integer(sequence_number_++).Raw("}\n\n");
  }

  // Which item, and which part of it, an event is about.
  void AppendPlace(std::string* out) const {
    const Item& item = items_.back();
    JsonWriter json(out);
    if (HasContentPart(item.kind)) json.Raw(R"(,"content_index":0)");
    json.Raw(R"(,"item_id":)").Text(item.id).Raw(R"(,"output_index":)");
    json.Integer(static_cast<int64_t>(items_.size()) - 1);
  }

  std::optional<ItemKind> OpenKind() const {
    return open_ ? std::optional<ItemKind>(items_.back().kind) : std::nullopt;
  }

  void OpenItem(ItemKind kind, std::string* out) {
    Item item;
    item.kind = kind;
    OpenItem(std::move(item), out);
  }

  void OpenItem(Item item, std::string* out) {
    CloseItem("completed", out);
    item.id = std::string(IdPrefix(item.kind)) + head_.id + "_" + std::to_string(items_.size());
    items_.push_back(std::move(item));
    open_ = true;
    EmitItem("response.output_item.added", /*empty=*/true, out);
    EmitPart("response.content_part.added", /*empty=*/true, out);
  }

  void OpenCall(std::string_view name, int call, std::string* out) {
    if (OpenKind() == ItemKind::kMessage) items_.back().commentary = true;
    Item item;
    item.kind = ItemKind::kFunctionCall;
    item.call_id = "call_" + head_.id + "_" + std::to_string(call);
    item.name = name;
    const auto tool = std::find_if(head_.tools.begin(), head_.tools.end(),
                                   [name](const Tool& candidate) { return candidate.name == name; });
    if (tool != head_.tools.end()) {
      item.name = tool->local_name;
      item.tool_namespace = tool->tool_namespace;
      if (tool->custom) item.kind = ItemKind::kCustomCall;
    }
    logprobs_.clear();  // those of the call's markup belong to no text
    OpenItem(std::move(item), out);
  }

  void AddText(std::string_view text, std::string* out) {
    Item& item = items_.back();
    item.text += text;
    const bool has_logprobs = item.kind == ItemKind::kMessage;
    if (head_.stream) {
      BeginEvent("response." + std::string(TextEventStem(item.kind)) + ".delta", out);
      JsonWriter(out).Raw(R"(,"delta":)").Text(text);
      if (has_logprobs) JsonWriter(out).Raw(R"(,"logprobs":[)").Raw(logprobs_).Raw("]");
      AppendPlace(out);
      EndEvent(out);
    }
    if (has_logprobs) KeepLogprobs(&item);
  }

  void KeepLogprobs(Item* item) {
    if (logprobs_.empty()) return;
    if (!item->logprobs.empty()) item->logprobs += ',';
    item->logprobs += logprobs_;
    logprobs_.clear();
  }

  void AddArguments(std::string_view arguments, std::string* out) {
    logprobs_.clear();
    if (items_.back().kind == ItemKind::kFunctionCall) return AddText(arguments, out);
    std::string input;
    items_.back().input.Feed(arguments, &input);
    if (!input.empty()) AddText(input, out);
  }

  void CloseItem(std::string_view status, std::string* out) {
    if (!open_) return;
    Item& item = items_.back();
    if (item.kind == ItemKind::kCustomCall) {
      std::string rest;
      item.input.Finish(&rest);
      if (!rest.empty()) AddText(rest, out);
    }
    if (item.kind == ItemKind::kMessage) KeepLogprobs(&item);
    item.status = status;
    open_ = false;
    if (!head_.stream) return;
    BeginEvent("response." + std::string(TextEventStem(item.kind)) + ".done", out);
    JsonWriter(out).Raw(",\"").Raw(TextKey(item.kind)).Raw("\":").Text(item.text);
    if (item.kind == ItemKind::kMessage) JsonWriter(out).Raw(R"(,"logprobs":[)").Raw(item.logprobs).Raw("]");
    AppendPlace(out);
    EndEvent(out);
    EmitPart("response.content_part.done", /*empty=*/false, out);
    EmitItem("response.output_item.done", /*empty=*/false, out);
  }

  void EmitPart(std::string_view type, bool empty, std::string* out) {
    if (!head_.stream || !HasContentPart(items_.back().kind)) return;
    BeginEvent(type, out);
    AppendPlace(out);
    *out += R"(,"part":)";
    AppendPart(items_.back(), empty, out);
    EndEvent(out);
  }

  void EmitItem(std::string_view type, bool empty, std::string* out) {
    if (!head_.stream) return;
    BeginEvent(type, out);
    *out += R"(,"item":)";
    AppendItem(items_.back(), empty, out);
    JsonWriter(out).Raw(R"(,"output_index":)").Integer(static_cast<int64_t>(items_.size()) - 1);
    EndEvent(out);
  }

  // The response object; `usage` is null while it is in progress or failed, `error` unless it failed.
  void AppendResponse(std::string_view status, const Usage* usage, const ApiError* error, std::string* out) const {
    JsonWriter json(out);
    json.Raw(R"({"id":)").Text(head_.id).Raw(R"(,"object":"response","created_at":)");
    json.Integer(head_.created_unix_seconds).Raw(R"(,"model":)").Text(head_.model).Raw(R"(,"status":)").Text(status);
    json.Raw(R"(,"completed_at":)");
    if (usage != nullptr) {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      json.Integer(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    } else {
      json.Raw("null");
    }
    json.Raw(R"(,"error":)");
    if (error != nullptr) {
      const std::string_view code = error->http_status == 429   ? "rate_limit_exceeded"
                                    : error->http_status >= 500 ? "server_error"
                                                                : "invalid_prompt";
      json.Raw(R"({"code":)").Text(code).Raw(R"(,"message":)").Text(RepairUtf8(error->message)).Raw("}");
    } else {
      json.Raw("null");
    }
    json.Raw(R"(,"incomplete_details":)");
    if (incomplete_reason_.empty()) {
      json.Raw("null");
    } else {
      json.Raw(R"({"reason":)").Text(incomplete_reason_).Raw("}");
    }
    json.Raw(R"(,"output":[)");
    for (size_t i = 0; i < items_.size(); ++i) {
      if (i > 0) *out += ',';
      AppendItem(items_[i], false, out);
    }
    json.Raw("]").Raw(repeated_members_).Raw(R"(,"usage":)");
    if (usage != nullptr) {
      AppendResponsesUsage(*usage, out);
    } else {
      json.Raw("null");
    }
    json.Raw("}");
  }

  const AnswerHead head_;
  std::string repeated_members_;  // of head_.repeated_fields, with a comma in front
  std::vector<Item> items_;
  bool open_ = false;     // the last item takes more
  std::string logprobs_;  // JSON objects of tokens whose text is not there yet
  std::string_view incomplete_reason_;
  int64_t sequence_number_ = 0;
  std::string body_;  // the finished response object
};

}  // namespace

std::unique_ptr<AnswerEncoder> MakeResponsesEncoder(AnswerHead head) {
  return std::make_unique<ResponsesEncoder>(std::move(head));
}

}  // namespace deepinfer
