#include "ops/cuda/graph_cache.h"

#include <algorithm>

namespace deepinfer::cuda {

GraphCache::~GraphCache() {
  for (const Entry& entry : entries_) (void)cudaGraphExecDestroy(entry.graph);
}

bool GraphCache::LaunchEntry(Entry& entry, cudaStream_t stream) {
  entry.launch = ++launches_;
  return cudaGraphLaunch(entry.graph, stream) == cudaSuccess;
}

bool GraphCache::LaunchSame(uint64_t shape, std::span<const std::byte> arguments, cudaStream_t stream) {
  for (Entry& entry : entries_) {
    if (entry.shape != shape || !std::ranges::equal(entry.arguments, arguments)) continue;
    ++same_;
    return LaunchEntry(entry, stream);
  }
  return false;
}

bool GraphCache::Launch(cudaGraph_t graph, uint64_t shape, std::span<const std::byte> arguments, cudaStream_t stream) {
  size_t nodes = 0;
  if (cudaGraphGetNodes(graph, nullptr, &nodes) != cudaSuccess) return false;
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.shape == shape && entry.nodes == nodes; });
  if (found != entries_.end()) {
    cudaGraphExecUpdateResultInfo info = {};
    if (cudaGraphExecUpdate(found->graph, graph, &info) == cudaSuccess) {
      found->arguments.assign(arguments.begin(), arguments.end());
      return LaunchEntry(*found, stream);
    }
    (void)cudaGetLastError();  // other nodes, which is no error of the next launch
    (void)cudaGraphExecDestroy(found->graph);
    entries_.erase(found);
  }
  if (entries_.size() == kMost) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::launch);
    (void)cudaGraphExecDestroy(oldest->graph);
    entries_.erase(oldest);
  }
  cudaGraphExec_t made = nullptr;
  if (cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagUseNodePriority) != cudaSuccess) return false;
  ++made_;
  entries_.push_back({shape, nodes, made, {arguments.begin(), arguments.end()}, 0});
  return LaunchEntry(entries_.back(), stream);
}

}  // namespace deepinfer::cuda
