// The text of a custom tool call, read out of the JSON arguments {"input": "..."} while they stream in.
//
// The model calls a custom tool as a function with one string; the client gets the string. Arguments of another shape
// are given to the client as they are, at the end. Invariant: the concatenation of the outputs does not depend on how
// the arguments are cut into pieces. Thread-safety: one thread at a time. Errors: none.
#ifndef DEEPINFER_API_CUSTOM_TOOL_INPUT_H_
#define DEEPINFER_API_CUSTOM_TOOL_INPUT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

class CustomToolInput {
 public:
  /// Takes a piece of the arguments and appends the part of the input that is now certain.
  void Feed(std::string_view arguments, std::string* input);
  /// The end of the arguments, which may have been cut off.
  void Finish(std::string* input);

 private:
  enum class Stage : uint8_t { kOpening, kString, kDone, kOther };

  void ReadOpening();
  // One character or escape at position_; false when more bytes are needed.
  bool ReadUnit(std::string* input);

  Stage stage_ = Stage::kOpening;
  std::string arguments_;  // all of them, for the other shape
  size_t position_ = 0;    // read up to here
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_CUSTOM_TOOL_INPUT_H_
