// The real server on an engine that says a fixed text at once: for load generators and for measuring the server alone.
// Usage: fake_server [--port N] [--tokens N] [--hold] [--hold-after N] [--step-us N]; prints its address, takes the
// words "release", "running" and "connections" on standard input, ends when that does.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "test_server.h"
#include "text/prompt_segments.h"
#include "tokenizer_fixture.h"

int main(int argument_count, char** arguments) {
  using namespace deepinfer;
  testing::TestServerOptions options;
  options.service.max_waiting = 1 << 20;
  size_t tokens = 100;
  bool hold = false;
  size_t hold_after = 0;
  std::chrono::microseconds step{0};
  for (int i = 1; i < argument_count; ++i) {
    const std::string flag = arguments[i];
    if (flag == "--hold" || flag == "--hold-after") hold = true;
    if (flag == "--hold-after" && i + 1 < argument_count) hold_after = std::strtoul(arguments[++i], nullptr, 10);
    if (flag == "--step-us" && i + 1 < argument_count) step = std::chrono::microseconds(std::atol(arguments[++i]));
    if (flag == "--port" && i + 1 < argument_count) options.http.port = std::atoi(arguments[++i]);
    if (flag == "--tokens" && i + 1 < argument_count) tokens = std::strtoul(arguments[++i], nullptr, 10);
  }
  std::vector<int32_t> words;
  (void)testing::NanoTokenizer().Encode(" a plain sentence of words", &words);
  testing::TestServer server(
      [&](const GenerationRequest&) {
        testing::FakeAnswer answer;
        for (size_t i = 0; i < tokens; ++i) answer.ids.push_back(words[i % words.size()]);
        answer.ids.push_back(*testing::NanoTokenizer().IdOfAddedToken(special_token::kEndOfSentence));
        answer.hold = hold;
        answer.hold_after = hold_after;
        return answer;
      },
      options);
  server.engine.SetStep(step);
  std::cout << server.http->address() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "release") server.engine.Release();
    if (line == "running") std::cout << server.engine.running() << std::endl;
    if (line == "connections") std::cout << server.http->connections() << std::endl;
  }
  return 0;
}
