// Routes: which endpoint a method and a path stand for.
//
// Thread-safety: pure functions. Source: docs/http-api.md, "Endpoints".
#ifndef DEEPINFER_SERVER_ROUTE_H_
#define DEEPINFER_SERVER_ROUTE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_error.h"

namespace deepinfer {

enum class Endpoint : uint8_t {
  kChat,
  kCompletions,
  kResponses,
  kResponse,       ///< one stored response: GET, DELETE
  kResponseItems,  ///< its input items
  kMessages,
  kCountTokens,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kLoad,
  kVersion,
  kPage,
  kNotFound,
};

struct Route {
  Endpoint endpoint = Endpoint::kNotFound;
  Protocol protocol = Protocol::kChat;  ///< whose form errors have
  std::string_view allowed;             ///< methods, as the header Allow has them
  std::string_view name;                ///< the path without identifiers, for metrics
  std::string id;                       ///< of the response or model in the path
  bool open = false;                    ///< needs no key
};

/// The route of a path; whether the method is allowed is told by MethodAllowed.
Route FindRoute(std::string_view path);
bool MethodAllowed(const Route& route, std::string_view method);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_ROUTE_H_
