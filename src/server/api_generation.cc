// The endpoints that generate: reading the request, running it, sending the answer as it comes.
#include <algorithm>
#include <ctime>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/json_reader.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "server/api_service.h"
#include "server/generation_planner.h"
#include "server/random_id.h"

namespace deepinfer {
namespace asio = boost::asio;

namespace {

// Of the output that a request allows itself, the share that counts when it is admitted (spec serving.md 11.2).
constexpr double kExpectedShareOfLimit = 0.25;

std::string_view IdPrefix(Protocol protocol) {
  switch (protocol) {
    case Protocol::kChat:
      return "chatcmpl-";
    case Protocol::kCompletions:
      return "cmpl-";
    case Protocol::kResponses:
      return "resp_";
    case Protocol::kMessages:
      return "msg_";
  }
  return "";
}

}  // namespace

Result<GenerationPlan> ApiService::Plan(ApiExchange& exchange) {
  const std::string& body = exchange.request.body;
  AnswerHead head;
  head.protocol = exchange.route.protocol;
  head.id = exchange.response_id = RandomId(IdPrefix(head.protocol));
  head.created_unix_seconds = std::time(nullptr);
  head.usage_in_own_chunk = options_.usage_in_own_chunk;
  switch (exchange.route.endpoint) {
    case Endpoint::kCompletions: {
      DEEPINFER_ASSIGN_OR_RETURN(const CompletionsRequest request, ParseCompletionsRequest(body, options_.requests));
      return PlanCompletions(parts_.model, request, std::move(head));
    }
    case Endpoint::kMessages: {
      DEEPINFER_ASSIGN_OR_RETURN(const ConversationRequest request, ParseMessagesRequest(body, options_.requests));
      return PlanConversation(parts_.model, request, std::move(head));
    }
    case Endpoint::kResponses:
      return PlanResponse(exchange, std::move(head));
    default: {
      DEEPINFER_ASSIGN_OR_RETURN(const ConversationRequest request, ParseChatRequest(body, options_.requests));
      return PlanConversation(parts_.model, request, std::move(head));
    }
  }
}

Result<GenerationPlan> ApiService::PlanResponse(ApiExchange& exchange, AnswerHead head) {
  StoredItems stored_items;
  if (parts_.store != nullptr) {
    stored_items = [&](const std::string& id) -> Result<std::string> {
      DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> items, parts_.store->Items(id, exchange.key->owner));
      if (items.has_value()) return *items;
      return Status::NotFound("previous_response_id: there is no response " + Quoted(id) +
                              "; it was not stored, was deleted or has expired");
    };
  }
  DEEPINFER_ASSIGN_OR_RETURN(ResponsesRequest request,
                             ParseResponsesRequest(exchange.request.body, options_.requests, stored_items));
  exchange.store = request.store && parts_.store != nullptr;
  exchange.previous_response_id = std::move(request.previous_response_id);
  exchange.items = std::move(request.items);
  head.repeated_fields = std::move(request.repeated_fields);
  return PlanConversation(parts_.model, request, std::move(head));
}

void ApiService::StoreAnswer(const ApiExchange& exchange, const GenerationSession& session) {
  if (!exchange.store) return;
  StoredResponseRow stored;
  stored.response_json = session.StoredBody();
  const Result<std::string> output = OutputItems(stored.response_json);
  if (!output.ok()) return;
  stored.id = exchange.response_id;
  stored.owner = exchange.key->owner;
  stored.created = UnixSeconds();
  stored.previous_id = exchange.previous_response_id;
  stored.model = exchange.model;
  stored.items_json = JoinItems(exchange.items, *output);
  // The client has its answer either way; what a full disk costs is that nothing can continue it.
  const Status status = parts_.store->Put(stored);
  if (!status.ok()) parts_.metrics->responses_not_stored.Add();
}

std::optional<ApiError> ApiService::Prepare(ApiExchange& exchange, const std::function<void()>& on_news,
                                            std::unique_ptr<GenerationSession>* session) {
  if (draining_) return ShuttingDown();
  if (const Status health = parts_.model.engine->health(); !health.ok()) return EngineFailed(health);
  if (parts_.model.engine->statistics().waiting >= options_.max_waiting) {
    return ApiError::Overloaded("too many requests wait already; try again later", 1);
  }
  Result<GenerationPlan> plan = Plan(exchange);
  if (!plan.ok()) return ErrorOfStatus(plan.status());
  exchange.stream = plan->head.stream;
  exchange.model = plan->head.model;
  exchange.max_tokens = plan->requests.front().sampling.max_tokens;

  double estimate = 0;
  for (GenerationRequest& request : plan->requests) {
    estimate += static_cast<double>(request.prompt.size()) +
                kExpectedShareOfLimit * request.sampling.n * static_cast<double>(request.sampling.max_tokens);
    // Keys share no prefixes, and a client can separate its own further.
    const std::string& salt = exchange.key->cache_salt;
    request.cache_salt = request.cache_salt.empty() ? salt : salt + "/" + request.cache_salt;
    request.priority += exchange.key->priority;
  }
  auto admitted = parts_.limiter->Admit(*exchange.key, static_cast<int64_t>(estimate));
  if (const auto* refusal = std::get_if<RateRefusal>(&admitted)) {
    parts_.metrics->ObserveRateLimited(exchange.key->name, refusal->limit);
    return ApiError::RateLimit(refusal->Message(), static_cast<int>(refusal->retry_after_s));
  }
  exchange.admission = std::move(std::get<RateLimiter::Admission>(admitted));

  Result<std::unique_ptr<GenerationSession>> started =
      GenerationSession::Start(parts_.model, std::move(*plan), on_news);
  if (!started.ok()) return ErrorOfStatus(started.status());
  *session = std::move(*started);
  // The engine has its own copy of what is left of it.
  exchange.request.body = std::string();
  return std::nullopt;
}

asio::awaitable<void> ApiService::Generate(ApiExchange& exchange) {
  std::unique_ptr<GenerationSession> session;
  const std::function<void()> on_news = exchange.connection.waker();
  std::optional<ApiError> refused;
  co_await OnWorker([&] { refused = Prepare(exchange, on_news, &session); });
  if (refused.has_value()) {
    co_await RespondError(exchange, *refused);
    co_return;
  }
  if (exchange.stream) parts_.metrics->open_streams.Add(1);
  co_await Deliver(exchange, *session);
  if (exchange.stream) parts_.metrics->open_streams.Add(-1);
  exchange.report = session->Report();
  const Usage& usage = exchange.report->usage;
  exchange.admission.Settle(usage.prompt_tokens - usage.cached_tokens + usage.completion_tokens);
  if (exchange.client_left) parts_.metrics->client_disconnects.Add();
  if (exchange.connection.dropped_as_slow()) parts_.metrics->slow_readers_dropped.Add();
}

asio::awaitable<void> ApiService::Store(ApiExchange& exchange, const GenerationSession& session) {
  if (!exchange.store || session.failed()) co_return;
  // Before the client can ask for it; the disk is waited for on a worker.
  co_await OnWorker([&] { StoreAnswer(exchange, session); });
}

void ApiService::ObserveTokens(ApiExchange& exchange, GenerationSession& session) {
  if (session.TakeNewTokens() == 0) return;
  const double now = NowSeconds();
  if (exchange.first_token_seconds == 0) {
    exchange.first_token_seconds = now - exchange.started_seconds;
  } else {
    parts_.metrics->ObserveInterToken(now - exchange.last_token_seconds);
  }
  exchange.last_token_seconds = now;
}

asio::awaitable<bool> ApiService::WriteBody(ApiExchange& exchange, std::string_view piece) {
  if (!exchange.connection.body_started()) {
    HttpResponse head;
    if (exchange.stream) {
      head.content_type = "text/event-stream; charset=utf-8";
      head.headers.emplace_back("Cache-Control", "no-cache");
      head.headers.emplace_back("X-Accel-Buffering", "no");
    }
    AddCommonHeaders(exchange, &head);
    exchange.status = head.status;
    const bool started = co_await exchange.connection.StartBody(head);
    if (!started) co_return false;
  }
  co_return co_await exchange.connection.WriteBody(piece);
}

asio::awaitable<void> ApiService::Deliver(ApiExchange& exchange, GenerationSession& session) {
  HttpConnection& connection = exchange.connection;
  // Set back once the whole answer is on its way.
  exchange.client_left = true;
  std::string out;
  for (bool more = true; more;) {
    if (session.unread()) connection.Poke();
    const HttpConnection::Wake wake = co_await connection.Wait(options_.keep_alive);
    if (wake == HttpConnection::Wake::kGone) co_return;
    if (aborting_) {
      session.Fail(ShuttingDown(), &out);
      more = false;
    } else if (wake == HttpConnection::Wake::kTimeout) {
      // A sign of life, so that nothing between here and the client gives up: a comment, or blanks before the JSON.
      out = exchange.stream ? ": keep-alive\n\n" : "\n";
    } else {
      more = session.Pump(&out);
      ObserveTokens(exchange, session);
    }
    if (!more) co_await Store(exchange, session);
    const bool whole = !more && !connection.body_started() && (!exchange.stream || !session.started());
    if (whole) {
      // Nothing was sent yet, so that an error can still be the status of the response.
      HttpResponse response;
      if (session.failed()) {
        response = ErrorResponse(exchange.route.protocol, session.error());
      } else {
        response.body = std::move(out);
      }
      exchange.client_left = false;
      co_await Respond(exchange, response);
      co_return;
    }
    if (out.empty()) continue;
    const bool written = co_await WriteBody(exchange, out);
    if (!written) co_return;
    out.clear();
  }
  const bool ended = co_await connection.EndBody();
  exchange.client_left = !ended;
}

void ApiService::Record(const ApiExchange& exchange) {
  const double now = NowSeconds();
  const std::optional<GenerationReport>& report = exchange.report;
  parts_.metrics->ObserveHttp(exchange.route.name, exchange.status);
  const std::optional<double> queue_ms =
      report.has_value() && report->queue_ms > 0 ? std::optional(report->queue_ms) : std::nullopt;
  const bool answered = exchange.first_token_seconds > 0;
  if (report.has_value()) {
    RequestObservation seen;
    seen.protocol = exchange.route.protocol;
    seen.finish_reason = report->ended;
    seen.choices = report->choices;
    seen.max_tokens = exchange.max_tokens;
    seen.prompt_tokens = report->usage.prompt_tokens;
    seen.completion_tokens = report->usage.completion_tokens;
    seen.reasoning_tokens = report->usage.reasoning_tokens;
    seen.preemptions = report->preemptions;
    if (queue_ms.has_value()) seen.queue_s = 1e-3 * *queue_ms;
    if (answered) seen.first_token_s = exchange.first_token_seconds;
    seen.total_s = now - exchange.started_seconds;
    seen.drafts = report->drafts;
    parts_.metrics->ObserveRequest(seen);
  }
  if (parts_.log == nullptr) return;
  AccessRecord record;
  record.request_id = exchange.id;
  record.peer = exchange.connection.peer();
  if (exchange.key != nullptr) record.key = exchange.key->name;
  record.method = exchange.request.method;
  record.path = exchange.request.path;
  record.status = exchange.status;
  record.total_ms = 1e3 * (now - exchange.started_seconds);
  if (report.has_value()) {
    AnswerRecord& answer = record.answer.emplace();
    answer.protocol = ProtocolName(exchange.route.protocol);
    answer.model = exchange.model;
    answer.prompt_tokens = report->usage.prompt_tokens;
    answer.cached_tokens = report->usage.cached_tokens;
    answer.completion_tokens = report->usage.completion_tokens;
    answer.reasoning_tokens = report->usage.reasoning_tokens;
    answer.finish_reason = exchange.client_left ? "disconnected" : report->finish_reason;
    answer.queue_ms = queue_ms;
    if (answered) answer.first_token_ms = 1e3 * exchange.first_token_seconds;
    answer.accepted_drafts = report->drafts.accepted;
  }
  parts_.log->Write(record);
}

}  // namespace deepinfer
