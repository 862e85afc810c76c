// chat: a conversation on the terminal, or one question and its answer.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <CLI/CLI.hpp>

#include "app/command.h"
#include "app/engine_flags.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/line_editor.h"
#include "app/read_answers.h"
#include "app/suggest.h"
#include "app/terminal.h"
#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

constexpr std::string_view kHelp =
    "/clear  start a new conversation\n"
    "/exit   leave (also Ctrl-D)\n"
    "/help   this list\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n";

class ChatCommand : public Command {
 public:
  ChatCommand() {
    sampling_.params.temperature = 0.6;
    engine_flags_.options.max_num_seqs = 1;
  }

  std::string_view name() const override { return "chat"; }
  std::string_view summary() const override { return "Talk with the model, or ask it one thing"; }

  void AddFlags(CLI::App& flags) override {
    flags
        .add_option("message", words_, "Ask this and leave; without it a pipe is read, a terminal opens a conversation")
        ->type_name("TEXT");
    flags.add_option("--system", system_, "Instructions that come before the conversation")->type_name("TEXT");
    think_flag_ = AddChoiceFlag(flags, "--think", &think_, {"on", "off"}, "Let the model reason first (default off)");
    const auto parse_effort = [this](const std::string& text) {
      const std::optional<int> by_name = EffortByName(text);
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, effort_);
      const bool is_number = error == std::errc() && stop == end && effort_ >= kMinEffort && effort_ <= kMaxEffort;
      if (by_name.has_value()) {
        effort_ = *by_name;
      } else if (!is_number) {
        throw CLI::ValidationError("--effort",
                                   fmt::format("expected low, medium, high, max or 1 to 100, found '{}'", text));
      }
    };
    flags
        .add_option_function<std::string>(
            "--effort", parse_effort,
            "How thoroughly to reason: low, medium, high, max or 1 to 100 (default high); "
            "implies --think on")
        ->type_name("LEVEL");
    sampling_.AddTo(flags);
    AddChoiceFlag(flags, "--color", &color_, {"auto", "always", "never"},
                  "Dim the reasoning by escape sequences (default auto: on terminals)");
    engine_flags_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(sampling_.Check());
    DEEPINFER_RETURN_IF_ERROR(engine_flags_.Check());
    if (effort_ != 0 && think_flag_->count() > 0 && think_ == "off") {
      return Status::InvalidArgument("--effort: needs --think on, found --think off");
    }
    if (effort_ != 0) think_ = "on";
    interactive_ = words_.empty() && isatty(STDIN_FILENO) == 1;
    return Status::Ok();
  }

  Result<int> Run() override {
    std::string message = fmt::format("{}", fmt::join(words_, " "));
    if (words_.empty() && !interactive_) {
      DEEPINFER_ASSIGN_OR_RETURN(message, ReadStandardInput());
      while (message.ends_with('\n') || message.ends_with('\r')) message.pop_back();
    }
    if (!interactive_ && message.empty()) {
      return Status::InvalidArgument("the message is empty: give a text, a pipe with one, or a terminal");
    }
    DEEPINFER_ASSIGN_OR_RETURN(engine_, engine_flags_.Open());
    style_ = AnswerStyle::Detect(color_ == "always"  ? ColorMode::kAlways
                                 : color_ == "never" ? ColorMode::kNever
                                                     : ColorMode::kAuto);
    Clear();
    const Interrupt interrupt;
    if (interactive_) {
      DEEPINFER_RETURN_IF_ERROR(PrintWarning(*engine_));
      return Converse();
    }
    DEEPINFER_ASSIGN_OR_RETURN(const FinishReason reason, Answer(message));
    DEEPINFER_RETURN_IF_ERROR(PrintWarning(*engine_));
    return reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
  }

 private:
  void Clear() { conversation_ = NewChat(system_, think_ == "on", effort_ == 0 ? kDefaultEffort : effort_); }

  /// One turn. On an error the conversation is as before.
  Result<FinishReason> Answer(const std::string& message) {
    const Conversation before = conversation_;
    AppendUserTurn(message, &conversation_);
    Result<FinishReason> reason = AnswerLastTurn();
    if (!reason.ok()) conversation_ = before;
    return reason;
  }

  Result<FinishReason> AnswerLastTurn() {
    DEEPINFER_ASSIGN_OR_RETURN(const Prompt prompt, RenderPrompt(conversation_));
    GenerationRequest request;
    const Tokenizer& tokenizer = *engine_->files().tokenizer;
    DEEPINFER_ASSIGN_OR_RETURN(request.prompt, PromptIds(prompt, tokenizer));
    request.sampling = sampling_.params;
    request.end_of_reasoning = tokenizer.IdOfAddedToken(special_token::kEndThink);
    request.starts_in_reasoning = prompt.start == OutputStart::kThinkLead;
    AnswerPrinter printer(style_);
    const auto print = [&](const GenerationDelta& delta) {
      if (!delta.reasoning.empty()) printer.Add(OutputPart::kReasoning, delta.reasoning);
      if (!delta.content.empty()) printer.Add(OutputPart::kContent, delta.content);
      return printer.status();
    };
    DEEPINFER_ASSIGN_OR_RETURN(const Generation generation, ReadAnswers(*engine_, std::move(request), print));
    DEEPINFER_RETURN_IF_ERROR(printer.Finish());
    const Choice& answer = generation.choices[0];
    AppendAssistantTurn(answer.content, answer.reasoning, &conversation_);
    return answer.finish_reason;
  }

  Result<int> Converse() {
    DEEPINFER_RETURN_IF_ERROR(
        WriteAll(2, fmt::format("{}: {} tokens of context, {} threads. /help lists commands, Ctrl-D leaves.\n",
                                WithoutControls(engine_->files().checkpoint->directory().filename().string()),
                                engine_->options().max_model_len, engine_->options().threads)));
    LineEditor editor(DefaultHistoryFile());
    while (true) {
      std::string message;
      switch (ReadMessage(&editor, &message)) {
        case LineEditor::Event::kEndOfInput:
          return kExitOk;
        case LineEditor::Event::kInterrupted:
          continue;
        case LineEditor::Event::kLine:
          break;
      }
      if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
      if (message.starts_with('/')) {
        if (message == "/exit" || message == "/quit") return kExitOk;
        DEEPINFER_RETURN_IF_ERROR(WriteAll(2, RunSlashCommand(message)));
        continue;
      }
      const Result<FinishReason> reason = Answer(message);
      if (!reason.ok()) {
        if (reason.status().code() == StatusCode::kIo) return reason.status();
        DEEPINFER_RETURN_IF_ERROR(
            WriteAll(2, "deepinfer: " + WithoutControls(reason.status().message()) + " (/clear starts anew)\n"));
      } else if (*reason == FinishReason::kLength) {
        DEEPINFER_RETURN_IF_ERROR(WriteAll(2, "deepinfer: the answer was cut: --max-tokens or --ctx is reached\n"));
      }
    }
  }

  /// One message: lines joined while they end in a backslash.
  static LineEditor::Event ReadMessage(LineEditor* editor, std::string* message) {
    std::string line;
    LineEditor::Event event = editor->ReadLine(">>> ", &line);
    while (event == LineEditor::Event::kLine) {
      if (line.find_first_not_of(" \t") != std::string::npos) editor->Remember(line);
      *message += line;
      if (!line.ends_with('\\')) break;
      message->back() = '\n';
      event = editor->ReadLine("... ", &line);
    }
    return event;
  }

  /// What to show on standard error.
  std::string RunSlashCommand(const std::string& line) {
    const std::string word = line.substr(0, line.find_last_not_of(" \t") + 1);
    if (word == "/help") return std::string(kHelp);
    if (word == "/clear") {
      Clear();
      return "A new conversation.\n";
    }
    return fmt::format("unknown command '{}'{} (a blank in front sends it as a message)\n", WithoutControls(word),
                       DidYouMean(word, {"/clear", "/exit", "/help", "/quit"}));
  }

  EngineFlags engine_flags_;
  SamplingFlags sampling_;
  std::vector<std::string> words_;
  std::string system_;
  std::string think_ = "off";
  CLI::Option* think_flag_ = nullptr;
  int effort_ = 0;  // 0: not given
  std::string color_ = "auto";
  bool interactive_ = false;

  std::unique_ptr<EngineCore> engine_;
  AnswerStyle style_;
  Conversation conversation_;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace deepinfer
