// CallArguments: the parameters of one call as the model writes them -> the JSON text of the call's arguments.
//
// What its methods append is, up to Close, the beginning of a JSON object, and with Close a whole one that ParseJson
// reads: names are escaped, string values are escaped as they come in, other values are kept to the letter when they
// are JSON and become a string when they are not. Of parameters with the same name the first stays. Order of calls:
// BeginString, StringPiece..., EndString or BeginValue, EndValue; any number of these; Close. Thread-safety: one thread
// at a time. Ownership: copies. Errors: none. Source: docs/prompt-format.md, "Output".
#ifndef DEEPINFER_TEXT_CALL_ARGUMENTS_H_
#define DEEPINFER_TEXT_CALL_ARGUMENTS_H_

#include <set>
#include <string>
#include <string_view>

namespace deepinfer {

class CallArguments {
 public:
  void BeginString(const std::string& name, std::string* json);
  void StringPiece(std::string_view text, std::string* json);
  void EndString(std::string* json);

  void BeginValue(const std::string& name, std::string* json);
  void EndValue(std::string_view text, std::string* json);
  /// The beginning of a value that is cut off, as it stands.
  void CutValue(std::string_view text, std::string* json);

  void Close(std::string* json);

 private:
  void AppendName(const std::string& name, std::string* json);

  std::set<std::string, std::less<>> names_;
  bool repeated_ = false;  // the parameter that is open has a name of an earlier one
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_CALL_ARGUMENTS_H_
