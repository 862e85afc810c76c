// GraphCache: executable CUDA graphs, each reused for every recorded graph of its shape.
//
// A step launches the same kernels as the one before, most of them with the same arguments, since what changes from
// step to step lies in lists at the same addresses. Launching a graph takes a few microseconds whatever the number of
// kernels; to record new arguments and to bring them into an executable graph takes 0.7 us a kernel, a launch of its
// own 3 us. Thread-safety: one thread. Ownership: owns the executable graphs; one that is destroyed while it runs ends
// first. Errors: an answer, and what cudaGetLastError() has.
#ifndef DEEPINFER_OPS_CUDA_GRAPH_CACHE_H_
#define DEEPINFER_OPS_CUDA_GRAPH_CACHE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::cuda {

class GraphCache {
 public:
  GraphCache() { entries_.reserve(kMost); }
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// Launches the graph that was recorded last from these bytes, if it is still there. shape: a number for the
  /// commands; arguments: theirs. False: nothing was launched.
  bool LaunchSame(uint64_t shape, std::span<const std::byte> arguments, cudaStream_t stream);

  /// Launches `graph`, recorded from these commands. False: nothing was launched.
  bool Launch(cudaGraph_t graph, uint64_t shape, std::span<const std::byte> arguments, cudaStream_t stream);

  /// Executable graphs made so far, and launches that needed no recording.
  int64_t made() const { return made_; }
  int64_t same() const { return same_; }

 private:
  // The segments of a step by the shapes that steps have; of more, those launched last.
  static constexpr size_t kMost = 96;

  struct Entry {
    uint64_t shape;
    // A launcher of no rows adds no kernel, so commands alone do not say how many there are.
    size_t nodes;
    cudaGraphExec_t graph;
    std::vector<std::byte> arguments;
    int64_t launch;  // when it was launched last
  };

  bool LaunchEntry(Entry& entry, cudaStream_t stream);

  std::vector<Entry> entries_;
  int64_t launches_ = 0;
  int64_t made_ = 0;
  int64_t same_ = 0;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_GRAPH_CACHE_H_
