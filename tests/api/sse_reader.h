// Reads the bytes of an event stream back into events, as a client does, and complains of what a client would choke on.
#ifndef DEEPINFER_TESTS_API_SSE_READER_H_
#define DEEPINFER_TESTS_API_SSE_READER_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::testing {

struct SseEvent {
  std::string event;            // empty when the stream names none
  nlohmann::ordered_json data;  // a string when the data is no JSON: [DONE]
  bool operator==(const SseEvent&) const = default;
};

/// A test failure for anything but blocks of at most one event line and one data line.
std::vector<SseEvent> ReadSse(std::string_view bytes);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_API_SSE_READER_H_
