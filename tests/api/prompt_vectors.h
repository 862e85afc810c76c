// The recorded request -> prompt pairs of tests/data/api/prompt_vectors.jsonl, and one entrance for all protocols.
#ifndef DEEPINFER_TESTS_API_PROMPT_VECTORS_H_
#define DEEPINFER_TESTS_API_PROMPT_VECTORS_H_

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "api/request.h"
#include "text/prompt_segments.h"

namespace deepinfer::testing {

struct PromptVector {
  std::string name;
  std::string protocol;
  std::string request;        // the body
  std::string expected;       // string form of the prompt
  std::string expected_keep;  // with all reasoning kept; empty when not recorded
};
std::ostream& operator<<(std::ostream& out, const PromptVector& vector);

/// Read once.
const std::vector<PromptVector>& PromptVectors();

/// Parses a body of any protocol and renders its prompt.
Result<Prompt> PromptOf(std::string_view protocol, std::string_view body, const RequestOptions& options = {});

/// Whether a request was refused for what it says or asks for, which is HTTP 400.
bool IsRefusal(const Status& status);

/// The message of a refused request; a test failure when it was accepted.
std::string ErrorOf(std::string_view protocol, std::string_view body, const RequestOptions& options = {});

/// The string form of the prompt of an accepted request; a test failure when it was refused.
std::string TextOf(std::string_view protocol, std::string_view body, const RequestOptions& options = {});

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_API_PROMPT_VECTORS_H_
