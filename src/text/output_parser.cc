#include "text/output_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/call_arguments.h"
#include "text/marker_matcher.h"

namespace deepinfer {
namespace {

// The stages of docs/prompt-format.md, "Output".
enum class Stage : uint8_t {
  kThink,
  kText,
  kJsonSeek,
  kJson,
  kJsonEnd,
  kCalls,
  kName,
  kArguments,
  kKey,
  kType,
  kString,
  kValue,
  kDone,
};
constexpr size_t kStages = static_cast<size_t>(Stage::kDone);  // those that have markers

enum class Action : uint8_t {
  kStop,
  kEndThink,
  kStrayEndThink,
  kOpenCalls,
  kOpenFence,
  kOpenJson,
  kCloseFence,
  kCloseCalls,
  kOpenInvoke,
  kCloseName,
  kOpenParameter,
  kCloseInvoke,
  kNextInvoke,
  kCloseKey,
  kOpenString,
  kOpenValue,
  kNoType,
  kCloseString,
  kCloseValue,
};

// A stage's markers, in the order that decides when two complete on the same byte.
class StageTable {
 public:
  struct Row {
    Marker marker;
    Action action;
  };
  explicit StageTable(const std::vector<Row>& rows) : rows_(rows), set_(MarkersOf(rows)) {}

  const MarkerSet* set() const { return &set_; }
  const Row& row(int index) const { return rows_[static_cast<size_t>(index)]; }

 private:
  static std::vector<Marker> MarkersOf(const std::vector<Row>& rows) {
    std::vector<Marker> markers;
    for (const Row& row : rows) markers.push_back(row.marker);
    return markers;
  }

  std::vector<Row> rows_;
  MarkerSet set_;
};

std::vector<StageTable::Row> RowsOf(Stage stage, const OutputParserOptions& options) {
  using enum Action;
  const std::string close = "</" + options.dsml;
  std::vector<StageTable::Row> rows;
  const auto add = [&](std::string text, Action action, bool takes_newlines = false) {
    rows.push_back({{std::move(text), takes_newlines}, action});
  };
  const auto add_stops = [&] {
    for (const std::string& stop : options.stop) add(stop, kStop);
  };
  const auto add_calls = [&] {
    if (options.parse_tool_calls) add("<" + options.dsml, kOpenCalls, /*takes_newlines=*/true);
  };
  switch (stage) {
    case Stage::kThink:
      add_calls();
      add(options.end_think, kEndThink, /*takes_newlines=*/true);
      break;
    case Stage::kText:
      add_stops();
      add_calls();
      add(options.end_think, kStrayEndThink);
      break;
    case Stage::kJsonSeek:
      add("```json\n", kOpenFence);
      add("```\n", kOpenFence);
      add("{", kOpenJson);
      add("[", kOpenJson);
      add_calls();
      break;
    case Stage::kJson:
      add_stops();
      add("\n```", kCloseFence);
      add_calls();
      break;
    case Stage::kJsonEnd:
      add_calls();
      break;
    case Stage::kCalls:
      add("invoke name=\"", kOpenInvoke);
      add(close + " calls>", kCloseCalls);
      add(close + "tool_calls>", kCloseCalls);
      break;
    case Stage::kName:
      add("\"", kCloseName);
      break;
    case Stage::kArguments:
      add("parameter name=\"", kOpenParameter);
      add(close, kCloseInvoke);
      add("invoke name=\"", kNextInvoke);
      break;
    case Stage::kKey:
      add("\"", kCloseKey);
      break;
    case Stage::kType:
      add("true\">", kOpenString);
      add("false\">", kOpenValue);
      add(close, kNoType);
      break;
    case Stage::kString:
      add(close, kCloseString);
      break;
    case Stage::kValue:
      add(close, kCloseValue);
      break;
    case Stage::kDone:
      break;
  }
  return rows;
}

bool IsMark(char c) { return c == OutputParser::kDsmlMark.front() || c == OutputParser::kEndThinkMark.front(); }

}  // namespace

struct OutputParser::State {
  explicit State(OutputParserOptions given) : options(std::move(given)) {
    std::erase_if(options.stop, [](const std::string& stop) { return stop.empty(); });
    std::sort(options.tool_names.begin(), options.tool_names.end());
    spells_dsml = !options.parse_tool_calls && options.start != OutputStart::kCalls;
    switch (options.start) {
      case OutputStart::kThinkLead:
        Enter(Stage::kThink, /*at_lead=*/true);
        break;
      case OutputStart::kThink:
        Enter(Stage::kThink);
        break;
      case OutputStart::kContentLead:
        EnterAnswer();
        break;
      case OutputStart::kContent:
        // The prompt may have begun the JSON value: looking for its beginning would lose the rest of it.
        Enter(options.json_object ? Stage::kJson : Stage::kText);
        break;
      case OutputStart::kCalls:
        Enter(Stage::kCalls);
        break;
    }
  }

  void Begin(std::vector<OutputEvent>* to) {
    events = to;
    first_new = to->size();
  }

  void Enter(Stage next, bool at_lead = false) {
    stage = next;
    lead = at_lead;
    collected.clear();
    if (stage == Stage::kDone) return;
    auto& table = tables[static_cast<size_t>(stage)];
    if (!table.has_value()) table.emplace(RowsOf(stage, options));
    matcher = MarkerMatcher(table->set());
  }

  void EnterAnswer() { Enter(options.json_object ? Stage::kJsonSeek : Stage::kText, /*at_lead=*/!options.json_object); }

  void Take(std::string_view output) {
    for (const char c : output) {
      if (spells_dsml && c == kDsmlMark.front()) {
        for (const char spelt : special_token::kDsml) TakeByte(spelt);
      } else {
        TakeByte(c);
      }
    }
  }

  void TakeByte(char c) {
    if (stage == Stage::kDone) return;
    pending.push_back(c);
    const int marker = matcher.Step(c);
    if (marker != MarkerMatcher::kNone) {
      const StageTable::Row& row = tables[static_cast<size_t>(stage)]->row(marker);
      Release(matcher.CompletedLength(marker));
      pending.clear();
      released = 0;
      Act(row);
    } else if (lead && c == '\n') {
      pending.clear();
      Enter(stage, /*at_lead=*/true);
    } else {
      lead = false;
    }
  }

  // Gives all that is pending but its last `held` bytes the stage's default treatment.
  void Release(size_t held) {
    const std::string_view text = std::string_view(pending).substr(released, pending.size() - released - held);
    released += text.size();
    if (std::none_of(text.begin(), text.end(), IsMark)) {
      Default(text);
    } else {
      std::string unmarked(text);
      std::erase_if(unmarked, IsMark);
      Default(unmarked);
    }
    // Not at every call: what is held would be moved each time.
    if (released * 2 >= pending.size()) {
      pending.erase(0, released);
      released = 0;
    }
  }

  void Default(std::string_view text) {
    if (text.empty()) return;
    switch (stage) {
      case Stage::kThink:
        Append(OutputEvent::Kind::kReasoning, text);
        break;
      case Stage::kText:
      case Stage::kJson:
        Append(OutputEvent::Kind::kText, text);
        break;
      case Stage::kName:
      case Stage::kKey:
      case Stage::kValue:
        collected += text;
        break;
      case Stage::kString: {
        std::string json;
        arguments.StringPiece(text, &json);
        AppendArguments(json);
        break;
      }
      case Stage::kJsonSeek:
      case Stage::kJsonEnd:
      case Stage::kCalls:
      case Stage::kArguments:
      case Stage::kType:
      case Stage::kDone:
        break;
    }
  }

  void Act(const StageTable::Row& row) {
    std::string json;
    switch (row.action) {
      case Action::kStop:
        stop_sequence = row.marker.text;
        stopped = true;
        Enter(Stage::kDone);
        break;
      case Action::kEndThink:
        EnterAnswer();
        break;
      case Action::kStrayEndThink:
        Enter(Stage::kText);
        break;
      case Action::kOpenCalls:
        Enter(Stage::kCalls);
        break;
      case Action::kOpenFence:
        Enter(Stage::kJson);
        break;
      case Action::kOpenJson:
        Enter(Stage::kJson);
        Append(OutputEvent::Kind::kText, row.marker.text);
        break;
      case Action::kCloseFence:
        Enter(Stage::kJsonEnd);
        break;
      case Action::kCloseCalls:
        Enter(Stage::kDone);
        break;
      case Action::kOpenInvoke:
        Enter(Stage::kName);
        break;
      case Action::kCloseName:
        BeginCall();
        Enter(Stage::kArguments);
        break;
      case Action::kOpenParameter:
        Enter(Stage::kKey);
        break;
      case Action::kCloseInvoke:
        EndCall();
        Enter(AllCallsMade() ? Stage::kDone : Stage::kCalls);
        break;
      case Action::kNextInvoke:
        EndCall();
        Enter(AllCallsMade() ? Stage::kDone : Stage::kName);
        break;
      case Action::kCloseKey:
        key = std::move(collected);
        Enter(Stage::kType);
        break;
      case Action::kOpenString:
        arguments.BeginString(key, &json);
        Enter(Stage::kString);
        break;
      case Action::kOpenValue:
        arguments.BeginValue(key, &json);
        Enter(Stage::kValue);
        break;
      case Action::kNoType:
        Enter(Stage::kArguments);
        break;
      case Action::kCloseString:
        arguments.EndString(&json);
        Enter(Stage::kArguments);
        break;
      case Action::kCloseValue:
        arguments.EndValue(collected, &json);
        Enter(Stage::kArguments);
        break;
    }
    AppendArguments(json);
  }

  bool AllCallsMade() const { return options.max_calls > 0 && calls >= options.max_calls; }

  bool MayBeCalled(const std::string& name) const {
    if (name.empty() || AllCallsMade()) return false;
    return options.tool_names.empty() || std::binary_search(options.tool_names.begin(), options.tool_names.end(), name);
  }

  void BeginCall() {
    arguments = CallArguments();
    reports_call = MayBeCalled(collected);
    if (!reports_call) return;
    ++calls;
    Append(OutputEvent::Kind::kCallBegin, collected);
  }

  void EndCall() {
    std::string json;
    arguments.Close(&json);
    AppendArguments(json);
    if (reports_call) Append(OutputEvent::Kind::kCallEnd, "");
  }

  void AppendArguments(std::string_view json) {
    if (reports_call && !json.empty()) Append(OutputEvent::Kind::kCallArguments, json);
  }

  // Continues the last event when it is of the same kind and of the same call of Feed. Two calls of the model always
  // have an event of another kind between them.
  void Append(OutputEvent::Kind kind, std::string_view text) {
    if (events->size() > first_new && events->back().kind == kind) {
      events->back().text += text;
      return;
    }
    const bool of_call = kind != OutputEvent::Kind::kReasoning && kind != OutputEvent::Kind::kText;
    events->push_back({kind, std::string(text), of_call ? calls - 1 : 0});
  }

  void Finish(bool complete) {
    if (stage == Stage::kDone) return;
    Release(0);
    std::string json;
    if (stage == Stage::kValue && !complete) arguments.CutValue(collected, &json);
    if (stage == Stage::kValue && complete) arguments.EndValue(collected, &json);
    if (stage == Stage::kString && complete) arguments.EndString(&json);
    AppendArguments(json);
    const bool in_call = stage == Stage::kArguments || stage == Stage::kKey || stage == Stage::kType ||
                         stage == Stage::kString || stage == Stage::kValue;
    if (in_call && complete) EndCall();
    Enter(Stage::kDone);
  }

  OutputParserOptions options;  // stops that are not empty; tool names sorted
  bool spells_dsml = false;     // no stage knows the DSML mark: it is text

  Stage stage = Stage::kDone;
  bool lead = false;  // nothing but newlines has come in this stage, and they are dropped
  std::array<std::optional<StageTable>, kStages> tables;  // made when first entered
  MarkerMatcher matcher{nullptr};
  std::string pending;  // behind the first `released` bytes: what has had no treatment yet
  size_t released = 0;
  std::string collected;  // of a name, a key, or a value that is not a string

  std::string key;
  CallArguments arguments;
  bool reports_call = false;  // the call that is open is not dropped
  int calls = 0;
  std::string stop_sequence;
  bool stopped = false;

  std::vector<OutputEvent>* events = nullptr;  // of the call of Feed or Finish in progress
  size_t first_new = 0;
};

OutputParser::OutputParser(OutputParserOptions options) : state_(std::make_unique<State>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::Feed(std::string_view output, std::vector<OutputEvent>* events) {
  state_->Begin(events);
  state_->Take(output);
  if (!done()) state_->Release(state_->matcher.held());
}

void OutputParser::Finish(bool complete, std::vector<OutputEvent>* events) {
  state_->Begin(events);
  state_->Finish(complete);
}

bool OutputParser::done() const { return state_->stage == Stage::kDone; }
bool OutputParser::stopped() const { return state_->stopped; }
const std::string& OutputParser::stop_sequence() const { return state_->stop_sequence; }
int OutputParser::calls() const { return state_->calls; }
bool OutputParser::in_reasoning() const { return state_->stage == Stage::kThink; }
bool OutputParser::in_text() const {
  const Stage stage = state_->stage;
  return stage == Stage::kText || stage == Stage::kJsonSeek || stage == Stage::kJson || stage == Stage::kJsonEnd;
}

}  // namespace deepinfer
