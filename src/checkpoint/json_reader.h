// JsonReader: a pull parser for the few JSON shapes of a checkpoint (safetensors headers, the shard index), which may
// hold a hundred thousand entries. No tree is built; the caller asks for what it expects next.
//
// The text must be valid UTF-8 (IsUtf8) and outlive the reader. Every error names the byte at which it was found.
// Thread-safety: one thread. Ownership: none.
#ifndef DEEPINFER_CHECKPOINT_JSON_READER_H_
#define DEEPINFER_CHECKPOINT_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// Consumes `c` after white space; false leaves the position alone.
  bool Consume(char c);

  /// Consumes `c` after white space or says what stands there.
  Status Expect(char c);

  /// A string with its escapes resolved.
  Status ReadString(std::string* out);

  /// A number without fraction or exponent that fits 64 bits.
  Status ReadInteger(int64_t* out);

  /// Any value, nested at most 64 deep.
  Status SkipValue();

  /// Only white space, or zero bytes of padding, may follow.
  Status ExpectEnd();

  /// "byte 17: expected ..., found ...": an error at the current position.
  Status Error(std::string_view expected) const;

 private:
  void SkipSpace();
  Status SkipValue(int depth);
  Status ReadEscape(std::string* out);
  Status ReadHex(uint32_t* out);

  std::string_view text_;
  size_t at_ = 0;
};

/// Whether the bytes are well-formed UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_JSON_READER_H_
