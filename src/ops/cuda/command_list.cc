#include "ops/cuda/command_list.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/cuda/launch_order.h"

namespace deepinfer::cuda {
namespace {

constexpr int kLeastPriority = 0;  // of CUDA; greater ones are below it

}  // namespace

CommandList::~CommandList() {
  if (forked_ != nullptr) cudaEventDestroy(forked_);
  if (joined_ != nullptr) cudaEventDestroy(joined_);
  if (branch_stream_ != nullptr) cudaStreamDestroy(branch_stream_);
  for (const Half& half : halves_) {
    cudaFreeHost(half.pinned);
    cudaFree(half.device);
    if (half.copied != nullptr) cudaEventDestroy(half.copied);
  }
}

Status CommandList::Create() {
  arguments_ = std::make_unique<std::byte[]>(kArgumentBytes);
  commands_.reserve(kMostCommands);
  for (Half& half : halves_) {
    void* pinned = nullptr;
    void* device = nullptr;
    if (cudaMallocHost(&pinned, kUploadBytes) != cudaSuccess || cudaMalloc(&device, kUploadBytes) != cudaSuccess ||
        cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming) != cudaSuccess) {
      cudaFreeHost(pinned);
      return Status::ResourceExhausted("the GPU has no memory for the lists of a step");
    }
    half.pinned = static_cast<uint8_t*>(pinned);
    half.device = static_cast<uint8_t*>(device);
  }
  // The default stream cannot be recorded.
  if (stream_ == nullptr) return Status::Ok();
  if (cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming) != cudaSuccess ||
      cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming) != cudaSuccess ||
      cudaStreamCreateWithPriority(&branch_stream_, cudaStreamNonBlocking, kLeastPriority) != cudaSuccess) {
    return Status::ResourceExhausted("the GPU has no room for another stream");
  }
  return Status::Ok();
}

void CommandList::Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess || !status_.ok()) return;
  const bool full = error == cudaErrorMemoryAllocation;
  status_ = Status(full ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                   std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

const void* CommandList::Upload(const void* host, int64_t bytes) {
  if (bytes > kUploadBytes) {
    if (ok())
      status_ = Status::ResourceExhausted("the GPU's lists of a step are too long; lower max_num_batched_tokens");
    return nullptr;
  }
  if (uploaded_ + bytes > kUploadBytes) {
    Flush();
    half_ ^= 1;
    uploaded_ = sent_ = 0;
    // The last copy from this half was made a whole half ago.
    if (ok()) Check(cudaEventSynchronize(halves_[half_].copied), "event");
  }
  if (!ok()) return nullptr;
  Half& half = halves_[half_];
  std::memcpy(half.pinned + uploaded_, host, static_cast<size_t>(bytes));
  const void* device = half.device + uploaded_;
  uploaded_ += (bytes + 15) / 16 * 16;
  return device;
}

void CommandList::SendUploads() {
  if (!ok() || sent_ == uploaded_) return;
  Half& half = halves_[half_];
  Check(cudaMemcpyAsync(half.device + sent_, half.pinned + sent_, static_cast<size_t>(uploaded_ - sent_),
                        cudaMemcpyHostToDevice, stream_),
        "copy to the GPU");
  Check(cudaEventRecord(half.copied, stream_), "event");
  sent_ = uploaded_;
}

void CommandList::WillRead(const void* data, int64_t bytes) {
  if (beside_) {
    branch_reads_.Add(data, bytes);
  } else if (open_ && branch_writes_.Touch(data, bytes)) {
    JoinBeside();
  }
}

void CommandList::WillWrite(const void* data, int64_t bytes) {
  if (beside_) {
    branch_writes_.Add(data, bytes);
  } else if (open_ && (branch_writes_.Touch(data, bytes) || branch_reads_.Touch(data, bytes))) {
    JoinBeside();
  }
}

void CommandList::CloseBranch() {
  open_ = joins_ = false;
  branch_reads_.Clear();
  branch_writes_.Clear();
}

CommandList::Mark CommandList::TakeMark() {
  if (beside_) {
    const bool forks = !open_ || behind_;
    open_ = true;
    behind_ = false;
    return forks ? Mark::kFork : Mark::kNone;
  }
  behind_ = true;
  if (!joins_) return Mark::kNone;
  CloseBranch();
  return Mark::kJoin;
}

void CommandList::LaunchOneByOne() {
  for (const Command& command : commands_) {
    if (!ok()) break;
    if (!command.run(arguments_.get() + command.offset, stream_)) Check(cudaErrorLaunchFailure, "launch");
  }
  ForgetLaunchOrder();
  if (ok()) Check(cudaGetLastError(), "launch");
}

bool CommandList::LaunchAsGraph() {
  uint64_t shape = 14695981039346656037u;  // FNV-1a over what runs
  for (const Command& command : commands_) {
    shape = (shape ^ (reinterpret_cast<uintptr_t>(command.run) * 8 + static_cast<uint64_t>(command.mark) * 2 +
                      (command.beside ? 1 : 0))) *
            1099511628211u;
  }
  const std::span<const std::byte> arguments(arguments_.get(), used_);
  return graphs_.LaunchSame(shape, arguments, stream_) || RecordGraph(shape, arguments);
}

bool CommandList::RecordGraph(uint64_t shape, std::span<const std::byte> arguments) {
  if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  ForgetLaunchOrder();
  bool good = true;
  bool branched = false;
  const auto follow = [&](cudaEvent_t event, cudaStream_t ahead, cudaStream_t behind) {
    good = good && cudaEventRecord(event, ahead) == cudaSuccess && cudaStreamWaitEvent(behind, event) == cudaSuccess;
    LaunchNextInOrder(behind);
  };
  for (const Command& command : commands_) {
    if (!good) break;
    if (command.mark == Mark::kFork) {
      follow(forked_, stream_, branch_stream_);
      branched = true;
    }
    if (command.mark == Mark::kJoin && branched) follow(joined_, branch_stream_, stream_);
    good = good && command.run(arguments_.get() + command.offset, command.beside ? branch_stream_ : stream_);
  }
  if (branched) follow(joined_, branch_stream_, stream_);  // what is not waited for ends with the graph
  ForgetLaunchOrder();
  cudaGraph_t graph = nullptr;
  good = cudaStreamEndCapture(stream_, &graph) == cudaSuccess && good;
  good = good && cudaGetLastError() == cudaSuccess && graphs_.Launch(graph, shape, arguments, stream_);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (!good) (void)cudaGetLastError();  // of the graph; an error of the device comes again
  return good;
}

void CommandList::Flush() {
  SendUploads();
  const bool graph = ok() && branch_stream_ != nullptr && commands_.size() >= kFewestForGraph;
  const bool launched = graph && LaunchAsGraph();
  if (graph && !launched) ++fallbacks_;
  if (!launched) LaunchOneByOne();
  commands_.clear();
  used_ = 0;
  behind_ = true;
  open_ = joins_ = false;
  // What the next command of an open branch reads and writes may have been said already.
  if (!beside_) CloseBranch();
}

void CommandList::FlushSegment() {
  Flush();
  segment_ = std::min(segment_ * kSegmentGrowth, kMostCommands);
}

Status CommandList::Wait() {
  Flush();
  segment_ = kFirstSegment;
  if (ok()) Check(cudaStreamSynchronize(stream_), "kernel");
  ++waits_;
  // Nothing reads the lists any more, and steps that do the same have them at the same addresses.
  half_ = 0;
  uploaded_ = sent_ = 0;
  return status_;
}

}  // namespace deepinfer::cuda
