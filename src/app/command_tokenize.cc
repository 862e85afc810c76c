// tokenize: text to token ids and back.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/find_model.h"
#include "app/flags.h"
#include "app/terminal.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

class TokenizeCommand : public Command {
 public:
  std::string_view name() const override { return "tokenize"; }
  std::string_view summary() const override { return "Turn text into token ids, or ids into text"; }

  void AddFlags(CLI::App& flags) override {
    flags.add_option("text", words_, "The text; without it standard input is read, every byte of it")
        ->type_name("TEXT");
    decode_flag_ = flags.add_option("--decode", ids_text_, "Print the text of these ids instead")->type_name("IDS");
    flags.add_flag("--special", special_, "Control tokens spelt out in the text, such as <think>, become tokens");
    flags.add_flag("--pieces", pieces_, "Print one token a line: its id, a tab, its text as a JSON string");
    flags.add_flag("--json", json_, "Print one JSON object: ids, pieces and their number");
    AddModelFlag(flags, &model_);
  }

  Status Check() override {
    if (decode_flag_->count() == 0) {
      read_input_ = words_.empty();
      if (read_input_ && isatty(STDIN_FILENO)) {
        return Status::InvalidArgument("no text: give one, a pipe, or --decode IDS");
      }
      return Status::Ok();
    }
    if (!words_.empty()) return Status::InvalidArgument("--decode: takes no text besides the ids");
    DEEPINFER_ASSIGN_OR_RETURN(ids_, ParseIds("--decode", ids_text_));
    return Status::Ok();
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(model_));
    if (decode_flag_->count() > 0) {
      for (int32_t id : ids_) {
        if (id >= tokenizer->vocab_size()) {
          return Status::InvalidArgument(
              fmt::format("--decode: expected ids of 0 to {}, found {}", tokenizer->vocab_size() - 1, id));
        }
      }
    } else {
      std::string text = fmt::format("{}", fmt::join(words_, " "));
      if (read_input_) {
        DEEPINFER_ASSIGN_OR_RETURN(text, ReadStandardInput());
      }
      DEEPINFER_RETURN_IF_ERROR(special_ ? tokenizer->EncodeWithSpecial(text, &ids_) : tokenizer->Encode(text, &ids_));
    }
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, Format(*tokenizer)));
    return kExitOk;
  }

 private:
  std::string Format(const Tokenizer& tokenizer) const {
    if (json_) {
      Json pieces = Json::array();
      for (int32_t id : ids_) pieces.push_back(RepairUtf8(tokenizer.TokenBytes(id)));
      return Json({{"count", ids_.size()}, {"ids", ids_}, {"pieces", pieces}, {"text", tokenizer.Decode(ids_, false)}})
                 .dump() +
             "\n";
    }
    if (pieces_) {
      std::string lines;
      for (int32_t id : ids_) lines += fmt::format("{}\t{}\n", id, Json(RepairUtf8(tokenizer.TokenBytes(id))).dump());
      return lines;
    }
    if (decode_flag_->count() > 0) return tokenizer.Decode(ids_, false) + "\n";
    return fmt::format("{}\n", fmt::join(ids_, " "));
  }

  std::string model_;
  std::vector<std::string> words_;
  std::string ids_text_;
  std::vector<int32_t> ids_;
  CLI::Option* decode_flag_ = nullptr;
  bool read_input_ = false;
  bool special_ = false;
  bool pieces_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }

}  // namespace deepinfer
