// LoadBar: the progress of weights and Engram tables on their way to where they are used, as a line on standard error
// where that is a terminal.
//
// Thread-safety: one thread. Ownership: progress() must not be called after the end of the bar.
#ifndef DEEPINFER_APP_LOAD_BAR_H_
#define DEEPINFER_APP_LOAD_BAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "app/progress_bar.h"
#include "checkpoint/weights.h"
#include "deepinfer/engine.h"
#include "ops/weight_list.h"

namespace deepinfer {

class LoadBar {
 public:
  LoadBar(const Checkpoint& checkpoint, EngramPlace engram);

  LoadProgress progress();

  /// What `total` bytes are that come at once, where Engram tables have `table_bytes` and belong at `engram`.
  static std::string Label(int64_t total, int64_t table_bytes, EngramPlace engram);

 private:
  int64_t table_bytes_;
  EngramPlace engram_;
  std::optional<ProgressBar> bar_;
  int64_t total_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_BAR_H_
