#include "test_server.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "server/random_id.h"
#include "server/served_model.h"
#include "text/prompt_segments.h"
#include "tokenizer_fixture.h"

namespace deepinfer::testing {
namespace {

template <typename T>
T ValueOf(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::cerr << result.status().message() << "\n";
  std::abort();
}

}  // namespace

FakeEngine::Script Says(const std::string& text) {
  return [text](const GenerationRequest&) {
    FakeAnswer answer;
    (void)NanoTokenizer().EncodeWithSpecial(text, &answer.ids);
    answer.ids.push_back(*NanoTokenizer().IdOfAddedToken(special_token::kEndOfSentence));
    return answer;
  };
}

TestServer::TestServer(FakeEngine::Script script, TestServerOptions options)
    : engine(&NanoTokenizer(), std::move(script), options.max_model_len),
      metrics({.model_name = "nano", .version = "test", .max_model_len = options.max_model_len, .vllm_names = false}),
      log(ValueOf(AccessLog::Open(options.access_log))),
      store(ValueOf(ResponseStore::Open({}))) {
  if (!options.api_keys.empty()) {
    const auto path = std::filesystem::temp_directory_path() / RandomId("deepinfer-test-keys-");
    std::ofstream(path) << options.api_keys;
    if (const Status status = keys.AddFile(path); !status.ok()) ValueOf(Result<int>(status));
    std::filesystem::remove(path);
  }
  ApiServiceParts parts;
  parts.model = ServedModel::Of(&engine, &NanoTokenizer());
  static GrammarCompiler grammars(NanoTokenizer(), NanoTokenizer().vocab_size(),
                                  {*NanoTokenizer().IdOfAddedToken(special_token::kDsml)});
  parts.model.grammars = &grammars;
  parts.model.names = {"nano"};
  parts.model.strict_names = options.strict_names;
  parts.model.system_fingerprint = "fp_test";
  parts.keys = &keys;
  parts.limiter = &limiter;
  parts.metrics = &metrics;
  parts.log = log.get();
  parts.store = store.get();
  service = std::make_unique<ApiService>(options.service, std::move(parts));
  http = ValueOf(HttpServer::Start(
      options.http,
      [this](HttpConnection& connection, HttpRequest request) {
        return service->Handle(connection, std::move(request));
      },
      &ApiService::ErrorPage));
}

TestServer::~TestServer() {
  // Connections refer to the service.
  http.reset();
}

}  // namespace deepinfer::testing
