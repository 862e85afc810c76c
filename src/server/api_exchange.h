// ApiExchange: one request while it is being answered, and what the log and the metrics will know of it.
//
// Thread-safety: the connection's strand, and the one worker that the strand waits for. Ownership: refers to the
// connection, which outlives it.
#ifndef DEEPINFER_SERVER_API_EXCHANGE_H_
#define DEEPINFER_SERVER_API_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/api_keys.h"
#include "server/generation_session.h"
#include "server/http_connection.h"
#include "server/rate_limiter.h"
#include "server/route.h"

namespace deepinfer {

struct ApiExchange {
  ApiExchange(HttpConnection& its_connection, HttpRequest its_request)
      : connection(its_connection), request(std::move(its_request)), route(FindRoute(request.path)) {}

  HttpConnection& connection;
  HttpRequest request;
  Route route;
  std::string id;               ///< of the request, sent back as X-Request-Id
  const ApiKey* key = nullptr;  ///< null: none was needed, or none was right
  RateLimiter::Admission admission;
  double started_seconds = NowSeconds();

  int status = 0;                         ///< of the response; 0: none was sent
  bool client_left = false;               ///< before its response was complete
  std::optional<std::string> limited_by;  ///< the rate limit that refused it

  // A generation.
  bool stream = false;
  std::string model;
  std::string response_id;
  int64_t max_tokens = 0;
  std::optional<GenerationReport> report;
  double first_token_seconds = 0;  ///< from the start; 0: none came
  double last_token_seconds = 0;

  // Responses.
  bool store = false;
  std::string previous_response_id;
  std::string items;  ///< JSON array: of this and earlier turns, without the answer
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_API_EXCHANGE_H_
