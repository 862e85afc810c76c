// serve: the real binary with the Nano model on real sockets: how it starts, what it refuses, how it ends.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/http_load_client.h"
#include "http_client.h"
#include "program.h"
#include "temporary_folder.h"
#include "test_certificate.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;
using testing::ClientResponse;
using testing::HttpClient;

// `deepinfer serve` on a free port, up to the line that tells it.
class Server {
 public:
  explicit Server(const std::vector<std::string>& flags) : program_(Arguments(flags)) {
    if (!program_.Expect(" is served at ") || !program_.Expect(" (")) {
      ADD_FAILURE() << program_.screen();
      return;
    }
    const std::string& screen = program_.screen();
    const size_t begin = screen.find(" is served at ") + 14;
    address_ = screen.substr(begin, screen.find(" (", begin) - begin);
    const size_t colon = address_.rfind(':');
    if (address_.starts_with("http")) port_ = std::stoi(address_.substr(colon + 1));
  }

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  TerminalProgram& program() { return program_; }
  /// The exit status after SIGTERM.
  int Terminate() {
    program_.Signal(SIGTERM);
    return program_.Wait();
  }

 private:
  static std::vector<std::string> Arguments(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"serve", "--port", "0", "--response-store", "memory"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  }

  TerminalProgram program_;
  std::string address_;
  int port_ = 0;
};

Json Request(int64_t max_tokens, bool stream) {
  return {{"model", "nano"},          {"stream", stream},
          {"max_tokens", max_tokens}, {"ignore_eos", true},
          {"temperature", 0},         {"messages", {{{"role", "user"}, {"content", "Tell me about the sea."}}}}};
}

// A stream of `max_tokens` tokens that has begun.
void BeginStream(HttpClient* client, int64_t max_tokens) {
  const std::string body = Request(max_tokens, true).dump();
  client->Send("POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  ASSERT_TRUE(client->ReceiveUntil("data: "));
}

// Nearly all of Nano's context: longer than these tests wait.
constexpr int64_t kEndless = 8'000;

TEST(Serve, AnswersAndEndsOnSigterm) {
  Server server({});
  EXPECT_EQ(server.address(), "http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(testing::Get(server.port(), "/health").status, 200);
  EXPECT_EQ(testing::Get(server.port(), "/ready").status, 200);
  EXPECT_EQ(testing::Get(server.port(), "/v1/models").json()["data"][0]["id"], "nano");
  const ClientResponse answer = testing::Post(server.port(), "/v1/chat/completions", Request(8, false));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 8);
  EXPECT_EQ(server.Terminate(), 0);
  EXPECT_EQ(testing::Get(server.port(), "/health").status, 0);
}

TEST(Serve, WhatASaltHasLeftIsFoundByIt) {
  const TemporaryFolder folder;
  const std::string disk = (folder.path() / "kv").string();
  Json request = Request(1, false);
  request["cache_salt"] = "blue";
  {
    Server server({"--kv-disk", disk, "--kv-least-tokens", "1"});
    request["messages"][0]["content"] = std::string(2'000, 'z');
    EXPECT_EQ(testing::Post(server.port(), "/v1/chat/completions", request).status, 200);
    EXPECT_EQ(server.Terminate(), 0);
  }
  const auto removed = [&](const std::string& salt) {
    return RunProgram({"kv", "delete", "--kv-disk", disk, "--salt", salt}).out;
  };
  EXPECT_NE(removed("").find("removed 0 segments"), std::string::npos);
  EXPECT_NE(removed("green").find("removed 0 segments"), std::string::npos);
  EXPECT_NE(removed("blue").find("removed 1 segments"), std::string::npos);
}

TEST(Serve, CtrlCEndsItToo) {
  Server server({});
  server.program().Send("\x03");
  EXPECT_EQ(server.program().Wait(), 0);
}

TEST(Serve, StreamsAreFinishedAfterSigterm) {
  Server server({"--drain-timeout", "600"});
  HttpClient client(server.port());
  BeginStream(&client, 200);
  server.program().Signal(SIGTERM);
  ASSERT_TRUE(server.program().Expect("stopping: 1 connections may finish within 600 s"));
  EXPECT_EQ(testing::Get(server.port(), "/ready").status, 0);  // nobody listens any more
  const ClientResponse response = client.Receive();
  EXPECT_TRUE(response.complete);
  const std::vector<testing::SseEvent> events = testing::ParseSse(response.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().data, "[DONE]");
  EXPECT_EQ(Json::parse(events[events.size() - 2].data)["usage"]["completion_tokens"], 200);
  EXPECT_EQ(server.program().Wait(), 0);
}

// Streams that were cut off say so and end well.
void ExpectCutOff(HttpClient* client) {
  const ClientResponse response = client->Receive();
  EXPECT_TRUE(response.complete);
  const std::vector<testing::SseEvent> events = testing::ParseSse(response.body);
  ASSERT_FALSE(events.empty());
  EXPECT_NE(response.body.find("the server is shutting down"), std::string::npos) << response.body.substr(0, 2000);
}

TEST(Serve, StreamsAreCutOffWhenTheDrainTimeIsOver) {
  Server server({"--drain-timeout", "0"});
  HttpClient client(server.port());
  BeginStream(&client, kEndless);
  server.program().Signal(SIGTERM);
  ExpectCutOff(&client);
  EXPECT_EQ(server.program().Wait(), 0);
}

TEST(Serve, ASecondSignalStopsAtOnce) {
  Server server({"--drain-timeout", "86400"});
  HttpClient client(server.port());
  BeginStream(&client, kEndless);
  server.program().Signal(SIGTERM);
  ASSERT_TRUE(server.program().Expect("a second signal stops at once"));
  server.program().Signal(SIGINT);
  ExpectCutOff(&client);
  EXPECT_EQ(server.program().Wait(), 0);
}

TEST(Serve, APortInUseIsAnErrorThatNamesIt) {
  Server server({});
  const std::string port = std::to_string(server.port());
  const ProgramResult second = RunProgram({"serve", "--port", port, "--response-store", "memory"});
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_EQ(second.err, "deepinfer: cannot listen on 127.0.0.1 port " + port +
                            ": Address already in use; choose another --port or --host\n");
  EXPECT_EQ(server.Terminate(), 0);
}

TEST(Serve, WrongFlagsAreErrorsThatNameThem) {
  const TemporaryFolder folder;
  const std::string text = (folder.path() / "text").string();
  std::ofstream(text) << "no certificate\n";
  const std::pair<std::vector<std::string>, std::string> usage[] = {
      {{"--port", "70000"}, "--port"},
      {{"--ssl-certfile", text}, "--ssl-keyfile"},
      {{"--uds", folder.path() / "s", "--ssl-certfile", text, "--ssl-keyfile", text}, "--uds"},
      {{"--uds", std::string(200, 'x')}, "--uds"},
      {{"--effort", "extreme"}, "--effort"},
      {{"--thinking", "maybe"}, "--thinking"},
      {{"--drain-timeout", "-1"}, "--drain-timeout"},
      {{"--served-model-name", ""}, "--served-model-name"},
      {{"--api-key-file", "/nonexistent"}, "--api-key-file"},
      {{"--max-num-seqs", "0"}, "--max-num-seqs"},
      {{"--prot", "1"}, "--port"},
  };
  for (const auto& [flags, named] : usage) {
    std::vector<std::string> arguments = {"serve"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 2) << named << ": " << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
  const std::pair<std::vector<std::string>, std::string> at_run_time[] = {
      {{"--ssl-certfile", text, "--ssl-keyfile", text}, "--ssl-certfile"},
      {{"--host", "no.such.host.invalid"}, "--host"},
      {{"--uds", text}, "--uds"},
      {{"--model", "/nonexistent"}, "/nonexistent"},
      {{"--response-store", text + "/store"}, text},  // below what is no folder
      {{"--access-log", text + "/log"}, text},
  };
  for (const auto& [flags, named] : at_run_time) {
    std::vector<std::string> arguments = {"serve", "--port", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(arguments, "", {"HOME=" + folder.path().string(), "XDG_STATE_HOME="});
    EXPECT_EQ(result.exit_status, 1) << named << ": " << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  }
  EXPECT_TRUE(std::filesystem::exists(text));  // what --uds found in its place is not removed
}

TEST(Serve, DryRunPrintsThePlanAndServesNothing) {
  const ProgramResult result = RunProgram({"serve", "--dry-run", "--max-num-seqs", "2"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find(" bytes  all of these\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" of the checkpoint, mapped"), std::string::npos) << result.out;
}

HttpLoadResponse FetchOver(const std::string& address, const HttpLoadRequest& request, bool verify = true) {
  Result<ServerUrl> url = ServerUrl::Parse(address);
  EXPECT_TRUE(url.ok());
  HttpLoadOptions options;
  options.verify_certificate = verify;
  Result<std::unique_ptr<HttpLoadClient>> client = HttpLoadClient::Open(*url, options);
  EXPECT_TRUE(client.ok());
  return (*client)->Fetch(request);
}

TEST(Serve, ListensOnAUnixSocket) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "socket").string();
  Server server({"--uds", path});
  EXPECT_EQ(server.address(), "unix:" + path);
  const HttpLoadResponse response =
      FetchOver(server.address(), {.method = "POST", .path = "/v1/chat/completions", .body = Request(4, false).dump()});
  EXPECT_EQ(response.status, 200) << response.broken;
  EXPECT_EQ(Json::parse(response.body)["usage"]["completion_tokens"], 4);
  EXPECT_EQ(server.Terminate(), 0);
  struct stat found {};
  EXPECT_NE(stat(path.c_str(), &found), 0);  // nothing is left behind
}

TEST(Serve, SpeaksTls) {
  const TemporaryFolder folder;
  const TestCertificate certificate = TestCertificate::Make(folder.path());
  Server server({"--ssl-certfile", certificate.certificate, "--ssl-keyfile", certificate.key});
  EXPECT_EQ(server.address(), "https://127.0.0.1:" + std::to_string(server.port()));
  const HttpLoadRequest request{.method = "POST", .path = "/v1/chat/completions", .body = Request(4, true).dump()};
  const HttpLoadResponse response = FetchOver(server.address(), request, false);
  EXPECT_EQ(response.status, 200) << response.broken;
  EXPECT_NE(response.body.find("data: [DONE]"), std::string::npos) << response.body;
  EXPECT_NE(FetchOver(server.address(), request).broken.find("certificate verify failed"), std::string::npos);
  // Without TLS nothing is said.
  EXPECT_EQ(testing::Get(server.port(), "/health").status, 0);
  EXPECT_EQ(server.Terminate(), 0);
}

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Serve, KeysOpenItAndNeitherTheyNorPromptsAreLogged) {
  const TemporaryFolder folder;
  const std::string keys = (folder.path() / "keys").string();
  const std::string log = (folder.path() / "log").string();
  std::ofstream(keys) << "# who may\nalice:sk-key-of-alice-0123456789\n\nbob:sk-key-of-bob-0123456789 concurrency=1\n";
  ASSERT_EQ(chmod(keys.c_str(), 0600), 0);
  Server server({"--api-key-file", keys, "--access-log", log});
  Json request = Request(4, false);
  request["messages"][0]["content"] = "a secret question";
  const auto status = [&](const std::string& header) {
    return testing::Post(server.port(), "/v1/chat/completions", request, header).status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("Authorization: Bearer sk-key-of-nobody-0123456\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer sk-key-of-alice-0123456789\r\n"), 200);
  EXPECT_EQ(status("x-api-key: sk-key-of-bob-0123456789\r\n"), 200);
  EXPECT_EQ(testing::Get(server.port(), "/health").status, 200);
  EXPECT_EQ(testing::Get(server.port(), "/metrics").status, 401);
  EXPECT_EQ(testing::Get(server.port(), "/metrics?key=sk-key-of-alice-0123456789").status, 401);
  EXPECT_EQ(server.Terminate(), 0);

  const std::string lines = FileText(log);
  EXPECT_NE(lines.find("alice"), std::string::npos) << lines;
  EXPECT_NE(lines.find("bob"), std::string::npos) << lines;
  EXPECT_NE(lines.find("/v1/chat/completions"), std::string::npos) << lines;
  for (const std::string& text : {lines, server.program().screen()}) {
    EXPECT_EQ(text.find("sk-key"), std::string::npos) << text;
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace deepinfer
