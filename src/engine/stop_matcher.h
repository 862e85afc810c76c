// StopMatcher: finds stop texts in a stream of bytes, across the borders of tokens, and holds back what could begin
// one.
//
// Invariants, whatever the chunking: (1) bytes are released in order and none twice; (2) no byte of a stop text that
// completes is released; (3) exactly the longest end of the stream that begins a stop text is held back. The stop that
// completes first wins; on the same byte, the one listed first.
// Thread-safety: one thread. Ownership: copies of the texts.
#ifndef DEEPINFER_ENGINE_STOP_MATCHER_H_
#define DEEPINFER_ENGINE_STOP_MATCHER_H_

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

class StopMatcher {
 public:
  /// Empty texts are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Takes more bytes and returns those that are now free. Once a stop has completed, returns nothing more.
  std::string Feed(std::string_view bytes);

  /// The end of the stream: returns what was held back.
  std::string Flush();

  /// The stop text that completed, or nullptr.
  const std::string* matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  const std::string* matched_ = nullptr;  // points into stops_
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STOP_MATCHER_H_
