// The endpoints over real sockets, on an engine that says what the test wants.
#include "server/api_service.h"

#include <gtest/gtest.h>

#include <thread>

#include "grammar/matcher.h"
#include "http_client.h"
#include "test_server.h"
#include "text/prompt_segments.h"
#include "tokenizer_fixture.h"

namespace deepinfer::testing {
namespace {

using nlohmann::json;

json Chat(const std::string& text, json more = json::object()) {
  json body = {
      {"model", "nano"}, {"messages", {{{"role", "user"}, {"content", text}}}}, {"thinking", {{"type", "disabled"}}}};
  body.update(more);
  return body;
}

json WeatherTool() {
  return {{{"type", "function"},
           {"function",
            {{"name", "get_weather"},
             {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}}};
}

// The deltas of a chat stream put together, and how it ended.
struct StreamedChat {
  std::string content;
  std::string reasoning;
  std::string arguments;
  std::string finish_reason;
  json usage;
  json error;
  bool done = false;
};
StreamedChat ReadChat(const std::string& body) {
  StreamedChat chat;
  for (const SseEvent& event : ParseSse(body)) {
    if (event.data == "[DONE]") {
      chat.done = true;
      continue;
    }
    const json chunk = json::parse(event.data);
    if (chunk.contains("error")) chat.error = chunk["error"];
    if (!chunk.value("usage", json()).is_null()) chat.usage = chunk["usage"];
    if (!chunk.contains("choices") || chunk["choices"].empty()) continue;
    const json& choice = chunk["choices"][0];
    const json& delta = choice["delta"];
    const auto text_of = [&](const char* key) {
      return delta.contains(key) && delta[key].is_string() ? delta[key].get<std::string>() : "";
    };
    chat.content += text_of("content");
    chat.reasoning += text_of("reasoning_content");
    if (delta.contains("tool_calls")) chat.arguments += delta["tool_calls"][0]["function"].value("arguments", "");
    if (!choice["finish_reason"].is_null()) chat.finish_reason = choice["finish_reason"];
  }
  return chat;
}

TEST(ApiService, AnswersAChatWholeAndInPieces) {
  TestServer server(Says("Hello there."));
  const ClientResponse whole = Post(server.port(), "/v1/chat/completions", Chat("Hi"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.headers.at("content-type"), "application/json");
  EXPECT_TRUE(whole.headers.at("x-request-id").starts_with("req_"));
  const json body = whole.json();
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello there.");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["total_tokens"],
            body["usage"]["prompt_tokens"].get<int>() + body["usage"]["completion_tokens"].get<int>());
  EXPECT_EQ(body["system_fingerprint"], "fp_test");

  const ClientResponse pieces = Post(server.port(), "/chat/completions", Chat("Hi", {{"stream", true}}));
  EXPECT_TRUE(pieces.headers.at("content-type").starts_with("text/event-stream"));
  EXPECT_TRUE(pieces.complete);
  const StreamedChat chat = ReadChat(pieces.body);
  EXPECT_EQ(chat.content, "Hello there.");
  EXPECT_EQ(chat.finish_reason, "stop");
  EXPECT_TRUE(chat.done);
  EXPECT_EQ(chat.usage, body["usage"]);
  // Both rendered the same prompt, and the end-of-sentence token is not counted.
  const auto requests = server.engine.requests();
  EXPECT_EQ(requests[0].prompt, requests[1].prompt);
  EXPECT_EQ(body["usage"]["completion_tokens"], server.engine.IdsOf("Hello there.").size() - 1);
}

TEST(ApiService, SeparatesReasoningFromTheAnswer) {
  TestServer server(Says("Let me think.\n</think>\n\nFour."));
  const json request = Chat("2+2?", {{"thinking", {{"type", "enabled"}}}, {"stream", true}});
  const StreamedChat chat = ReadChat(Post(server.port(), "/v1/chat/completions", request).body);
  EXPECT_EQ(chat.reasoning, "Let me think.");
  EXPECT_EQ(chat.content, "Four.");
  std::vector<int32_t> reasoning;
  ASSERT_TRUE(NanoTokenizer().Encode("Let me think.\n", &reasoning).ok());
  EXPECT_EQ(chat.usage["completion_tokens_details"]["reasoning_tokens"], reasoning.size());
}

TEST(ApiService, TextThatLooksLikeMarkupStaysText) {
  // The engine says ordinary tokens that spell the markers.
  TestServer server([](const GenerationRequest&) {
    FakeAnswer answer;
    (void)NanoTokenizer().Encode("a </think> b <｜DSML｜ calls> c", &answer.ids);
    answer.ids.push_back(*NanoTokenizer().IdOfAddedToken(special_token::kEndOfSentence));
    return answer;
  });
  const json body = Post(server.port(), "/v1/chat/completions", Chat("x", {{"tools", WeatherTool()}})).json();
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a </think> b <｜DSML｜ calls> c");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST(ApiService, StopsAtAStopTextAndCancelsTheRest) {
  // Longer than what the engine says before the server has read the stop text.
  std::string text = "one two three";
  for (int i = 0; i < 3000; ++i) text += " and more";
  TestServerOptions options;
  options.max_model_len = 1 << 20;
  TestServer server(Says(text), options);
  const json body = Post(server.port(), "/v1/chat/completions", Chat("x", {{"stop", {" three"}}, {"n", 2}})).json();
  ASSERT_EQ(body["choices"].size(), 2u);
  for (const json& choice : body["choices"]) {
    EXPECT_EQ(choice["message"]["content"], "one two");
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  server.engine.WaitIdle();
  EXPECT_EQ(server.engine.cancelled(), 2);
}

constexpr const char* kCall =
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo"
    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

TEST(ApiService, GivesCallsWithTheirArguments) {
  TestServer server(Says(std::string("Checking.\n\n") + kCall));
  const json request = Chat("weather?", {{"tools", WeatherTool()}});
  const json message = Post(server.port(), "/v1/chat/completions", request).json()["choices"][0];
  EXPECT_EQ(message["finish_reason"], "tool_calls");
  EXPECT_EQ(message["message"]["content"], "Checking.");
  EXPECT_EQ(message["message"]["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(json::parse(message["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            json({{"city", "Oslo"}}));
}

TEST(ApiService, ARequiredCallFollowsTheReasoning) {
  TestServer server(Says(std::string("I know.</think>\n\n") + kCall));
  const json request =
      Chat("weather?", {{"tools", WeatherTool()},
                        {"tool_choice", {{"type", "function"}, {"function", {{"name", "get_weather"}}}}},
                        {"thinking", {{"type", "enabled"}}},
                        {"seed", 7},
                        {"n", 2}});
  const json body = Post(server.port(), "/v1/chat/completions", request).json();
  ASSERT_EQ(body["choices"].size(), 2u) << body;
  for (const json& choice : body["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(choice["message"]["reasoning_content"], "I know.");
    EXPECT_TRUE(choice["message"]["content"].is_null() || choice["message"]["content"] == "");
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"Oslo\"}");
  }
  const auto requests = server.engine.requests();
  ASSERT_EQ(requests.size(), 1u);
  // The engine is told what may come, and when.
  ASSERT_NE(requests[0].grammar, nullptr);
  EXPECT_TRUE(requests[0].starts_in_reasoning);
  EXPECT_EQ(requests[0].end_of_reasoning, NanoTokenizer().IdOfAddedToken("</think>"));
  Matcher matcher(requests[0].grammar, {1});
  const auto admits = [&](const std::string& text) { return *matcher.Admits(text); };
  EXPECT_TRUE(admits("\n\n<"));
  EXPECT_FALSE(admits("It rains."));
}

TEST(ApiService, ARequiredCallWithoutThinkingBeginsInThePrompt) {
  const std::string call = kCall;
  TestServer server(Says(call.substr(call.find("<｜DSML｜ parameter"))));
  const json request = Chat("weather?", {{"tools", WeatherTool()}, {"tool_choice", "required"}});
  const json body = Post(server.port(), "/v1/chat/completions", request).json();
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls") << body;
  EXPECT_EQ(body["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "get_weather");
  const std::string prompt = NanoTokenizer().Decode(server.engine.requests()[0].prompt, false);
  EXPECT_TRUE(prompt.ends_with("</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n")) << prompt;
}

TEST(ApiService, RefusesBeforeTheFirstHeader) {
  TestServer server(Says("x"));
  const auto error_of = [&](const std::string& path, const json& body, int status) {
    const ClientResponse response = Post(server.port(), path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return response.json()["error"];
  };
  json negative = Chat("x", {{"temperature", -1}});
  EXPECT_EQ(error_of("/v1/chat/completions", negative, 400)["param"], "temperature");
  const std::string long_text(60'000, 'a');
  const std::string too_long = error_of("/v1/chat/completions", Chat(long_text), 400)["message"];
  EXPECT_NE(too_long.find("4096"), std::string::npos) << too_long;
  const std::string too_many =
      error_of("/v1/chat/completions", Chat("x", {{"max_tokens", 5000}, {"stream", true}}), 400)["message"];
  EXPECT_NE(too_many.find("5000"), std::string::npos);
  EXPECT_NE(too_many.find("4096"), std::string::npos);
  const json response_too_long = {{"model", "nano"}, {"input", "x"}, {"max_output_tokens", 5000}};
  EXPECT_EQ(error_of("/v1/responses", response_too_long, 400)["param"], "max_output_tokens");
  EXPECT_EQ(error_of("/v1/nothing", {}, 404)["type"], "not_found_error");
  const ClientResponse method = Get(server.port(), "/v1/chat/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
  // Anthropic's clients want their own form.
  const json anthropic = Post(server.port(), "/v1/messages", {{"model", "nano"}, {"messages", json::array()}}).json();
  EXPECT_EQ(anthropic["type"], "error");
  EXPECT_EQ(anthropic["error"]["type"], "invalid_request_error");
  server.engine.FailSubmissions(Status::Internal("out of luck"));
  EXPECT_EQ(error_of("/v1/chat/completions", Chat("x", {{"stream", true}}), 500)["message"], "out of luck");
}

TEST(ApiService, TellsAFailureInTheMiddleOfAStream) {
  TestServer server([](const GenerationRequest& request) {
    FakeAnswer answer = Says("some text")(request);
    answer.ids.pop_back();
    answer.reason = FinishReason::kError;
    answer.status = Status::Internal("the device is gone");
    return answer;
  });
  const ClientResponse response = Post(server.port(), "/v1/chat/completions", Chat("x", {{"stream", true}}));
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  const StreamedChat chat = ReadChat(response.body);
  EXPECT_EQ(chat.error["message"], "the device is gone");
  const ClientResponse whole = Post(server.port(), "/v1/chat/completions", Chat("x"));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], "the device is gone");
}

TEST(ApiService, KeepsAWaitingStreamAlive) {
  TestServerOptions options;
  options.service.keep_alive = std::chrono::milliseconds(20);
  TestServer server(
      [](const GenerationRequest& request) {
        FakeAnswer answer = Says("late")(request);
        answer.hold = true;
        return answer;
      },
      options);
  HttpClient stream(server.port());
  HttpClient whole(server.port());
  const auto post = [](const json& body) {
    const std::string text = body.dump();
    return "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text;
  };
  stream.Send(post(Chat("x", {{"stream", true}})));
  whole.Send(post(Chat("x")));
  ASSERT_TRUE(stream.ReceiveUntil(": keep-alive\n\n"));
  ASSERT_TRUE(whole.ReceiveUntil("\r\n\r\n1\r\n\n"));
  server.engine.Release();
  EXPECT_EQ(ReadChat(stream.Receive().body).content, "late");
  EXPECT_EQ(whole.Receive().json()["choices"][0]["message"]["content"], "late");
}

FakeAnswer Held(const GenerationRequest& request) {
  FakeAnswer answer = Says("x")(request);
  answer.hold = true;
  return answer;
}

TEST(ApiService, AClientThatLeavesIsCancelled) {
  TestServer server(&Held);
  for (const bool reset : {false, true}) {
    HttpClient client(server.port());
    const std::string body = Chat("x", {{"stream", true}}).dump();
    client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    while (server.engine.running() == 0) std::this_thread::yield();
    if (reset) {
      client.Reset();
    } else {
      client.Close();
    }
    server.engine.WaitIdle();
  }
  EXPECT_EQ(server.engine.cancelled(), 2);
}

TEST(ApiService, AClientThatDoesNotReadIsDropped) {
  TestServerOptions options;
  options.http.timeouts.write = std::chrono::milliseconds(100);
  options.max_model_len = 1 << 20;
  TestServer server(
      [](const GenerationRequest&) {
        FakeAnswer answer;
        answer.ids.assign(200'000, 1000);
        answer.reason = FinishReason::kLength;
        return answer;
      },
      options);
  HttpClient client(server.port());
  const std::string body = Chat("x", {{"stream", true}, {"logprobs", true}, {"top_logprobs", 20}}).dump();
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  while (server.engine.requests().empty()) std::this_thread::yield();
  EXPECT_TRUE(server.http->WaitUntilIdle(std::chrono::minutes(5)));
  EXPECT_EQ(server.metrics.slow_readers_dropped.value(), 1);
}

TEST(ApiService, TellsFromWhichTierAPromptCame) {
  TestServer server([](const GenerationRequest& request) {
    FakeAnswer answer = Says("Yes.")(request);
    answer.cached_tokens = 5;
    answer.cached_tokens_by_tier = {{"device", 1}, {"disk", 4}};
    return answer;
  });
  const json one = {{"device", 1}, {"disk", 4}};
  const json chat = Post(server.port(), "/v1/chat/completions", Chat("x")).json();
  EXPECT_EQ(chat["usage"]["prompt_tokens_details"]["cached_tokens_by_tier"], one);
  EXPECT_EQ(ReadChat(Post(server.port(), "/v1/chat/completions", Chat("x", {{"stream", true}})).body).usage,
            chat["usage"]);
  const json response = Post(server.port(), "/v1/responses", {{"model", "nano"}, {"input", "x"}}).json();
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens_by_tier"], one);
  EXPECT_EQ(Post(server.port(), "/v1/messages", Chat("x")).json()["usage"]["cached_tokens_by_tier"], one);
  // Two prompts together.
  const json both = Post(server.port(), "/v1/completions", {{"model", "nano"}, {"prompt", {"x", "y"}}}).json();
  EXPECT_EQ(both["usage"]["prompt_tokens_details"]["cached_tokens_by_tier"], json({{"device", 2}, {"disk", 8}}));
}

TEST(ApiService, TheFirstEventOfALongAnswerTellsItsTiers) {
  TestServer server([](const GenerationRequest&) {
    FakeAnswer answer;
    (void)NanoTokenizer().Encode(std::string(2000, 'x'), &answer.ids);
    answer.ids.push_back(*NanoTokenizer().IdOfAddedToken(special_token::kEndOfSentence));
    answer.cached_tokens = 4;
    answer.cached_tokens_by_tier = {{"disk", 4}};
    return answer;
  });
  const json request = Chat("x", {{"stream", true}, {"max_tokens", 3000}});
  const std::vector<SseEvent> events = ParseSse(Post(server.port(), "/v1/messages", request).body);
  ASSERT_GT(events.size(), 4u);
  const json start = json::parse(events.front().data);
  EXPECT_EQ(start["message"]["usage"]["cached_tokens_by_tier"], json({{"disk", 4}}));
  const json end = json::parse(events[events.size() - 2].data);
  EXPECT_EQ(end["usage"]["cached_tokens_by_tier"], json({{"disk", 4}}));
}

TEST(ApiService, HowLongAPrefixIsKeptReachesTheEngine) {
  TestServer server(Says("Yes."));
  const json fields = {{"cache_ttl", "2h"}, {"no_store", true}};
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat("x", fields)).status, 200);
  EXPECT_EQ(Post(server.port(), "/v1/messages", Chat("x", fields)).status, 200);
  json completion = {{"model", "nano"}, {"prompt", "x"}};
  EXPECT_EQ(Post(server.port(), "/v1/completions", completion).status, 200);
  completion.update(fields);
  EXPECT_EQ(Post(server.port(), "/v1/completions", completion).status, 200);
  const std::vector<GenerationRequest> requests = server.engine.requests();
  ASSERT_EQ(requests.size(), 4u);
  for (const size_t with : {0u, 1u, 3u}) {
    EXPECT_EQ(requests[with].cache_ttl_seconds, 7200);
    EXPECT_TRUE(requests[with].no_store);
  }
  EXPECT_EQ(requests[2].cache_ttl_seconds, std::nullopt);
  EXPECT_FALSE(requests[2].no_store);
  const ClientResponse refused = Post(server.port(), "/v1/responses", Chat("x", {{"cache_ttl", "forever"}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "cache_ttl");
}

TEST(ApiService, LoadTellsTheTiersAndNotWhyOneIsDown) {
  TestServer server(Says("Yes."));
  EXPECT_EQ(Get(server.port(), "/load").json()["kv_tiers"], json::array());
  KvTierStatistics host;
  host.name = "host";
  KvTierStatistics disk;
  disk.name = "disk";
  disk.up = false;
  disk.reason = "/secret/place: no space";
  disk.records = 10;
  disk.bytes = 570'000;
  disk.budget_bytes = 1'000'000;
  disk.cached_tokens = 640;
  disk.queued_bytes = 57'000;
  server.engine.SetTiers({host, disk});
  const ClientResponse load = Get(server.port(), "/load");
  ASSERT_EQ(load.json()["kv_tiers"].size(), 2u);
  EXPECT_EQ(load.json()["kv_tiers"][0]["name"], "host");
  EXPECT_EQ(load.json()["kv_tiers"][1], json({{"name", "disk"},
                                              {"up", false},
                                              {"records", 10},
                                              {"bytes", 570'000},
                                              {"budget_bytes", 1'000'000},
                                              {"cached_tokens", 640},
                                              {"queued_bytes", 57'000}}));
  EXPECT_EQ(load.body.find("secret"), std::string::npos);
}

TEST(ApiService, WantsAKeyForAllButHealth) {
  TestServerOptions options;
  options.api_keys = "alice:secret-a concurrency=1\nbob:secret-b requests_per_minute=1\n";
  TestServer server(&Held, options);
  for (const char* path : {"/v1/models", "/metrics", "/version", "/load", "/v1/responses/x"}) {
    EXPECT_EQ(Get(server.port(), path).status, 401) << path;
  }
  for (const char* path : {"/health", "/ready", "/"}) EXPECT_EQ(Get(server.port(), path).status, 200) << path;
  EXPECT_EQ(Get(server.port(), "/v1/models", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(Get(server.port(), "/v1/models", "Authorization: Bearer secret-a\r\n").status, 200);
  EXPECT_EQ(Get(server.port(), "/v1/models", "x-api-key: secret-b\r\n").status, 200);

  const std::string alice = "Authorization: Bearer secret-a\r\n";
  HttpClient first(server.port());
  const std::string body = Chat("x").dump();
  first.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n" + alice +
             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  while (server.engine.running() == 0) std::this_thread::yield();
  const ClientResponse second = Post(server.port(), "/v1/chat/completions", Chat("x"), alice);
  EXPECT_EQ(second.status, 429);
  EXPECT_GE(std::stoi(second.headers.at("retry-after")), 1);
  EXPECT_NE(second.body.find("at once"), std::string::npos);
  server.engine.Release();
  EXPECT_EQ(first.Receive().status, 200);

  // Keys share no prefixes.
  HttpClient bob(server.port());
  bob.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nx-api-key: secret-b\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  while (server.engine.requests().size() < 2) std::this_thread::yield();
  EXPECT_NE(server.engine.requests()[0].cache_salt, server.engine.requests()[1].cache_salt);
  const ClientResponse limited = Post(server.port(), "/v1/messages", Chat("x"), "x-api-key: secret-b\r\n");
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(limited.json()["error"]["type"], "rate_limit_error");
  server.engine.Release();
  EXPECT_EQ(bob.Receive().status, 200);
}

TEST(ApiService, StoresResponsesAndGoesOnFromThem) {
  TestServer server(Says("Paris."));
  json request = {{"model", "nano"}, {"input", "Capital of France?"}, {"reasoning", {{"effort", "none"}}}};
  const json first = Post(server.port(), "/v1/responses", request).json();
  ASSERT_EQ(first["status"], "completed") << first;
  const std::string id = first["id"];
  EXPECT_EQ(Get(server.port(), "/v1/responses/" + id).json()["output"], first["output"]);
  const json items = Get(server.port(), "/v1/responses/" + id + "/input_items").json();
  ASSERT_EQ(items["data"].size(), 1u) << items;

  request["input"] = "And of Spain?";
  request["previous_response_id"] = id;
  ASSERT_EQ(Post(server.port(), "/v1/responses", request).json()["status"], "completed");
  const json whole = {{"model", "nano"},
                      {"reasoning", {{"effort", "none"}}},
                      {"input",
                       {{{"role", "user"}, {"content", "Capital of France?"}},
                        {{"role", "assistant"}, {"content", "Paris."}},
                        {{"role", "user"}, {"content", "And of Spain?"}}}}};
  ASSERT_EQ(Post(server.port(), "/v1/responses", whole).json()["status"], "completed");
  const auto requests = server.engine.requests();
  EXPECT_EQ(requests[1].prompt, requests[2].prompt);

  HttpClient client(server.port());
  client.Send("DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.Receive().json()["deleted"], true);
  EXPECT_EQ(Get(server.port(), "/v1/responses/" + id).status, 404);
  EXPECT_EQ(Post(server.port(), "/v1/responses", request).status, 404);
  request.erase("previous_response_id");
  request["store"] = false;
  const json unkept = Post(server.port(), "/v1/responses", request).json();
  EXPECT_EQ(Get(server.port(), "/v1/responses/" + unkept["id"].get<std::string>()).status, 404);
}

TEST(ApiService, CompletesPromptsOfEveryForm) {
  TestServer server(Says(" and so on"));
  const json body = Post(server.port(), "/v1/completions",
                         {{"model", "nano"}, {"prompt", {"one", "two"}}, {"n", 2}, {"echo", true}, {"logprobs", 2}})
                        .json();
  ASSERT_EQ(body["choices"].size(), 4u) << body;
  EXPECT_EQ(body["choices"][0]["text"], "one and so on");
  EXPECT_EQ(body["choices"][3]["text"], "two and so on");
  const json ids = {{"model", "nano"}, {"prompt", {0, 1000, 1001}}, {"max_tokens", 1}};
  const json one = Post(server.port(), "/v1/completions", ids).json();
  EXPECT_EQ(one["choices"][0]["finish_reason"], "length") << one;
  EXPECT_EQ(server.engine.requests().back().prompt, (std::vector<int32_t>{0, 1000, 1001}));
  const json stopped =
      Post(server.port(), "/v1/completions", {{"model", "nano"}, {"prompt", "x"}, {"stop", " so"}}).json();
  EXPECT_EQ(stopped["choices"][0]["text"], " and");
}

TEST(ApiService, TokenizesAndBack) {
  TestServer server(Says("x"));
  const json tokens = Post(server.port(), "/tokenize", {{"prompt", "Hello <think>"}}).json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["tokens"][0], 0);
  const json text = Post(server.port(), "/v1/detokenize", {{"tokens", tokens["tokens"]}}).json();
  EXPECT_EQ(text["prompt"], std::string(special_token::kBeginOfSentence) + "Hello <think>");
  EXPECT_EQ(Post(server.port(), "/detokenize", {{"tokens", {1 << 30}}}).status, 400);
  const json chat = Post(server.port(), "/tokenize", Chat("Hello")).json();
  ASSERT_EQ(Post(server.port(), "/v1/chat/completions", Chat("Hello")).status, 200);
  EXPECT_EQ(chat["tokens"].get<std::vector<int32_t>>(), server.engine.requests().back().prompt);
  const json counted = Post(server.port(), "/v1/messages/count_tokens",
                            {{"model", "nano"},
                             {"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                             {"thinking", {{"type", "disabled"}}}})
                           .json();
  EXPECT_EQ(counted["input_tokens"], chat["count"]) << counted;
}

TEST(ApiService, AllowsTheOriginsThatItWasTold) {
  TestServerOptions options;
  options.service.allowed_origins = {"https://chat.example"};
  TestServer server(Says("x"), options);
  HttpClient client(server.port());
  client.Send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\nOrigin: https://chat.example\r\n\r\n");
  const ClientResponse preflight = client.Receive();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_NE(preflight.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(client.Get("/v1/models", "Origin: https://other.example\r\n").headers.count("access-control-allow-origin"),
            0u);
}

TEST(ApiService, DrainsAndAborts) {
  TestServer server(&Held);
  HttpClient running(server.port());
  const std::string body = Chat("x", {{"stream", true}}).dump();
  running.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  while (server.engine.running() == 0) std::this_thread::yield();
  HttpClient other(server.port());
  EXPECT_EQ(other.Get("/ready").status, 200);
  server.service->BeginDrain();
  EXPECT_EQ(other.Get("/ready").status, 503);
  EXPECT_EQ(other.Get("/health").status, 200);
  const ClientResponse refused = other.Post("/v1/chat/completions", Chat("x").dump());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  server.service->Abort();
  EXPECT_EQ(other.Post("/tokenize", R"({"prompt":"x"})").status, 503);
  server.http->StopAccepting();
  server.http->PokeAll();
  const ClientResponse cut = running.Receive();
  EXPECT_EQ(cut.status, 503);
  EXPECT_NE(cut.body.find("shutting down"), std::string::npos);
  server.engine.WaitIdle();
  EXPECT_EQ(server.engine.cancelled(), 1);
}

TEST(ApiService, SaysWhenTheEngineHasFailedForGood) {
  TestServer server(Says("x"));
  HttpClient client(server.port());
  server.metrics.SetHealthy(true);
  EXPECT_EQ(client.Get("/health").json(), json({{"status", "ok"}}));
  EXPECT_EQ(client.Get("/ready").json(), json({{"status", "ready"}}));
  server.engine.FailForGood(Status::Internal("the device \"a\" has failed; restart the program"));
  for (const char* path : {"/health", "/livez", "/ready", "/readyz"}) {
    const ClientResponse response = client.Get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(response.json(),
              json({{"status", "failed"}, {"reason", "the device \"a\" has failed; restart the program"}}))
        << path;
  }
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    json body = Chat("x");
    body["max_tokens"] = 4;
    const ClientResponse refused = client.Post(path, body.dump());
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(refused.headers.count("retry-after"), 1u) << path;
    EXPECT_NE(refused.json()["error"]["message"].get<std::string>().find("restart the program"), std::string::npos);
  }
  EXPECT_NE(client.Get("/metrics").body.find("deepinfer_engine_healthy{model_name=\"nano\"} 0\n"), std::string::npos);
  server.service->BeginDrain();
  EXPECT_EQ(client.Get("/ready").json()["status"], "draining");
}

TEST(ApiService, NamesItsModels) {
  TestServerOptions options;
  options.strict_names = true;
  TestServer server(Says("x"), options);
  const json models = Get(server.port(), "/v1/models").json();
  EXPECT_EQ(models["data"][0]["id"], "nano");
  EXPECT_EQ(Get(server.port(), "/models/nano").status, 200);
  EXPECT_EQ(Get(server.port(), "/v1/models/other").status, 404);
  json other = Chat("x");
  other["model"] = "other";
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", other).status, 404);
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat("x")).status, 200);
}

}  // namespace
}  // namespace deepinfer::testing
