// bench serve, through the real binary, on the real server with a scripted engine. Figures are checked for adding up;
// speed is nobody's test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "program.h"
#include "temporary_folder.h"
#include "test_certificate.h"
#include "test_server.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;
using testing::FakeAnswer;
using testing::TestServer;
using testing::TestServerOptions;

constexpr char kAnswer[] = "</think>\n\na few words";

ProgramResult Bench(const TestServer& server, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"bench", "serve", "--base-url", server.http->address()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return RunProgram(arguments, "", {"OPENAI_API_KEY="});
}

Json BenchJson(const TestServer& server, std::vector<std::string> flags) {
  flags.emplace_back("--json");
  const ProgramResult result = Bench(server, flags);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out, nullptr, false);
}

TEST(BenchServe, CountsWhatTheServerSaid) {
  TestServer server([](const GenerationRequest& request) {
    FakeAnswer answer = testing::Says(kAnswer)(request);
    answer.cached_tokens = 4;
    return answer;
  });
  const size_t tokens = server.engine.IdsOf(kAnswer).size() - 1;
  const Json result = BenchJson(server, {"--num-prompts", "12", "--random-input-len", "20", "--random-output-len", "50",
                                         "--max-concurrency", "3"});
  EXPECT_EQ(result["model_id"], "nano");
  EXPECT_EQ(result["completed"], 12);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(result["total_output_tokens"], 12 * tokens);
  EXPECT_EQ(result["cached_input_tokens"], 12 * 4);
  EXPECT_LE(result["max_concurrent_requests"], 3);
  EXPECT_GE(result["max_concurrent_requests"], 1);
  EXPECT_GT(result["mean_ttft_ms"], 0);
  EXPECT_LE(result["mean_ttft_ms"], result["mean_e2el_ms"]);
  EXPECT_TRUE(result.contains("prefix_cache_hits"));
  EXPECT_TRUE(result.contains("spec_decode_num_drafts"));

  // One request first, to see whether the server can be asked at all.
  const std::vector<GenerationRequest> requests = server.engine.requests();
  ASSERT_EQ(requests.size(), 13u);
  int64_t prompt_tokens = 0;
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].sampling.max_tokens, 50);
    EXPECT_EQ(requests[i].sampling.temperature, 0);
    prompt_tokens += std::ssize(requests[i].prompt);
  }
  EXPECT_EQ(result["total_input_tokens"], prompt_tokens);
}

TEST(BenchServe, TextsHaveTheLengthThatWasAskedForAndComeFromTheSeed) {
  const auto prompts = [](const std::string& seed) {
    TestServer server(testing::Says("words"));
    BenchJson(server, {"--endpoint", "/v1/completions", "--num-prompts", "4", "--random-input-len", "100", "--seed",
                       seed, "--max-concurrency", "1", "--ignore-eos"});
    std::vector<std::vector<int32_t>> ids;
    for (const GenerationRequest& request : server.engine.requests()) {
      ids.push_back(request.prompt);
      EXPECT_TRUE(request.sampling.ignore_eos);
    }
    return ids;
  };
  const auto first = prompts("1");
  ASSERT_EQ(first.size(), 5u);
  // The begin-of-sentence token, and a first word that has no blank in front.
  for (size_t i = 1; i < first.size(); ++i) EXPECT_NEAR(static_cast<double>(first[i].size()), 101, 2);
  EXPECT_NE(first[1], first[2]);
  EXPECT_EQ(prompts("1"), first);
  EXPECT_NE(prompts("2")[1], first[1]);
}

TEST(BenchServe, AFilesPromptsAndTheSavedResult) {
  TestServer server(testing::Says(kAnswer));
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "prompts.jsonl").string();
  const std::string saved = (folder.path() / "result.json").string();
  std::ofstream(file) << R"({"prompt": "the first"})"
                      << "\n"
                      << R"({"messages": [{"role": "user", "content": "the second"}], "max_tokens": 9})"
                      << "\n";
  const Json result = BenchJson(server, {"--dataset", "file", "--dataset-path", file, "--thinking", "off",
                                         "--max-concurrency", "1", "--percentile", "50,99.5", "--save-result", saved});
  EXPECT_EQ(result["completed"], 2);
  EXPECT_TRUE(result.contains("p50_ttft_ms"));
  EXPECT_TRUE(result.contains("p99.5_ttft_ms"));
  const std::vector<GenerationRequest> requests = server.engine.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_NE(server.engine.Detokenize(requests[1].prompt).find("the first"), std::string::npos);
  EXPECT_NE(server.engine.Detokenize(requests[2].prompt).find("the second"), std::string::npos);
  EXPECT_EQ(requests[2].sampling.max_tokens, 9);
  std::ifstream stream(saved);
  const Json detailed = Json::parse(stream, nullptr, false);
  EXPECT_EQ(detailed["completed"], 2);
  EXPECT_EQ(detailed["ttfts"].size(), 2u);
  EXPECT_EQ(detailed["output_lens"].size(), 2u);
}

TEST(BenchServe, FailuresAreCountedWithTheirMessages) {
  TestServerOptions options;
  options.api_keys = "someone:secret-of-the-test requests_per_minute=3\n";
  TestServer server(testing::Says(kAnswer), options);
  const std::vector<std::string> flags = {"--num-prompts", "5", "--random-input-len", "5", "--max-concurrency", "1"};
  const ProgramResult none = Bench(server, flags);
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_NE(none.err.find("HTTP 401: no valid API key"), std::string::npos) << none.err;

  std::vector<std::string> with_key = flags;
  with_key.insert(with_key.end(), {"--api-key", "secret-of-the-test"});
  const ProgramResult some = Bench(server, with_key);
  EXPECT_EQ(some.exit_status, 0) << some.err;
  EXPECT_NE(some.out.find("Successful requests:                     2 "), std::string::npos) << some.out;
  EXPECT_NE(some.out.find("Failed requests:                         3 "), std::string::npos) << some.out;
  EXPECT_NE(some.out.find(" x HTTP 429: "), std::string::npos) << some.out;
}

TEST(BenchServe, AnAnswerThatBreaksOffIsAFailure) {
  TestServer server([count = std::make_shared<std::atomic<int>>(0)](const GenerationRequest& request) {
    FakeAnswer answer = testing::Says(kAnswer)(request);
    // Not the first, which must work, nor the second.
    if (++*count > 2) answer.status = Status::Internal("the engine is on fire");
    return answer;
  });
  const ProgramResult result = Bench(server, {"--num-prompts", "4", "--max-concurrency", "1"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_NE(result.out.find("Failed requests:                         3 "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("3 x error event: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("the engine is on fire"), std::string::npos) << result.out;
}

TEST(BenchServe, HundredsOfRequestsAtOnceThroughTls) {
  const TemporaryFolder folder;
  const TestCertificate certificate = TestCertificate::Make(folder.path());
  TestServerOptions options;
  options.http.ssl_certfile = certificate.certificate;
  options.http.ssl_keyfile = certificate.key;
  TestServer server(testing::Says(kAnswer), options);
  ASSERT_TRUE(server.http->address().starts_with("https://"));
  const std::vector<std::string> flags = {"bench",         "serve", "--base-url", server.http->address() + "/v1",
                                          "--num-prompts", "200",   "--json"};
  const ProgramResult unknown = RunProgram(flags);
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_NE(unknown.err.find("certificate verify failed"), std::string::npos) << unknown.err;
  std::vector<std::string> insecure = flags;
  insecure.emplace_back("--insecure");
  for (const ProgramResult& result :
       {RunProgram(insecure), RunProgram(flags, "", {"SSL_CERT_FILE=" + certificate.certificate})}) {
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["completed"], 200);
  }
}

TEST(BenchServe, TakesAUnixSocket) {
  const TemporaryFolder folder;
  TestServerOptions options;
  options.http.unix_socket = (folder.path() / "socket").string();
  TestServer server(testing::Says(kAnswer), options);
  EXPECT_EQ(BenchJson(server, {"--num-prompts", "3", "--dataset", "shared-prefix", "--prefix-len", "30",
                               "--num-prefixes", "2", "--request-rate", "1000"})["completed"],
            3);
}

TEST(BenchServe, CtrlCPrintsWhatThereIs) {
  // The first answer is for the question whether all is well, the next two count, all others never come.
  TestServer server([count = std::make_shared<std::atomic<int>>(0)](const GenerationRequest& request) {
    FakeAnswer answer = testing::Says(kAnswer)(request);
    answer.hold = ++*count > 3;
    return answer;
  });
  TerminalProgram program(
      {"bench", "serve", "--base-url", server.http->address(), "--num-prompts", "8", "--max-concurrency", "1"});
  ASSERT_TRUE(program.Expect(" 2/8 1 running"));
  program.Send("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_NE(program.screen().find("Successful requests:                     2 "), std::string::npos)
      << program.screen();
  EXPECT_NE(program.screen().find("Unfinished requests:                     6 "), std::string::npos)
      << program.screen();
  server.engine.WaitIdle();  // the one that was broken off is cancelled
}

TEST(BenchServe, SaysWhatIsWrongOnce) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> usage = {
      {{"--base-url", "localhost"}, "--base-url: expected an address"},
      {{"--endpoint", "/v1/embeddings"}, "--endpoint"},
      {{"--dataset", "sonnet"}, "--dataset"},
      {{"--dataset", "file"}, "--dataset-path"},
      {{"--dataset-path", "x"}, "--dataset-path"},
      {{"--prefix-len", "3"}, "--prefix-len: only with --dataset shared-prefix"},
      {{"--random-range-ratio", "1"}, "--random-range-ratio"},
      {{"--request-rate", "0"}, "--request-rate"},
      {{"--burstiness", "-1"}, "--burstiness"},
      {{"--percentile", "50,101"}, "--percentile"},
      {{"--temperature", "3"}, "--temperature"},
      {{"--endpoint", "/v1/completions", "--thinking", "on"}, "--thinking"},
      {{"--num-prompts", "0"}, "--num-prompts"},
  };
  for (const auto& [flags, named] : usage) {
    std::vector<std::string> arguments = {"bench", "serve"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 2) << named;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
  int port = 0;
  {
    const TestServer gone(testing::Says(kAnswer));
    port = gone.port();
  }
  const ProgramResult nobody = RunProgram({"bench", "serve", "--base-url", "http://127.0.0.1:" + std::to_string(port)});
  EXPECT_EQ(nobody.exit_status, 1);
  EXPECT_EQ(nobody.err, "deepinfer: --base-url: cannot connect: Connection refused\n");
}

}  // namespace
}  // namespace deepinfer
