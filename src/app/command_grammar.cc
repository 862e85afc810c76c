// grammar check: whether a grammar compiles, and which texts belong to it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "app/command.h"
#include "app/flags.h"
#include "app/grammar_flags.h"
#include "app/terminal.h"
#include "grammar/front_ends.h"
#include "grammar/recogniser.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

class GrammarCheckCommand : public Command {
 public:
  std::string_view name() const override { return "grammar check"; }
  std::string_view summary() const override { return "Check a JSON Schema, regular expression or EBNF grammar"; }

  void AddFlags(CLI::App& flags) override {
    grammar_.AddTo(flags, "Check");
    AddRepeatedFlag(
        flags, "--string", [this](const std::string& text) { samples_.push_back(text); },
        "A text to try; may be given again");
    AddRepeatedFlag(
        flags, "--string-file", [this](const std::string& path) { sample_files_.push_back(path); },
        "A file whose bytes are a text to try; may be given again");
    AddChoiceFlag(flags, "--key-order", &key_order_, {"declared", "any"},
                  "Order of the keys of objects: as the schema declares them, or any for objects with few keys");
    AddIntegerFlag(flags, "--max-whitespace", &max_whitespace_, 0, 1000,
                   "White space allowed between two parts of a JSON text");
  }

  Status Check() override { return grammar_.Check(true); }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const StructuredOutput source, grammar_.Read());
    DEEPINFER_ASSIGN_OR_RETURN(const Grammar grammar, Compile(source));
    for (const std::string& path : sample_files_) {
      DEEPINFER_ASSIGN_OR_RETURN(std::string sample, ReadInput(path));
      samples_.push_back(std::move(sample));
    }
    std::string lines = fmt::format("ok: {} rules, {} terminals, {} states\n", grammar.rules.size(),
                                    grammar.terminals.size(), grammar.states.size());
    bool all = true;
    for (const std::string& sample : samples_) {
      DEEPINFER_ASSIGN_OR_RETURN(const std::string verdict, Try(grammar, sample));
      all = all && verdict == "accepted";
      lines += fmt::format("{}: {}\n", verdict, QuotedExcerpt(sample));
    }
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, lines));
    return all ? kExitOk : kExitError;
  }

 private:
  Result<Grammar> Compile(const StructuredOutput& source) const {
    JsonSchemaOptions options;
    options.max_whitespace = max_whitespace_;
    if (key_order_ == "any") options.key_order = JsonSchemaOptions::KeyOrder::kAny;
    return CompileStructuredOutput(source, options);
  }

  static Result<std::string> Try(const Grammar& grammar, std::string_view sample) {
    Recogniser recogniser(&grammar, {});
    int32_t state = recogniser.start();
    for (size_t i = 0; i < sample.size(); ++i) {
      state = recogniser.Step(state, static_cast<uint8_t>(sample[i]));
      if (recogniser.exhausted()) return Status::ResourceExhausted("the grammar needs too much memory for this text");
      if (state == Recogniser::kDead) return fmt::format("rejected at byte {}", i + 1);
    }
    return std::string(recogniser.Accepts(state) ? "accepted" : "rejected at its end");
  }

  GrammarFlags grammar_;
  std::vector<std::string> samples_;
  std::vector<std::string> sample_files_;
  std::string key_order_ = "declared";
  int max_whitespace_ = 20;
};

}  // namespace

std::unique_ptr<Command> MakeGrammarCheckCommand() { return std::make_unique<GrammarCheckCommand>(); }

}  // namespace deepinfer
