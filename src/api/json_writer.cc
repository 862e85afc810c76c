#include "api/json_writer.h"

#include <charconv>
#include <cmath>

#include "text/json_text.h"

namespace deepinfer {

JsonWriter& JsonWriter::Text(std::string_view text) {
  AppendPythonString(text, out_);
  return *this;
}

JsonWriter& JsonWriter::Integer(int64_t value) {
  char digits[24];
  const std::to_chars_result written = std::to_chars(digits, digits + sizeof digits, value);
  out_->append(digits, written.ptr);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Raw("null");
  AppendPythonFloat(value, out_);
  return *this;
}

}  // namespace deepinfer
