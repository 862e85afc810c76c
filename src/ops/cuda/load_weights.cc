#include "ops/cuda/load_weights.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "ops/weight_stream.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kMostBufferBytes = int64_t{64} << 20;
constexpr int64_t kLeastBufferBytes = int64_t{1} << 20;
constexpr int kMostReaders = 8;  // threads; more do not fault pages in faster

bool Order(cudaStream_t stream, WeightBytes kind, uint8_t* bytes, int64_t count) {
  return kind != WeightBytes::kFp4Codes || OrderFp4(stream, bytes, count);
}

// Two pinned buffers and what is under way from them. FP4 codes are brought to pair order on a stream of their own, a
// buffer at a time, so that the copies of the next one do not wait for kernels.
class PinnedCarrier final : public WeightCarrier {
 public:
  PinnedCarrier(CommandList& commands, int64_t buffer_bytes) : commands_(commands), buffer_bytes_(buffer_bytes) {}
  ~PinnedCarrier() override {
    if (ordering_ != nullptr) {
      cudaStreamSynchronize(ordering_);
      cudaStreamDestroy(ordering_);
    }
    for (const Half& half : halves_) {
      cudaFreeHost(half.memory);
      if (half.copied != nullptr) cudaEventDestroy(half.copied);
    }
  }

  Status Create() {
    for (Half& half : halves_) {
      if (cudaMallocHost(&half.memory, static_cast<size_t>(buffer_bytes_)) != cudaSuccess ||
          cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming) != cudaSuccess) {
        cudaGetLastError();
        return Status::ResourceExhausted("the host has no " + HumanBytes(2 * buffer_bytes_) +
                                         " to pin for weights on their way to the GPU");
      }
    }
    commands_.Check(cudaStreamCreateWithFlags(&ordering_, cudaStreamNonBlocking), "stream");
    return commands_.status();
  }
  std::array<uint8_t*, WeightStream::kBuffers> buffers() const {
    return {static_cast<uint8_t*>(halves_[0].memory), static_cast<uint8_t*>(halves_[1].memory)};
  }

  Status Send(int buffer, std::span<const WeightPiece> pieces) override {
    Half& half = halves_[static_cast<size_t>(buffer)];
    for (const WeightPiece& piece : pieces) {
      if (piece.load.to_host) continue;
      commands_.Check(
          cudaMemcpyAsync(piece.load.to, static_cast<const uint8_t*>(half.memory) + piece.offset,
                          static_cast<size_t>(piece.load.bytes), cudaMemcpyHostToDevice, commands_.stream()),
          "weights");
    }
    commands_.Check(cudaEventRecord(half.copied, commands_.stream()), "event");
    commands_.Check(cudaStreamWaitEvent(ordering_, half.copied), "event");
    for (const WeightPiece& piece : pieces) {
      if (!Order(ordering_, piece.load.kind, piece.load.to, piece.load.bytes)) {
        commands_.Check(cudaErrorLaunchFailure, "weights");
      }
    }
    return commands_.status();
  }
  Status Wait(int buffer) override {
    commands_.Check(cudaEventSynchronize(halves_[static_cast<size_t>(buffer)].copied), "weights");
    return commands_.status();
  }
  /// Returns when all codes are in their order.
  Status WaitForOrder() {
    commands_.Check(cudaStreamSynchronize(ordering_), "weights");
    return commands_.status();
  }

 private:
  struct Half {
    void* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };
  CommandList& commands_;
  int64_t buffer_bytes_;
  cudaStream_t ordering_ = nullptr;
  std::array<Half, WeightStream::kBuffers> halves_;
};

int64_t FreeBytes() {
  size_t free = 0;
  size_t all = 0;
  return cudaMemGetInfo(&free, &all) == cudaSuccess ? static_cast<int64_t>(free) : 0;
}

Status NoRoom(const WeightTotals& totals, int64_t free) {
  std::string text = "device: the weights take " + HumanBytes(totals.on_device());
  if (totals.window > 0) {
    text += " (" + HumanBytes(totals.window) + " of it room for a layer that stays in host memory)";
  }
  return Status::ResourceExhausted(text + ", the GPU has " + HumanBytes(free) + " free; lower gpu_layers");
}

}  // namespace

Status LoadWeights(std::span<const ListedBytes> list, WeightStore& store, CommandList& commands,
                   const LoadProgress& progress) {
  const WeightTotals totals = TotalsOf(list);
  const int64_t free = FreeBytes();
  if (!store.Reserve(totals)) return NoRoom(totals, free);
  // As they lie in the files.
  std::vector<ListedBytes> sorted(list.begin(), list.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const ListedBytes& a, const ListedBytes& b) { return std::less<const uint8_t*>()(a.data, b.data); });
  std::vector<WeightLoad> loads;
  for (const ListedBytes& weight : sorted) {
    uint8_t* to = store.Place(weight);
    if (to == nullptr && weight.resident) return NoRoom(totals, free);
    if (to == nullptr) {
      return Status::ResourceExhausted(
          "gpu_layers: the layers that do not stay on the GPU take " + HumanBytes(totals.passing) +
          " of host memory that the system will not pin; raise gpu_layers or the limit of locked memory");
    }
    if (const auto generated = GeneratedWeights::Find(weight.data)) {
      if (!FillWeights(commands.stream(), generated->recipe, generated->offset, weight.bytes, to) ||
          !Order(commands.stream(), weight.kind, to, weight.bytes)) {
        commands.Check(cudaErrorLaunchFailure, "weights");
      }
      continue;
    }
    loads.push_back({weight.data, to, weight.bytes, !weight.resident, weight.kind});
  }
  if (!loads.empty()) {
    // Pinning takes time, so a small model has small buffers.
    const int64_t buffer_bytes =
        std::clamp((totals.resident + totals.passing) / 4, kLeastBufferBytes, kMostBufferBytes);
    PinnedCarrier carrier(commands, buffer_bytes);
    DEEPINFER_RETURN_IF_ERROR(carrier.Create());
    WeightStream stream(carrier.buffers(), buffer_bytes, std::min(AvailableThreads(), kMostReaders));
    DEEPINFER_RETURN_IF_ERROR(stream.Run(loads, carrier, progress));
    DEEPINFER_RETURN_IF_ERROR(carrier.WaitForOrder());
  }
  return commands.Wait();
}

}  // namespace deepinfer::cuda
