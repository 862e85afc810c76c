// CommandList: the kernels of one or more ops, recorded on the host and given to the GPU together.
//
// An op says what it launches with Add() and which small lists its kernels read with Upload(). Flush() sends all lists
// in one copy and launches the kernels in the order they were added, so a step waits for nothing in between.
//
// Invariants: 1. an address that Upload() returned holds its bytes for every command added before another kUploadBytes
// were uploaded; 2. nothing is allocated after Create(). Thread-safety: one thread. Ownership: owns its pinned and
// device memory; arguments are values. Errors: the first CUDA error stays in status(), from then on nothing is
// launched.
#ifndef DEEPINFER_OPS_CUDA_COMMAND_LIST_H_
#define DEEPINFER_OPS_CUDA_COMMAND_LIST_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer::cuda {

class CommandList {
 public:
  explicit CommandList(cudaStream_t stream) : stream_(stream) {}
  ~CommandList();
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  /// kResourceExhausted: no pinned or device memory.
  Status Create();

  cudaStream_t stream() const { return stream_; }
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  /// Keeps the first error.
  void Check(cudaError_t error, const char* what);

  /// function(stream, arguments...) at the next Flush(). A function that returns bool fails with false.
  template <typename Return, typename... Parameters, typename... Arguments>
  void Add(Return (*function)(cudaStream_t, Parameters...), Arguments&&... arguments) {
    using Values = std::tuple<Return (*)(cudaStream_t, Parameters...), std::remove_cvref_t<Parameters>...>;
    static_assert(std::is_trivially_destructible_v<Values>);
    if (commands_.size() == kMostCommands || used_ + sizeof(Values) + kAlignment > kArgumentBytes) Flush();
    used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    new (arguments_.get() + used_) Values(function, std::forward<Arguments>(arguments)...);
    commands_.push_back({&Run<Values, Return>, used_});
    used_ += sizeof(Values);
  }

  /// The device's copy of host bytes, on a 16-byte boundary. Null after an error. bytes <= kUploadBytes.
  const void* Upload(const void* host, int64_t bytes);

  void Flush();
  /// Flushes and waits for the GPU.
  Status Wait();

  static constexpr int64_t kUploadBytes = int64_t{8} << 20;

 private:
  void SendUploads();

  static constexpr size_t kMostCommands = 4096;
  static constexpr size_t kArgumentBytes = size_t{2} << 20;
  static constexpr size_t kAlignment = 16;

  struct Command {
    bool (*run)(const std::byte* values, cudaStream_t stream);
    size_t offset;
  };

  template <typename Values, typename Return>
  static bool Run(const std::byte* values, cudaStream_t stream) {
    const auto call = [stream](auto function, const auto&... arguments) -> bool {
      if constexpr (std::is_same_v<Return, bool>) {
        return function(stream, arguments...);
      } else {
        function(stream, arguments...);
        return true;
      }
    };
    return std::apply(call, *std::launder(reinterpret_cast<const Values*>(values)));
  }

  // One half is written while the GPU may still read the other.
  struct Half {
    uint8_t* pinned = nullptr;
    uint8_t* device = nullptr;
    cudaEvent_t copied = nullptr;
  };

  cudaStream_t stream_;
  Status status_;
  std::unique_ptr<std::byte[]> arguments_;
  size_t used_ = 0;
  std::vector<Command> commands_;
  Half halves_[2];
  int half_ = 0;
  int64_t uploaded_ = 0;  // bytes of halves_[half_]
  int64_t sent_ = 0;      // of these: copied to the device
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_COMMAND_LIST_H_
