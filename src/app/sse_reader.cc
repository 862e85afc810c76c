#include "app/sse_reader.h"

#include <algorithm>

namespace deepinfer {

void SseReader::Feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      line_ += bytes;
      return;
    }
    std::string_view line = bytes.substr(0, end);
    if (!line_.empty()) {
      line_ += line;
      line = line_;
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    ReadLine(line, on_event);
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::ReadLine(std::string_view line, const OnEvent& on_event) {
  if (line.empty()) {
    if (has_data_) on_event(name_, data_);
    name_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") name_ = value;
  if (field != "data") return;
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace deepinfer
