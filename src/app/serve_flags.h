// ServeFlags: the flags of `serve` that are not the engine's, and what they describe.
//
// Thread-safety: the main thread only. Ownership: outlives the parse.
#ifndef DEEPINFER_APP_SERVE_FLAGS_H_
#define DEEPINFER_APP_SERVE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "server/api_keys.h"
#include "server/api_service.h"
#include "server/http_server.h"

namespace CLI {
class App;
}

namespace deepinfer {

struct ServeFlags {
  HttpServerOptions http;
  ApiServiceOptions service;
  ApiKeys keys;
  std::vector<std::string> model_names;
  bool strict_model_names = false;
  std::string access_log = "-";  ///< off, - (standard error) or a file
  std::string response_store;    ///< off, memory or a file; empty: the default file
  int64_t response_days = 30;
  int64_t response_bytes = int64_t{1} << 30;
  bool vllm_metrics = false;
  int64_t drain_seconds = 30;

  void AddTo(CLI::App& flags);
  /// Errors name the flag.
  Status Check();

 private:
  void AddNetworkTo(CLI::App& flags);
  void AddAccessTo(CLI::App& flags);
  void AddApiTo(CLI::App& flags);

  std::vector<std::string> key_texts_;
  std::vector<std::string> key_files_;
  std::string thinking_ = "on";
  std::string effort_;
  std::string reasoning_history_ = "auto";
  std::string usage_chunk_ = "last";
  int64_t request_seconds_ = 60;
  int64_t write_seconds_ = 30;
  int64_t idle_seconds_ = 75;
  int64_t keep_alive_seconds_ = 10;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SERVE_FLAGS_H_
