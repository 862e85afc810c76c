// generate: continues a raw prompt, without a chat template.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/memory_plan.h"
#include "app/model_session.h"
#include "app/terminal.h"
#include "engine/generator.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// A token as OpenAI shows it: text, which may be half a character, and its bytes.
Json TokenJson(const Tokenizer& tokenizer, const TokenLogprob& token) {
  const std::string_view bytes = tokenizer.TokenBytes(token.id);
  Json values = Json::array();
  for (char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"id", token.id}, {"token", RepairUtf8(bytes)}, {"logprob", token.logprob}, {"bytes", values}};
}

Json LogprobsJson(const Tokenizer& tokenizer, const Generation& generation) {
  Json list = Json::array();
  for (const PositionLogprobs& position : generation.logprobs) {
    Json entry = TokenJson(tokenizer, position.chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& token : position.top) entry["top_logprobs"].push_back(TokenJson(tokenizer, token));
    list.push_back(std::move(entry));
  }
  return list;
}

Json GenerationJson(const Tokenizer& tokenizer, const GenerationRequest& request, const Generation& generation) {
  const int64_t completion_tokens = static_cast<int64_t>(generation.ids.size());
  Json object = {{"ids", generation.ids}, {"text", generation.content}};
  object["logprobs"] = LogprobsJson(tokenizer, generation);
  object["finish_reason"] = FinishReasonName(generation.finish_reason);
  if (generation.finish_reason == FinishReason::kStopSequence) object["stop_sequence"] = generation.stop_sequence;
  object["seed"] = request.sampling.seed;
  object["usage"] = {{"prompt_tokens", generation.prompt_tokens},
                     {"completion_tokens", completion_tokens},
                     {"total_tokens", generation.prompt_tokens + completion_tokens}};
  return object;
}

class GenerateCommand : public Command {
 public:
  GenerateCommand() { sampling_.params.max_tokens = 256; }

  std::string_view name() const override { return "generate"; }
  std::string_view summary() const override { return "Continue a raw prompt, or token ids"; }

  void AddFlags(CLI::App& flags) override {
    flags.add_option("prompt", words_, "The text to continue; without it (or any --prompt...) standard input is read")
        ->type_name("TEXT");
    prompt_file_flag_ = flags
                            .add_option("--prompt-file", prompt_file_,
                                        "Read the text from a file, - for standard input; one line end at its end is "
                                        "not part of it")
                            ->type_name("FILE");
    prompt_ids_flag_ =
        flags.add_option("--prompt-ids", prompt_ids_text_, "Token ids such as \"0,128,77\", taken as they are")
            ->type_name("IDS");
    flags.add_flag("--no-bos", no_bos_, "Do not put the begin-of-sentence token before a text");
    flags.add_flag("--special", special_, "Control tokens spelt out in the text, such as <think>, become tokens");
    sampling_.AddTo(flags);
    flags.add_flag("--ignore-eos", sampling_.params.ignore_eos, "Go on after the end-of-sentence token");
    AddIntegerFlag(flags, "--logprobs", &logprobs_, 0, SamplingParams::kMaxLogprobs,
                   "With --json: beside each token's log probability those of the N most likely ones (default 0)");
    flags.add_flag("--json", json_, "Print one JSON object when done");
    model_.AddTo(flags);
  }

  Status Check() override {
    // The object always has the log probability of each token; only --logprobs N adds alternatives.
    sampling_.params.logprobs = json_ ? static_cast<int>(std::max<int64_t>(logprobs_, 0)) : -1;
    DEEPINFER_RETURN_IF_ERROR(sampling_.Check());
    const bool has_ids = prompt_ids_flag_->count() > 0;
    if (!words_.empty() + (prompt_file_flag_->count() > 0) + has_ids > 1) {
      return Status::InvalidArgument("the prompt is given more than once: give a text, --prompt-file or --prompt-ids");
    }
    if (has_ids) {
      DEEPINFER_ASSIGN_OR_RETURN(prompt_ids_, ParseIds("--prompt-ids", prompt_ids_text_));
    } else if (words_.empty() && prompt_file_flag_->count() == 0) {
      if (isatty(STDIN_FILENO)) {
        return Status::InvalidArgument("no prompt: give a text, --prompt-file FILE, --prompt-ids IDS or a pipe");
      }
      prompt_file_ = "-";
    }
    if (logprobs_ >= 0 && !json_) return Status::InvalidArgument("--logprobs: needs --json");
    return Status::Ok();
  }

  Result<int> Run() override {
    std::string text = fmt::format("{}", fmt::join(words_, " "));
    if (!prompt_file_.empty()) {
      DEEPINFER_ASSIGN_OR_RETURN(text, ReadInput(prompt_file_));
      if (text.ends_with('\n')) text.pop_back();
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session, ModelSession::Open(model_));
    DEEPINFER_RETURN_IF_ERROR(CheckMemory(*session));
    GenerationRequest request;
    request.sampling = sampling_.params;
    request.cancel = &Interrupt::flag();
    request.prompt = prompt_ids_;
    if (prompt_ids_.empty()) {
      DEEPINFER_RETURN_IF_ERROR(special_ ? session->tokenizer().EncodeWithSpecial(text, &request.prompt)
                                         : session->tokenizer().Encode(text, &request.prompt));
      const int32_t begin = static_cast<int32_t>(session->config().bos_token_id);
      const bool has_begin = !request.prompt.empty() && request.prompt[0] == begin;
      if (!no_bos_ && !has_begin) request.prompt.insert(request.prompt.begin(), begin);
    }

    Generator generator(session->model(), session->tokenizer());
    const AnswerStyle style = AnswerStyle::Detect(ColorMode::kAuto);
    Status written;
    const auto print = [&](OutputPart, std::string_view piece) {
      if (written.ok()) written = WriteAll(1, style.terminal ? WithoutControls(piece) : piece);
      if (!written.ok()) Interrupt::flag() = true;
    };
    const Interrupt interrupt;
    DEEPINFER_ASSIGN_OR_RETURN(const Generation generation,
                               json_ ? generator.Run(request) : generator.Run(request, print));
    DEEPINFER_RETURN_IF_ERROR(written);
    if (json_) {
      DEEPINFER_RETURN_IF_ERROR(WriteAll(1, GenerationJson(session->tokenizer(), request, generation).dump() + "\n"));
    } else if (!generation.content.ends_with('\n')) {
      DEEPINFER_RETURN_IF_ERROR(WriteAll(1, "\n"));
    }
    return generation.finish_reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
  }

 private:
  ModelFlags model_;
  SamplingFlags sampling_;
  std::vector<std::string> words_;
  std::string prompt_file_;
  std::string prompt_ids_text_;
  std::vector<int32_t> prompt_ids_;
  CLI::Option* prompt_file_flag_ = nullptr;
  CLI::Option* prompt_ids_flag_ = nullptr;
  int64_t logprobs_ = -1;
  bool no_bos_ = false;
  bool special_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace deepinfer
