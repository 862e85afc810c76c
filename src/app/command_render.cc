// render: a chat-completions request to the prompt that the model sees.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "api/chat_request.h"
#include "app/command.h"
#include "app/find_model.h"
#include "app/flags.h"
#include "app/terminal.h"
#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

class RenderCommand : public Command {
 public:
  std::string_view name() const override { return "render"; }
  std::string_view summary() const override { return "Show the prompt of a chat-completions request"; }

  void AddFlags(CLI::App& flags) override {
    flags.add_option("file", file_, "The request as JSON; without it standard input is read")->type_name("FILE");
    flags.add_flag("--ids", ids_, "Print token ids instead of text");
    AddModelFlag(flags, &model_);
  }

  Status Check() override {
    if (!file_.empty()) return Status::Ok();
    if (isatty(STDIN_FILENO)) return Status::InvalidArgument("no request: give a file or a pipe");
    file_ = "-";
    return Status::Ok();
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string body, ReadInput(file_));
    DEEPINFER_ASSIGN_OR_RETURN(const ConversationRequest request, ParseChatRequest(body));
    DEEPINFER_ASSIGN_OR_RETURN(const Prompt prompt, RenderPrompt(request.conversation));
    std::string output = prompt.Text();
    if (ids_) {
      DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(model_));
      DEEPINFER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, PromptIds(prompt, *tokenizer));
      output = fmt::format("{}", fmt::join(ids, " "));
    }
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, output + "\n"));
    return kExitOk;
  }

 private:
  std::string model_;
  std::string file_;
  bool ids_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRenderCommand() { return std::make_unique<RenderCommand>(); }

}  // namespace deepinfer
