#include "engine/output_writer.h"

namespace deepinfer {

OutputWriter::OutputWriter(const GenerationRequest& request, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      end_of_reasoning_(request.end_of_reasoning),
      in_reasoning_(request.starts_in_reasoning),
      include_stop_(request.sampling.include_stop_str_in_output),
      tokens_without_stops_(request.sampling.min_tokens - 1),
      stops_(request.sampling.stops) {}

bool OutputWriter::Add(int32_t token, std::string* reasoning, std::string* content) {
  const bool may_stop = --tokens_without_stops_ < 0;
  if (end_of_reasoning_ == token) {
    if (in_reasoning_) *reasoning += characters_.Flush();
    in_reasoning_ = false;
    return true;
  }
  if (tokenizer_.IsSpecial(token)) return true;
  const std::string_view bytes = tokenizer_.TokenBytes(token);
  if (in_reasoning_) {
    *reasoning += characters_.Feed(bytes);
    return true;
  }
  *content += characters_.Feed(may_stop ? stops_.Feed(bytes) : std::string(bytes));
  if (stops_.matched() == nullptr) return true;
  stop_sequence_ = *stops_.matched();
  if (include_stop_) *content += characters_.Feed(stop_sequence_);
  return false;
}

void OutputWriter::Finish(std::string* reasoning, std::string* content) {
  std::string* part = in_reasoning_ ? reasoning : content;
  *part += characters_.Feed(stops_.Flush());
  *part += characters_.Flush();
}

}  // namespace deepinfer
