// CommandList: the kernels of one or more ops, recorded on the host and given to the GPU together.
//
// An op says what it launches with Add() and which small lists its kernels read with Upload(). Flush() sends all lists
// in one copy and launches the kernels in the order they were added, so a step waits for nothing in between. More than
// a few commands are launched as one CUDA graph (graph_cache.h). A long list is flushed in segments, a short one first,
// so that the GPU computes while the host records the rest.
//
// Commands between BeginBeside() and EndBeside() are a branch of the graph: they come after all commands before them,
// but commands behind them need not wait for them until one that says with WillRead() or WillWrite() that it needs what
// the branch writes, or writes what the branch needs. Without a graph everything runs in the order in which it was
// added.
//
// Invariants: 1. an address that Upload() returned holds its bytes for every command added before another kUploadBytes
// were uploaded, and before Wait(); 2. nothing is allocated after Create(), but a graph for a sequence of commands that
// is new. Thread-safety: one thread. Ownership: owns its pinned and device memory; arguments are values. Errors: the
// first CUDA error stays in status(), from then on nothing is launched.
#ifndef DEEPINFER_OPS_CUDA_COMMAND_LIST_H_
#define DEEPINFER_OPS_CUDA_COMMAND_LIST_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepinfer/status.h"
#include "ops/cuda/graph_cache.h"
#include "ops/cuda/memory_ranges.h"

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
  /// How often the GPU was waited for.
  int64_t waits() const { return waits_; }
  const GraphCache& graphs() const { return graphs_; }
  /// Lists that could not be launched as a graph, and were launched one by one.
  int64_t fallbacks() const { return fallbacks_; }
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  /// Keeps the first error.
  void Check(cudaError_t error, const char* what);

  /// function(stream, arguments...) at the next Flush(). A function that returns bool fails with false.
  template <typename Return, typename... Parameters, typename... Arguments>
  void Add(Return (*function)(cudaStream_t, Parameters...), Arguments&&... arguments) {
    using Values = std::tuple<Return (*)(cudaStream_t, Parameters...), std::remove_cvref_t<Parameters>...>;
    static_assert(std::is_trivially_destructible_v<Values>);
    if (commands_.size() >= segment_ || used_ + sizeof(Values) + kAlignment > kArgumentBytes) FlushSegment();
    used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    new (arguments_.get() + used_) Values(function, std::forward<Arguments>(arguments)...);
    commands_.push_back({&Run<Values, Return>, used_, TakeMark(), beside_});
    used_ += sizeof(Values);
  }

  /// The device's copy of host bytes, on a 16-byte boundary. Null after an error. bytes <= kUploadBytes.
  const void* Upload(const void* host, int64_t bytes);

  /// Commands added until EndBeside() are a branch. Once at a time.
  void BeginBeside() { beside_ = true; }
  void EndBeside() {
    beside_ = false;
    if (!open_) CloseBranch();  // its last command was flushed
  }
  bool beside() const { return beside_; }
  /// What the command that is added next reads and writes, where a branch is open or that command belongs to one.
  void WillRead(const void* data, int64_t bytes);
  void WillWrite(const void* data, int64_t bytes);

  void Flush();
  /// Flushes and waits for the GPU.
  Status Wait();

  static constexpr int64_t kUploadBytes = int64_t{8} << 20;

 private:
  /// What comes before a command in a graph.
  enum class Mark : uint8_t {
    kNone,
    kFork,  ///< a branch begins, or goes on: behind all commands of the trunk so far
    kJoin,  ///< the trunk waits for the branch
  };

  void SendUploads();
  void FlushSegment();
  // The command of the trunk that is added next waits for the branch.
  void JoinBeside() { joins_ = open_; }
  void CloseBranch();
  Mark TakeMark();
  // False: nothing was launched.
  bool LaunchAsGraph();
  bool RecordGraph(uint64_t shape, std::span<const std::byte> arguments);
  void LaunchOneByOne();

  static constexpr size_t kMostCommands = 4096;
  // A launch takes the host 3 us, a command of a graph about one; the GPU has to be given work while the host records.
  static constexpr size_t kFirstSegment = 16;
  static constexpr size_t kSegmentGrowth = 4;
  static constexpr size_t kFewestForGraph = 8;
  static constexpr size_t kArgumentBytes = size_t{2} << 20;
  static constexpr size_t kAlignment = 16;

  struct Command {
    bool (*run)(const std::byte* values, cudaStream_t stream);
    size_t offset;
    Mark mark;
    bool beside;
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
  // Of a graph's branch while it is recorded: nothing runs there. Null: no graphs.
  cudaStream_t branch_stream_ = nullptr;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t joined_ = nullptr;
  GraphCache graphs_;
  size_t segment_ = kFirstSegment;
  bool beside_ = false;
  bool open_ = false;   // the branch has commands that nothing waits for
  bool joins_ = false;  // the next command of the trunk waits for it
  bool behind_ = true;  // the trunk has commands that the branch does not wait for
  MemoryRanges branch_reads_;
  MemoryRanges branch_writes_;
  Status status_;
  std::unique_ptr<std::byte[]> arguments_;
  size_t used_ = 0;
  std::vector<Command> commands_;
  Half halves_[2];
  int half_ = 0;
  int64_t uploaded_ = 0;  // bytes of halves_[half_]
  int64_t sent_ = 0;      // of these: copied to the device
  int64_t waits_ = 0;
  int64_t fallbacks_ = 0;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_COMMAND_LIST_H_
