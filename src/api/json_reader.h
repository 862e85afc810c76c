// Typed access to the fields of a JSON request, with errors that name the field by its path ("messages[2].content").
//
// A field that is absent or null counts as not given; unknown fields are ignored. Every error is kInvalidArgument, one
// line: the path, what was expected, what was found. Thread-safety: plain data. Ownership: readers and the pointers
// they return refer to the JsonValue, which must outlive them.
#ifndef DEEPINFER_API_JSON_READER_H_
#define DEEPINFER_API_JSON_READER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "deepinfer/status.h"
#include "text/json_text.h"

namespace deepinfer {

/// `path: problem`, or only the problem when the path is empty.
Status FieldError(std::string_view path, std::string_view problem);
/// `path: expected E, found F` where F describes `found`.
Status ExpectedError(std::string_view path, std::string_view expected, const JsonValue& found);
/// `text` in double quotes for an error message: escaped, on one line, shortened.
std::string Quoted(std::string_view text);
/// "a, b or c"
std::string Choices(std::span<const std::string_view> names);
inline std::string Choices(std::initializer_list<std::string_view> names) {
  return Choices(std::span(names.begin(), names.size()));
}

inline std::string ItemPath(std::string_view path, size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

class ObjectReader {
 public:
  /// An error unless `value` is an object.
  static Result<ObjectReader> Of(const JsonValue& value, std::string path);

  const std::string& path() const { return path_; }
  const JsonValue& value() const { return *value_; }
  std::string PathOf(std::string_view key) const;

  /// The field, or nullptr when it is not given.
  const JsonValue* Find(std::string_view key) const;
  Result<const JsonValue*> Require(std::string_view key) const;

  Result<std::optional<std::string>> OptionalString(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  Result<bool> Bool(std::string_view key, bool when_absent) const;
  Result<std::optional<int64_t>> OptionalInteger(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> OptionalNumber(std::string_view key, double min, double max) const;
  /// nullptr when not given.
  Result<const JsonValue::Array*> OptionalArray(std::string_view key) const;
  Result<const JsonValue::Array*> NonEmptyArray(std::string_view key) const;
  Result<std::optional<ObjectReader>> OptionalObject(std::string_view key) const;
  Result<ObjectReader> Object(std::string_view key) const;
  /// The string when it is one of `names`.
  Result<std::string> OneOf(std::string_view key, std::initializer_list<std::string_view> names) const;
  Result<std::optional<std::string>> OptionalOneOf(std::string_view key,
                                                   std::initializer_list<std::string_view> names) const;

 private:
  ObjectReader(const JsonValue* value, std::string path) : value_(value), path_(std::move(path)) {}
  Status MissingError(std::string_view key) const;

  const JsonValue* value_;
  std::string path_;  // empty for the body
};

/// Parses a request body, which must be a JSON object. Errors begin with "request body".
Result<JsonValue> ParseBody(std::string_view body);

}  // namespace deepinfer

#endif  // DEEPINFER_API_JSON_READER_H_
