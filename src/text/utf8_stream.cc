#include "text/utf8_stream.h"

#include "text/utf8.h"

namespace deepinfer {

std::string Utf8Stream::Feed(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  std::string out;
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Unit unit = FirstUtf8Unit(bytes);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) {
      held_ = bytes;
      break;
    }
    out.append(kReplacementCharacter);
    bytes.remove_prefix(unit.length);
  }
  return out;
}

std::string Utf8Stream::Flush() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace deepinfer
