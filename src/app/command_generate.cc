// generate: continues a raw prompt, without a chat template.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/engine_flags.h"
#include "app/flags.h"
#include "app/grammar_flags.h"
#include "app/interrupt.h"
#include "app/read_answers.h"
#include "app/terminal.h"
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

Json PositionJson(const Tokenizer& tokenizer, const PositionLogprobs& position) {
  Json entry = TokenJson(tokenizer, position.chosen);
  entry["top_logprobs"] = Json::array();
  for (const TokenLogprob& token : position.top) entry["top_logprobs"].push_back(TokenJson(tokenizer, token));
  return entry;
}

Json LogprobsJson(const Tokenizer& tokenizer, const std::vector<PositionLogprobs>& positions) {
  Json list = Json::array();
  for (const PositionLogprobs& position : positions) list.push_back(PositionJson(tokenizer, position));
  return list;
}

Json ChoiceJson(const Tokenizer& tokenizer, const Choice& choice) {
  Json object = {{"ids", choice.ids}, {"text", choice.content}};
  object["logprobs"] = LogprobsJson(tokenizer, choice.logprobs);
  object["finish_reason"] = FinishReasonName(choice.finish_reason);
  if (choice.finish_reason == FinishReason::kStopSequence) object["stop_sequence"] = choice.stop_sequence;
  if (choice.stop_token_id >= 0) object["stop_token_id"] = choice.stop_token_id;
  return object;
}

/// One answer is told at the top, several in `choices`.
Json GenerationJson(const Tokenizer& tokenizer, const SamplingParams& sampling, bool as_choices,
                    const Generation& generation) {
  Json object = Json::object();
  if (as_choices) {
    object["choices"] = Json::array();
    for (size_t i = 0; i < generation.choices.size(); ++i) {
      Json choice = {{"index", i}, {"seed", SamplingParams::SeedOfChoice(sampling.seed, static_cast<int>(i))}};
      choice.update(ChoiceJson(tokenizer, generation.choices[i]));
      object["choices"].push_back(std::move(choice));
    }
  } else {
    object = ChoiceJson(tokenizer, generation.choices.front());
  }
  if (sampling.prompt_logprobs >= 0) {
    // Nothing stands before the first token.
    object["prompt_logprobs"] = LogprobsJson(tokenizer, generation.prompt_logprobs);
    object["prompt_logprobs"].insert(object["prompt_logprobs"].begin(), nullptr);
  }
  object["seed"] = sampling.seed;
  object["usage"] = {{"prompt_tokens", generation.prompt_tokens},
                     {"completion_tokens", generation.completion_tokens()},
                     {"total_tokens", generation.prompt_tokens + generation.completion_tokens()},
                     {"cached_tokens", generation.cached_tokens}};
  for (const CachedTokens& cached : generation.cached_tokens_by_tier)
    object["usage"]["cached_tokens_by_tier"][cached.tier] = cached.tokens;
  object["replay"] = ReplayModeName(generation.replay);
  object["drafts"] = {{"steps", generation.drafts.steps},
                      {"drafted", generation.drafts.drafted},
                      {"verified", generation.drafts.verified},
                      {"accepted", generation.drafts.accepted}};
  return object;
}

class GenerateCommand : public Command {
 public:
  GenerateCommand() {
    sampling_.params.max_tokens = 256;
    engine_.options.max_num_seqs = 1;
  }

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
    grammar_.AddTo(flags, "The answer belongs to");
    AddIntegerFlag(flags, "--logprobs", &logprobs_, 0, SamplingParams::kMaxLogprobs,
                   "With --json: beside each token's log probability those of the N most likely ones (default 0)");
    AddIntegerFlag(flags, "--prompt-logprobs", &sampling_.params.prompt_logprobs, 0, SamplingParams::kMaxLogprobs,
                   "With --json: log probabilities of the prompt's tokens, and of the N most likely ones");
    choices_flag_ = AddIntegerFlag(flags, "-n", &sampling_.params.n, 1, SamplingParams::kMaxChoices,
                                   "With --json: so many answers, as \"choices\"");
    flags.add_flag("--json", json_, "Print one JSON object when done");
    engine_.AddTo(flags);
  }

  Status Check() override {
    // The object always has the log probability of each token; only --logprobs N adds alternatives.
    sampling_.params.logprobs = json_ ? std::max(logprobs_, 0) : -1;
    DEEPINFER_RETURN_IF_ERROR(sampling_.Check());
    DEEPINFER_RETURN_IF_ERROR(grammar_.Check(false));
    if (!engine_.has_max_num_seqs()) engine_.options.max_num_seqs = sampling_.params.n;
    DEEPINFER_RETURN_IF_ERROR(engine_.Check());
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
    if (!json_ && logprobs_ >= 0) return Status::InvalidArgument("--logprobs: needs --json");
    if (!json_ && sampling_.params.prompt_logprobs >= 0) {
      return Status::InvalidArgument("--prompt-logprobs: needs --json");
    }
    if (!json_ && choices_flag_->count() > 0) return Status::InvalidArgument("-n: needs --json");
    return Status::Ok();
  }

  Result<int> Run() override {
    std::string text = fmt::format("{}", fmt::join(words_, " "));
    if (!prompt_file_.empty()) {
      DEEPINFER_ASSIGN_OR_RETURN(text, ReadInput(prompt_file_));
      if (text.ends_with('\n')) text.pop_back();
    }
    DEEPINFER_ASSIGN_OR_RETURN(sampling_.params.structured_output, grammar_.Read());
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<EngineCore> engine, engine_.Open());
    const Tokenizer& tokenizer = *engine->files().tokenizer;
    GenerationRequest request;
    request.sampling = sampling_.params;
    request.prompt = prompt_ids_;
    if (prompt_ids_.empty()) {
      DEEPINFER_RETURN_IF_ERROR(engine->Tokenize(text, special_, &request.prompt));
      const int32_t begin = engine->bos_token_id();
      const bool has_begin = !request.prompt.empty() && request.prompt[0] == begin;
      if (!no_bos_ && !has_begin) request.prompt.insert(request.prompt.begin(), begin);
    }

    const AnswerStyle style = AnswerStyle::Detect(ColorMode::kAuto);
    const auto print = [&](const GenerationDelta& delta) {
      if (json_) return Status::Ok();
      return WriteAll(1, style.terminal ? WithoutControls(delta.content) : delta.content);
    };
    const Interrupt interrupt;
    DEEPINFER_ASSIGN_OR_RETURN(const Generation generation, ReadAnswers(*engine, std::move(request), print));
    if (json_) {
      const Json object = GenerationJson(tokenizer, sampling_.params, choices_flag_->count() > 0, generation);
      DEEPINFER_RETURN_IF_ERROR(WriteAll(1, object.dump() + "\n"));
    } else if (!generation.choices[0].content.ends_with('\n')) {
      DEEPINFER_RETURN_IF_ERROR(WriteAll(1, "\n"));
    }
    // By now a tier behind the pool has shown whether it works.
    DEEPINFER_RETURN_IF_ERROR(PrintWarning(*engine));
    const bool cancelled = std::ranges::any_of(
        generation.choices, [](const Choice& choice) { return choice.finish_reason == FinishReason::kCancelled; });
    return cancelled ? kExitInterrupted : kExitOk;
  }

 private:
  EngineFlags engine_;
  SamplingFlags sampling_;
  GrammarFlags grammar_;
  std::vector<std::string> words_;
  std::string prompt_file_;
  std::string prompt_ids_text_;
  std::vector<int32_t> prompt_ids_;
  CLI::Option* prompt_file_flag_ = nullptr;
  CLI::Option* prompt_ids_flag_ = nullptr;
  CLI::Option* choices_flag_ = nullptr;
  int logprobs_ = -1;
  bool no_bos_ = false;
  bool special_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace deepinfer
