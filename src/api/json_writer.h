// JsonWriter: compact JSON, appended piece by piece.
//
// The caller writes the punctuation, so that the fixed parts of an event cost one append each; the writer escapes
// texts and spells numbers. Thread-safety: one thread at a time. Ownership: the output is the caller's. Errors: none.
#ifndef DEEPINFER_API_JSON_WRITER_H_
#define DEEPINFER_API_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  /// Text that is JSON already, or a part of it.
  JsonWriter& Raw(std::string_view json) {
    *out_ += json;
    return *this;
  }
  /// A string; `text` is UTF-8.
  JsonWriter& Text(std::string_view text);
  /// A string, or null when it is empty.
  JsonWriter& TextOrNull(std::string_view text) { return text.empty() ? Raw("null") : Text(text); }
  JsonWriter& Integer(int64_t value);
  /// The shortest digits that read back the same; null when JSON has no spelling for it.
  JsonWriter& Number(double value);

 private:
  std::string* out_;  // not owned
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_JSON_WRITER_H_
