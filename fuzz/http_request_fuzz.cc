// Any bytes on a connection: the same requests and errors whatever the chunks, and never more held than the
// limits allow. The first byte seeds the sizes of the chunks.
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_request_reader.h"

namespace {

using deepinfer::HttpLimits;
using deepinfer::HttpRequest;
using deepinfer::HttpRequestReader;
using State = HttpRequestReader::State;

constexpr HttpLimits kLimits = {.max_header_bytes = 4096, .max_body_bytes = 4096};

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Outcome {
  std::vector<HttpRequest> requests;
  int error = 0;
  bool unfinished = false;  // the last request is incomplete
};

Outcome Read(std::string_view bytes, uint32_t seed) {
  std::mt19937 random(seed);
  Outcome outcome;
  HttpRequestReader reader(kLimits);
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes.size(), seed == 0 ? bytes.size() : 1 + random() % 50);
    State state = reader.Feed(bytes.substr(0, size));
    bytes.remove_prefix(size);
    for (; state == State::kComplete; state = reader.Feed("")) {
      outcome.requests.push_back(reader.Take());
      const HttpRequest& request = outcome.requests.back();
      Require(static_cast<int64_t>(request.body.size()) <= kLimits.max_body_bytes);
      Require(request.path.find('?') == std::string::npos);
    }
    if (state == State::kFailed) {
      outcome.error = reader.error_status();
      Require(outcome.error >= 400 && !reader.error().empty());
      return outcome;
    }
  }
  outcome.unfinished = reader.started();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Read(bytes, 0);
  const Outcome pieces = Read(bytes, data[0] + 1u);
  Require(whole.requests.size() == pieces.requests.size());
  // A header that is not complete yet may already be known to be wrong, or not.
  if (!whole.unfinished && !pieces.unfinished) Require(whole.error == pieces.error);
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    const HttpRequest& a = whole.requests[i];
    const HttpRequest& b = pieces.requests[i];
    Require(a.method == b.method && a.path == b.path && a.query == b.query && a.headers == b.headers &&
            a.body == b.body && a.keep_alive == b.keep_alive);
  }
  return 0;
}
