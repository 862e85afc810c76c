// LoadBar: the progress of weights on their way to a device, as a line on standard error where that is a terminal.
//
// Thread-safety: one thread. Ownership: progress() must not be called after the end of the bar.
#ifndef DEEPINFER_APP_LOAD_BAR_H_
#define DEEPINFER_APP_LOAD_BAR_H_

#include <optional>

#include "app/progress_bar.h"
#include "ops/weight_list.h"

namespace deepinfer {

class LoadBar {
 public:
  LoadProgress progress();

 private:
  std::optional<ProgressBar> bar_;
  int64_t total_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_BAR_H_
