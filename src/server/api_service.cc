#include "server/api_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <nlohmann/json.hpp>

#include "api/json_reader.h"
#include "api/json_writer.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "server/generation_planner.h"
#include "server/random_id.h"
#include "server/web_page.h"
#include "text/utf8.h"

namespace deepinfer {
namespace asio = boost::asio;

namespace {

constexpr size_t kMaxRequestIdBytes = 128;

// The client's own identifier, when it is one that can stand in a header and a log.
std::string RequestId(const HttpRequest& request) {
  const std::optional<std::string_view> given = request.Header("X-Request-Id");
  const auto printable = [](char c) { return c > 0x20 && c < 0x7F; };
  const bool usable = given.has_value() && !given->empty() && given->size() <= kMaxRequestIdBytes &&
                      std::all_of(given->begin(), given->end(), printable);
  return usable ? std::string(*given) : RandomId("req_");
}

HttpResponse JsonResponse(const nlohmann::ordered_json& json, int status = 200) {
  return {.status = status, .content_type = "application/json", .body = json.dump() + "\n", .headers = {}};
}

// Where a balancer has another server, it takes no longer to find it.
constexpr int kRetryElsewhereSeconds = 5;

}  // namespace

ApiError EngineFailed(const Status& health) { return ApiError::Overloaded(health.message(), kRetryElsewhereSeconds); }

ApiError ShuttingDown() {
  return ApiError::Overloaded("the server is shutting down; send the request to another one", kRetryElsewhereSeconds);
}

HttpResponse ErrorResponse(Protocol protocol, const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = ErrorBody(protocol, error);
  if (error.retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
  }
  if (error.http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiService::ApiService(ApiServiceOptions options, ApiServiceParts parts)
    : options_(std::move(options)), parts_(std::move(parts)), workers_(static_cast<size_t>(options_.workers)) {}

ApiService::~ApiService() { workers_.join(); }

HttpResponse ApiService::ErrorPage(int status, const std::string& reason) {
  ApiError error = ApiError::InvalidRequest(reason);
  error.http_status = status;
  return ErrorResponse(Protocol::kChat, error);
}

void ApiService::AddCommonHeaders(const ApiExchange& exchange, HttpResponse* response) const {
  response->headers.emplace_back("X-Request-Id", exchange.id);
  if (options_.allowed_origins.empty()) return;
  const std::optional<std::string_view> origin = exchange.request.Header("Origin");
  if (!origin.has_value()) return;
  for (const std::string& allowed : options_.allowed_origins) {
    if (allowed != "*" && allowed != *origin) continue;
    response->headers.emplace_back("Access-Control-Allow-Origin", allowed == "*" ? "*" : std::string(*origin));
    if (allowed != "*") response->headers.emplace_back("Vary", "Origin");
    response->headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    return;
  }
}

asio::awaitable<void> ApiService::Respond(ApiExchange& exchange, HttpResponse& response) {
  AddCommonHeaders(exchange, &response);
  exchange.status = response.status;
  const bool sent = co_await exchange.connection.Send(response);
  if (!sent) exchange.client_left = true;
}

asio::awaitable<void> ApiService::RespondError(ApiExchange& exchange, const ApiError& error) {
  HttpResponse response = ErrorResponse(exchange.route.protocol, error);
  co_await Respond(exchange, response);
}

asio::awaitable<void> ApiService::Handle(HttpConnection& connection, HttpRequest request) {
  ApiExchange exchange(connection, std::move(request));
  exchange.id = RequestId(exchange.request);
  std::optional<ApiError> failed;
  try {
    co_await Dispatch(exchange);
  } catch (const std::exception& problem) {
    failed = ApiError::Internal(std::string("the server failed: ") + problem.what());
  }
  if (failed.has_value()) {
    if (exchange.status == 0) {
      co_await RespondError(exchange, *failed);
    } else {
      connection.Close();
    }
  }
  Record(exchange);
}

std::optional<HttpResponse> ApiService::AnswerBeforeReading(ApiExchange& exchange) const {
  const Route& route = exchange.route;
  const HttpRequest& request = exchange.request;
  if (request.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    const std::string_view comma = route.allowed.empty() ? "" : ", ";
    response.headers.emplace_back("Allow", fmt::format("{}{}OPTIONS", route.allowed, comma));
    if (!options_.allowed_origins.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
      response.headers.emplace_back("Access-Control-Allow-Headers", "*, Authorization");
      response.headers.emplace_back("Access-Control-Max-Age", "86400");
    }
    return response;
  }
  if (!route.open) {
    exchange.key = parts_.keys->Find(request.Header("Authorization"), request.Header("X-Api-Key"));
    if (exchange.key == nullptr) {
      return ErrorResponse(route.protocol, ApiError::Authentication("no valid API key: send it as \"Authorization: "
                                                                    "Bearer KEY\" or \"x-api-key: KEY\""));
    }
  }
  if (route.endpoint == Endpoint::kNotFound) {
    return ErrorResponse(route.protocol, ApiError::NotFound("there is nothing at " + Quoted(request.path) +
                                                            "; the endpoints are in docs/http-api.md"));
  }
  if (MethodAllowed(route, request.method)) return std::nullopt;
  HttpResponse response =
      ErrorResponse(route.protocol, ApiError::MethodNotAllowed(fmt::format("{} is not possible here; use {}",
                                                                           Quoted(request.method), route.allowed)));
  response.headers.emplace_back("Allow", std::string(route.allowed));
  return response;
}

asio::awaitable<void> ApiService::OnWorker(std::function<void()> work) {
  std::exception_ptr problem;
  const auto start = [&](auto handler) {
    asio::post(workers_, [&, handler = std::move(handler)]() mutable {
      try {
        work();
      } catch (...) {
        problem = std::current_exception();
      }
      const auto executor = asio::get_associated_executor(handler);
      asio::post(executor, std::move(handler));
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(start, asio::use_awaitable);
  if (problem != nullptr) std::rethrow_exception(problem);
}

asio::awaitable<void> ApiService::Dispatch(ApiExchange& exchange) {
  std::optional<HttpResponse> response = AnswerBeforeReading(exchange);
  if (!response.has_value()) {
    const Endpoint endpoint = exchange.route.endpoint;
    if (endpoint == Endpoint::kChat || endpoint == Endpoint::kCompletions || endpoint == Endpoint::kResponses ||
        endpoint == Endpoint::kMessages) {
      co_await Generate(exchange);
      co_return;
    }
    // Tokenising, the store and the metrics page take their time; connections must not wait for it.
    co_await OnWorker([&] { response = Answer(exchange); });
  }
  co_await Respond(exchange, *response);
}

HttpResponse ApiService::Answer(const ApiExchange& exchange) {
  // What still waits for a worker must not keep the process.
  if (aborting_) return ErrorResponse(exchange.route.protocol, ShuttingDown());
  switch (exchange.route.endpoint) {
    case Endpoint::kModels:
      return Models();
    case Endpoint::kModel:
      return Model(exchange.route.id);
    case Endpoint::kTokenize:
      return Tokenize(exchange.request);
    case Endpoint::kDetokenize:
      return Detokenize(exchange.request);
    case Endpoint::kCountTokens:
      return CountTokens(exchange.request);
    case Endpoint::kHealth:
      return Health("ok");
    case Endpoint::kReady:
      return draining_ ? JsonResponse({{"status", "draining"}}, 503) : Health("ready");
    case Endpoint::kMetrics:
      if (connections_) parts_.metrics->open_connections.Set(connections_());
      if (!parts_.model.engine->health().ok()) parts_.metrics->SetHealthy(false);
      return {.status = 200,
              .content_type = std::string(ExpositionWriter::kContentType),
              .body = parts_.metrics->Render(parts_.model.engine->statistics()),
              .headers = {}};
    case Endpoint::kLoad:
      return Load();
    case Endpoint::kVersion:
      return JsonResponse({{"version", options_.version}});
    case Endpoint::kResponse:
    case Endpoint::kResponseItems:
      return StoredAnswer(exchange);
    case Endpoint::kPage: {
      HttpResponse page{
          .status = 200, .content_type = "text/html; charset=utf-8", .body = std::string(WebPage()), .headers = {}};
      // The page holds all it needs; nothing else may be loaded or run.
      page.headers.emplace_back("Content-Security-Policy",
                                "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                                "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'");
      page.headers.emplace_back("X-Content-Type-Options", "nosniff");
      page.headers.emplace_back("Cache-Control", "no-cache");
      return page;
    }
    default:
      return ErrorResponse(exchange.route.protocol, ApiError::Internal("the route has no answer"));
  }
}

namespace {

nlohmann::ordered_json ModelJson(const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created_unix_seconds},
          {"owned_by", "deepinfer"},
          {"root", model.names.front()},
          {"max_model_len", model.max_model_len}};
}

}  // namespace

HttpResponse ApiService::Models() const {
  nlohmann::ordered_json list = {{"object", "list"}, {"data", nlohmann::ordered_json::array()}};
  for (const std::string& name : parts_.model.names) list["data"].push_back(ModelJson(parts_.model, name));
  return JsonResponse(list);
}

HttpResponse ApiService::Model(const std::string& id) const {
  for (const std::string& name : parts_.model.names) {
    if (name == id) return JsonResponse(ModelJson(parts_.model, name));
  }
  return ErrorResponse(Protocol::kChat,
                       ApiError::NotFound("the model " + Quoted(id) + " is not served here; see /v1/models"));
}

HttpResponse ApiService::Health(std::string_view when_well) const {
  const Status health = parts_.model.engine->health();
  if (health.ok()) return JsonResponse({{"status", when_well}});
  return JsonResponse({{"status", "failed"}, {"reason", RepairUtf8(health.message())}}, 503);
}

HttpResponse ApiService::Load() const {
  const EngineStatistics now = parts_.model.engine->statistics();
  // Why a tier is down may name files and hosts of the operator: every key may ask here, so it is not told.
  nlohmann::ordered_json tiers = nlohmann::ordered_json::array();
  for (const KvTierStatistics& tier : now.kv_tiers) {
    tiers.push_back({{"name", tier.name},
                     {"up", tier.up},
                     {"records", tier.records},
                     {"bytes", tier.bytes},
                     {"budget_bytes", tier.budget_bytes},
                     {"cached_tokens", tier.cached_tokens},
                     {"queued_bytes", tier.queued_bytes}});
  }
  return JsonResponse({{"running", now.running},
                       {"waiting", now.waiting},
                       {"kv_blocks", now.kv_blocks},
                       {"kv_blocks_free", now.kv_blocks_free},
                       {"kv_blocks_cached", now.kv_blocks_cached},
                       {"kv_tiers", std::move(tiers)},
                       {"generated_tokens", now.generated_tokens},
                       {"prompt_tokens", now.prompt_tokens},
                       {"cached_tokens", now.cached_tokens},
                       {"drafts_verified", now.drafts.verified},
                       {"drafts_accepted", now.drafts.accepted},
                       {"decode_steps", now.drafts.steps},
                       {"draining", draining_.load()}});
}

HttpResponse ApiService::CountTokens(const HttpRequest& request) const {
  const Result<ConversationRequest> parsed = ParseMessagesRequest(request.body, options_.requests);
  if (!parsed.ok()) return ErrorResponse(Protocol::kMessages, ErrorOfStatus(parsed.status()));
  const Result<std::vector<int32_t>> prompt = PromptOf(parts_.model, parsed->conversation);
  if (!prompt.ok()) return ErrorResponse(Protocol::kMessages, ErrorOfStatus(prompt.status()));
  return JsonResponse({{"input_tokens", prompt->size()}});
}

namespace {

// What the response was made of: the items of the store without its own output.
Result<std::string> InputItemsPage(const StoredResponseRow& stored) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string output, OutputItems(stored.response_json));
  const auto json = [](const std::string& text) { return nlohmann::ordered_json::parse(text, nullptr, false); };
  nlohmann::ordered_json items = json(stored.items_json);
  const size_t outputs = json(output).size();
  if (!items.is_array() || items.size() < outputs) return Status::Corruption("the stored items are damaged");
  items.erase(items.end() - static_cast<std::ptrdiff_t>(outputs), items.end());
  const nlohmann::ordered_json page = {{"object", "list"}, {"data", std::move(items)}, {"has_more", false}};
  return page.dump();
}

}  // namespace

HttpResponse ApiService::StoredAnswer(const ApiExchange& exchange) {
  const std::string& id = exchange.route.id;
  const auto none = [&] {
    return ErrorResponse(Protocol::kResponses, ApiError::NotFound("there is no response " + Quoted(id) +
                                                                  "; it was not stored, was deleted or has expired"));
  };
  if (parts_.store == nullptr) return none();
  const std::string& owner = exchange.key->owner;
  if (exchange.request.method == "DELETE") {
    const Result<bool> deleted = parts_.store->Delete(id, owner);
    if (!deleted.ok()) return ErrorResponse(Protocol::kResponses, ErrorOfStatus(deleted.status()));
    if (!*deleted) return none();
    return JsonResponse({{"id", id}, {"object", "response"}, {"deleted", true}});
  }
  const Result<std::optional<StoredResponseRow>> found = parts_.store->Get(id, owner);
  if (!found.ok()) return ErrorResponse(Protocol::kResponses, ErrorOfStatus(found.status()));
  if (!found->has_value()) return none();
  if (exchange.route.endpoint == Endpoint::kResponse) {
    return {.status = 200, .content_type = "application/json", .body = (*found)->response_json, .headers = {}};
  }
  const Result<std::string> items = InputItemsPage(**found);
  if (!items.ok()) return ErrorResponse(Protocol::kResponses, ErrorOfStatus(items.status()));
  return {.status = 200, .content_type = "application/json", .body = *items, .headers = {}};
}

}  // namespace deepinfer
