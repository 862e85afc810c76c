#include "app/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace deepinfer {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

Status WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Status::Io(std::string(descriptor == 1 ? "standard output: " : "standard error: ") + std::strerror(errno));
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return Status::Ok();
}

std::string WithoutControls(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) continue;
    // U+0080..U+009F, the second set of controls, are C2 80 .. C2 9F.
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;
      continue;
    }
    clean += text[i];
  }
  return clean;
}

AnswerStyle AnswerStyle::Detect(ColorMode mode) {
  AnswerStyle style;
  style.terminal = mode == ColorMode::kAlways || isatty(STDOUT_FILENO) == 1;
  style.error_terminal = isatty(STDERR_FILENO) == 1;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool plain = term == nullptr || std::strcmp(term, "dumb") == 0 || (no_color != nullptr && *no_color != '\0');
  style.escapes = mode == ColorMode::kAlways || (mode == ColorMode::kAuto && style.terminal && !plain);
  return style;
}

void AnswerPrinter::Write(std::string_view text) {
  const bool to_error = in_reasoning_ && !style_.terminal;
  const bool raw = !(to_error ? style_.error_terminal : style_.terminal);
  const Status status = WriteAll(to_error ? 2 : 1, raw ? std::string(text) : WithoutControls(text));
  // Reasoning on a closed standard error is no reason to lose the answer.
  if (status_.ok() && !to_error) status_ = status;
}

void AnswerPrinter::CloseReasoning(std::string_view gap) {
  if (style_.terminal && style_.escapes) (void)WriteAll(1, kPlain);
  Write(style_.terminal ? gap : "\n");
  newlines_.clear();
  in_reasoning_ = false;
}

void AnswerPrinter::Add(OutputPart part, std::string_view text) {
  const bool reasoning = part == OutputPart::kReasoning;
  if (!reasoning && in_reasoning_) CloseReasoning("\n\n");
  bool& any = reasoning ? any_reasoning_ : any_content_;
  if (!any) text.remove_prefix(std::min(text.size(), text.find_first_not_of('\n')));
  if (text.empty()) return;
  if (reasoning && !any) {
    in_reasoning_ = true;
    if (style_.escapes && style_.terminal) (void)WriteAll(1, kDim);
  }
  any = true;
  const size_t last = text.find_last_not_of('\n');
  if (last == std::string_view::npos) {
    newlines_ += text;
    return;
  }
  Write(newlines_ + std::string(text.substr(0, last + 1)));
  newlines_ = text.substr(last + 1);
}

Status AnswerPrinter::Finish() {
  if (in_reasoning_) {
    CloseReasoning("\n");
  } else if (any_content_) {
    Write("\n");
  }
  return status_;
}

}  // namespace deepinfer
