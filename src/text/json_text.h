// JSON as the prompt format needs it: values that keep number spellings and key order, and Python's way of writing
// them.
//
// The model was trained on json.dumps(ensure_ascii=False) text, so tool schemas and call arguments must be re-written
// that way (docs/prompt-format.md, "JSON text"). A general JSON library loses what that needs: integers beyond 64 bits,
// numbers beyond a double, the order of keys. Reading is strict RFC 8259 over valid UTF-8; the text comes from the
// network, so every malformed text is an error with its line and column, and nesting is limited.
//
// Thread-safety: values, plain data. Ownership: a JsonValue owns all it holds. Errors: StatusCode::kInvalidArgument.
#ifndef DEEPINFER_TEXT_JSON_TEXT_H_
#define DEEPINFER_TEXT_JSON_TEXT_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

/// Arrays and objects may sit inside one another this deep, everywhere; deeper text is refused, not followed.
inline constexpr int kMaxJsonDepth = 128;

struct JsonMember;

class JsonValue {
 public:
  struct Number {
    std::string spelling;  ///< as in the source text
  };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  ///< in source order, keys unique

  JsonValue() = default;  ///< null
  /// Only a bool: a pointer or an integer must not become true by conversion.
  template <std::same_as<bool> Bool>
  explicit JsonValue(Bool value) : state_(value) {}
  explicit JsonValue(Number value);
  explicit JsonValue(std::string value);
  explicit JsonValue(Array value);
  explicit JsonValue(Object value);

  bool IsNull() const { return std::holds_alternative<std::monostate>(state_); }
  /// The content when the value is of that kind, else nullptr.
  const bool* AsBool() const { return std::get_if<bool>(&state_); }
  const Number* AsNumber() const { return std::get_if<Number>(&state_); }
  const std::string* AsString() const { return std::get_if<std::string>(&state_); }
  const Array* AsArray() const { return std::get_if<Array>(&state_); }
  const Object* AsObject() const { return std::get_if<Object>(&state_); }

  /// The member of an object, or nullptr when there is none or this is no object. Linear in the number of members.
  const JsonValue* Find(std::string_view key) const;

  /// The number when it is written without fraction and exponent and fits; nullopt otherwise.
  std::optional<int64_t> AsInt64() const;
  /// The nearest double of a number (underflow gives 0); nullopt for other kinds and beyond the range of a double.
  std::optional<double> AsDouble() const;

  /// "null", "a boolean", "a number", "a string", "an array" or "an object": for messages.
  std::string_view KindName() const;

 private:
  std::variant<std::monostate, bool, Number, std::string, Array, Object> state_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Defined where JsonMember is complete: clang instantiates the variant's destructor with the body.
inline JsonValue::JsonValue(Number value) : state_(std::move(value)) {}
inline JsonValue::JsonValue(std::string value) : state_(std::move(value)) {}
inline JsonValue::JsonValue(Array value) : state_(std::move(value)) {}
inline JsonValue::JsonValue(Object value) : state_(std::move(value)) {}

/// Parses one JSON value that fills `text`. A repeated key keeps its first place and its last value (as Python's dict).
/// The message says what was expected and found, with line and column (in bytes, from 1).
Result<JsonValue> ParseJson(std::string_view text);

/// Appends `value` as json.dumps(ensure_ascii=False) writes it: ", " and ": ", non-ASCII raw, integers with all their
/// digits, other numbers as Python's repr of the nearest double. A number beyond a double keeps its spelling, where
/// Python would write Infinity, which is not JSON.
void AppendPythonJson(const JsonValue& value, std::string* out);

/// Appends `text` in double quotes with Python's escapes.
void AppendPythonString(std::string_view text, std::string* out);

/// Appends Python's repr of a finite double: shortest digits that read back the same, "1e-05", "1e+16", "1.0".
void AppendPythonFloat(double value, std::string* out);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_JSON_TEXT_H_
