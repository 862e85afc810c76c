#include "base/generated_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>

namespace deepinfer {
namespace {

std::mutex registry_mutex;
std::vector<GeneratedWeights*> registry;

int64_t PageBytes() { return sysconf(_SC_PAGESIZE); }

}  // namespace

Result<std::unique_ptr<GeneratedWeights>> GeneratedWeights::Reserve(int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 1);
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::ResourceExhausted("no address space for weights of " + std::to_string(bytes) + " bytes");
  }
  std::unique_ptr<GeneratedWeights> weights(new GeneratedWeights(static_cast<uint8_t*>(memory), bytes));
  const std::lock_guard lock(registry_mutex);
  registry.push_back(weights.get());
  return weights;
}

GeneratedWeights::~GeneratedWeights() {
  const std::lock_guard lock(registry_mutex);
  std::erase(registry, this);
  munmap(begin_, static_cast<size_t>(bytes_));
}

const uint8_t* GeneratedWeights::Add(const WeightRecipe& recipe, int64_t bytes) {
  assert(used_ + bytes <= bytes_);
  entries_.push_back({used_, recipe});
  const uint8_t* address = begin_ + used_;
  used_ += Padded(bytes);
  return address;
}

Result<const uint8_t*> GeneratedWeights::AddReadable(const WeightRecipe& recipe, int64_t bytes) {
  const uint8_t* address = Add(recipe, bytes);
  const int64_t page = PageBytes();
  const int64_t first = (address - begin_) / page * page;
  const auto length = static_cast<size_t>(address - begin_ + bytes - first);
  if (mprotect(begin_ + first, length, PROT_READ | PROT_WRITE) != 0) {
    return Status::ResourceExhausted("no memory for a table of " + std::to_string(bytes) + " bytes");
  }
  if (bytes <= kMostFilledBytes) FillGenerated(recipe, 0, bytes, begin_ + (address - begin_));
  return address;
}

std::optional<GeneratedWeights::Place> GeneratedWeights::Find(const void* address) {
  const auto* byte = static_cast<const uint8_t*>(address);
  const std::lock_guard lock(registry_mutex);
  for (const GeneratedWeights* weights : registry) {
    if (byte < weights->begin_ || byte >= weights->begin_ + weights->used_) continue;
    const int64_t at = byte - weights->begin_;
    const auto above = std::ranges::upper_bound(weights->entries_, at, {}, &Entry::begin);
    const Entry& entry = *std::prev(above);
    return Place{entry.recipe, at - entry.begin};
  }
  return std::nullopt;
}

void FillGenerated(const WeightRecipe& recipe, int64_t offset, int64_t bytes, uint8_t* to) {
  while (bytes > 0) {
    const uint64_t word = recipe.Word(offset / 8, recipe.table.data());
    const int64_t skipped = offset % 8;
    const int64_t part = std::min(8 - skipped, bytes);
    std::memcpy(to, reinterpret_cast<const uint8_t*>(&word) + skipped, static_cast<size_t>(part));
    to += part;
    offset += part;
    bytes -= part;
  }
}

}  // namespace deepinfer
