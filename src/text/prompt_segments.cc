#include "text/prompt_segments.h"

#include <optional>
#include <span>

#include "text/tokenizer.h"

namespace deepinfer {
namespace {

// Splits `text` at the spellings in `marks`, of which none is a prefix of another.
void AppendSplit(std::string_view text, std::span<const std::string_view> marks, PromptBuilder* builder) {
  size_t text_start = 0;
  size_t at = 0;
  while ((at = text.find_first_of("<\xEF", at)) != std::string_view::npos) {  // the first byte of every mark
    size_t length = 0;
    for (const std::string_view mark : marks) {
      if (text.substr(at).starts_with(mark)) length = mark.size();
    }
    if (length == 0) {
      ++at;
      continue;
    }
    builder->Text(text.substr(text_start, at - text_start));
    builder->Special(text.substr(at, length));
    at += length;
    text_start = at;
  }
  builder->Text(text.substr(text_start));
}

}  // namespace

std::string Prompt::Text() const {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

void PromptBuilder::Special(std::string_view token) { prompt_->segments.push_back({true, std::string(token)}); }

void PromptBuilder::Text(std::string_view text) {
  if (text.empty()) return;
  if (!prompt_->segments.empty() && !prompt_->segments.back().special) {
    prompt_->segments.back().text += text;
  } else {
    prompt_->segments.push_back({false, std::string(text)});
  }
}

void PromptBuilder::Template(std::string_view text) {
  static constexpr std::string_view kMarks[] = {special_token::kDsml, special_token::kThink, special_token::kEndThink};
  AppendSplit(text, kMarks, this);
}

void PromptBuilder::AssistantText(std::string_view text) { AppendSplit(text, special_token::kGrounding, this); }

void PromptBuilder::Image(const ImageSource& image) {
  Special(special_token::kImage);
  prompt_->images.push_back(image);
}

Result<std::vector<int32_t>> PromptIds(const Prompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const PromptSegment& segment : prompt.segments) {
    if (!segment.special) {
      DEEPINFER_RETURN_IF_ERROR(tokenizer.Encode(segment.text, &ids));
      continue;
    }
    const std::optional<int32_t> id = tokenizer.IdOfAddedToken(segment.text);
    if (!id.has_value()) {
      return Status::NotFound("tokenizer: the prompt needs the special token " + segment.text +
                              ", which this tokenizer does not have; use the tokenizer.json of a DeepSeek-V4.1 model");
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace deepinfer
