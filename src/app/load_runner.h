// RunLoad: sends the requests of a load at their times and reads the streams.
//
// An open loop: arrivals do not wait for answers, unless a greatest concurrency makes them. Thread-safety: the calling
// thread does all of it. Ownership: the client outlives the call. Ctrl-C (Interrupt) ends it early.
#ifndef DEEPINFER_APP_LOAD_RUNNER_H_
#define DEEPINFER_APP_LOAD_RUNNER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/http_load_client.h"
#include "app/load_answer.h"

namespace deepinfer {

struct LoadPlan {
  std::string path;
  std::vector<double> arrivals;  ///< [requests] seconds after the start, ascending
  int64_t max_concurrency = 0;   ///< 0: none
  /// Body of a request; called right before it is sent.
  std::function<std::string(int64_t index)> body;
  /// Called about ten times a second.
  std::function<void(int64_t done, int64_t running)> progress;
};

struct LoadRun {
  std::vector<LoadRecord> records;  ///< [requests]
  double start = 0;                 ///< seconds of the records' clock
  bool interrupted = false;
};

LoadRun RunLoad(HttpLoadClient& client, const LoadPlan& plan);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_RUNNER_H_
