#include "ops/cuda/command_list.h"

#include <cstring>
#include <string>

namespace deepinfer::cuda {

CommandList::~CommandList() {
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
  return Status::Ok();
}

void CommandList::Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess || !status_.ok()) return;
  status_ = Status::Internal(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
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

void CommandList::Flush() {
  SendUploads();
  for (const Command& command : commands_) {
    if (!ok()) break;
    if (!command.run(arguments_.get() + command.offset, stream_)) Check(cudaErrorLaunchFailure, "launch");
  }
  if (ok()) Check(cudaGetLastError(), "launch");
  commands_.clear();
  used_ = 0;
}

Status CommandList::Wait() {
  Flush();
  if (ok()) Check(cudaStreamSynchronize(stream_), "kernel");
  return status_;
}

}  // namespace deepinfer::cuda
