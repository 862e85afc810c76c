// TestServer: the real HTTP server and API service on a FakeEngine with Nano's tokenizer, on a free port.
#ifndef DEEPINFER_TESTS_SERVER_TEST_SERVER_H_
#define DEEPINFER_TESTS_SERVER_TEST_SERVER_H_

#include <memory>
#include <string>

#include "fake_engine.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/api_service.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/rate_limiter.h"
#include "server/response_store.h"

namespace deepinfer::testing {

inline HttpServerOptions AnyPort() {
  HttpServerOptions options;
  options.port = 0;
  return options;
}

struct TestServerOptions {
  HttpServerOptions http = AnyPort();
  ApiServiceOptions service;
  std::string api_keys;  ///< lines of a key file; empty: open
  bool strict_names = false;
  int64_t max_model_len = 4096;
  std::string access_log = "off";
};

class TestServer {
 public:
  explicit TestServer(FakeEngine::Script script, TestServerOptions options = {});
  ~TestServer();

  FakeEngine engine;
  ApiKeys keys;
  RateLimiter limiter;
  Metrics metrics;
  std::unique_ptr<AccessLog> log;
  std::unique_ptr<ResponseStore> store;
  std::unique_ptr<ApiService> service;
  std::unique_ptr<HttpServer> http;

  int port() const { return http->port(); }
};

/// A script that says `text`, whatever is asked.
FakeEngine::Script Says(const std::string& text);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_SERVER_TEST_SERVER_H_
