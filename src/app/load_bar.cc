#include "app/load_bar.h"

namespace deepinfer {

LoadProgress LoadBar::progress() {
  return [this](int64_t done, int64_t total) {
    // Engram tables may follow the weights.
    if (!bar_ || total != total_) bar_.emplace("loading weights, MiB", total >> 20);
    total_ = total;
    bar_->Update(done >> 20);
    if (done == total) bar_.reset();
  };
}

}  // namespace deepinfer
