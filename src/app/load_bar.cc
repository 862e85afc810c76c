#include "app/load_bar.h"

#include "engine/engine_plan.h"

namespace deepinfer {

LoadBar::LoadBar(const Checkpoint& checkpoint, EngramPlace engram)
    : table_bytes_(TablesInHostMemory(checkpoint, {.engram_in_memory = true})), engram_(engram) {}

std::string LoadBar::Label(int64_t total, int64_t table_bytes, EngramPlace engram) {
  // Tables that go to host memory come alone, behind the weights; those that go to a device, with the weights.
  if (total == table_bytes) return "reading Engram tables, MiB";
  return engram == EngramPlace::kDevice && table_bytes > 0 ? "loading weights and Engram tables, MiB"
                                                           : "loading weights, MiB";
}

LoadProgress LoadBar::progress() {
  return [this](int64_t done, int64_t total) {
    if (!bar_ || total != total_) bar_.emplace(Label(total, table_bytes_, engram_), total >> 20);
    total_ = total;
    bar_->Update(done >> 20);
    if (done == total) bar_.reset();
  };
}

}  // namespace deepinfer
