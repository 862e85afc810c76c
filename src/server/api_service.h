// ApiService: answers every endpoint: keys, limits, parsing, the engine, encoding, the log.
//
// Thread-safety: Handle runs on the connections' strands, many at once; parsing, rendering, tokenising and submitting
// run on a pool of their own, so that no connection waits for another's. BeginDrain and Abort from any thread.
// Ownership: the parts given to it outlive it, and it outlives the HttpServer.
#ifndef DEEPINFER_SERVER_API_SERVICE_H_
#define DEEPINFER_SERVER_API_SERVICE_H_

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/request.h"
#include "server/access_log.h"
#include "server/api_exchange.h"
#include "server/generation_session.h"
#include "server/http_connection.h"
#include "server/metrics.h"
#include "server/response_store.h"
#include "server/served_model.h"

namespace deepinfer {

struct ApiServiceOptions {
  RequestOptions requests;
  bool usage_in_own_chunk = false;               ///< Chat: as OpenAI sends it
  int64_t max_waiting = 8192;                    ///< requests that wait for the engine; more are answered 503
  std::chrono::milliseconds keep_alive{10'000};  ///< between two signs of life of a stream
  std::vector<std::string> allowed_origins;      ///< CORS; "*" for any, empty for none
  int workers = 2;                               ///< threads that parse and tokenise
  std::string version;
};

/// What the service is made of. `log` and `store` may be null: nothing is logged, responses are not kept.
struct ApiServiceParts {
  ServedModel model;
  ApiKeys* keys = nullptr;
  RateLimiter* limiter = nullptr;
  Metrics* metrics = nullptr;
  AccessLog* log = nullptr;
  ResponseStore* store = nullptr;
};

class ApiService {
 public:
  ApiService(ApiServiceOptions options, ApiServiceParts parts);
  ~ApiService();

  /// Sends exactly one response.
  boost::asio::awaitable<void> Handle(HttpConnection& connection, HttpRequest request);

  /// Tells /metrics how many connections there are. Before the first request.
  void CountConnections(std::function<int64_t()> connections) { connections_ = std::move(connections); }

  /// For requests that could not be read.
  static HttpResponse ErrorPage(int status, const std::string& reason);

  /// New generations are refused from now on, /ready says 503. The same, and /health, where the engine has failed.
  void BeginDrain() { draining_ = true; }
  /// Running generations end with an error, and so does what waits for a worker. Connections must be poked to notice.
  void Abort() { aborting_ = true; }

 private:
  /// Runs `work` on a thread of the pool and waits for it; throws what it throws.
  boost::asio::awaitable<void> OnWorker(std::function<void()> work);
  boost::asio::awaitable<void> Dispatch(ApiExchange& exchange);
  boost::asio::awaitable<void> Respond(ApiExchange& exchange, HttpResponse& response);
  boost::asio::awaitable<void> RespondError(ApiExchange& exchange, const ApiError& error);

  /// CORS, keys, unknown paths and methods: the response that ends the exchange, or nothing.
  std::optional<HttpResponse> AnswerBeforeReading(ApiExchange& exchange) const;
  /// The answer of an endpoint that neither generates nor waits.
  HttpResponse Answer(const ApiExchange& exchange);
  HttpResponse Models() const;
  HttpResponse Model(const std::string& id) const;
  HttpResponse Tokenize(const HttpRequest& request) const;
  HttpResponse Detokenize(const HttpRequest& request) const;
  HttpResponse CountTokens(const HttpRequest& request) const;
  HttpResponse Load() const;
  /// 503 with the reason once the engine has failed for good.
  HttpResponse Health(std::string_view when_well) const;
  HttpResponse StoredAnswer(const ApiExchange& exchange);

  // api_generation.cc
  boost::asio::awaitable<void> Generate(ApiExchange& exchange);
  boost::asio::awaitable<void> Deliver(ApiExchange& exchange, GenerationSession& session);
  /// A piece of an answer, with the response's head in front of the first one. False: the client is gone.
  boost::asio::awaitable<bool> WriteBody(ApiExchange& exchange, std::string_view piece);
  void ObserveTokens(ApiExchange& exchange, GenerationSession& session);
  /// Reads the body, admits and submits the request; on a worker. The error when it must not run.
  std::optional<ApiError> Prepare(ApiExchange& exchange, const std::function<void()>& on_news,
                                  std::unique_ptr<GenerationSession>* session);
  Result<GenerationPlan> Plan(ApiExchange& exchange);
  Result<GenerationPlan> PlanResponse(ApiExchange& exchange, AnswerHead head);
  boost::asio::awaitable<void> Store(ApiExchange& exchange, const GenerationSession& session);
  void StoreAnswer(const ApiExchange& exchange, const GenerationSession& session);

  void AddCommonHeaders(const ApiExchange& exchange, HttpResponse* response) const;
  void Record(const ApiExchange& exchange);

  ApiServiceOptions options_;
  ApiServiceParts parts_;
  std::function<int64_t()> connections_;
  boost::asio::thread_pool workers_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> aborting_{false};
};

/// The response that tells `error` in the form of `protocol`.
HttpResponse ErrorResponse(Protocol protocol, const ApiError& error);

/// What a server that is about to end answers.
ApiError ShuttingDown();
/// What it answers when its engine is not well any more.
ApiError EngineFailed(const Status& health);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_API_SERVICE_H_
