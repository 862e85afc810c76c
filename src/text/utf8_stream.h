// Incremental detokeniser: turns token bytes, which may end inside a character, into text that never does.
//
// Invariants, whatever the chunking: (1) everything returned is well-formed UTF-8; (2) Feed returns the longest prefix
// that later bytes cannot change and holds at most three bytes back; (3) the concatenation of all returns equals
// RepairUtf8 of the concatenated input.
// Thread-safety: one thread at a time; one stream per sequence of tokens. Errors: none.
#ifndef DEEPINFER_TEXT_UTF8_STREAM_H_
#define DEEPINFER_TEXT_UTF8_STREAM_H_

#include <string>
#include <string_view>

namespace deepinfer {

class Utf8Stream {
 public:
  /// Takes more bytes and returns the text that is now certain. An invalid byte becomes U+FFFD at once.
  std::string Feed(std::string_view bytes);

  /// The end of the stream: an incomplete character becomes one U+FFFD. The stream is then as new.
  std::string Flush();

  /// Bytes held back because their character is incomplete (0..3).
  size_t held() const { return held_.size(); }

 private:
  std::string held_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_UTF8_STREAM_H_
