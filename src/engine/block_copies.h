// BlockCopies: KV blocks on their way between the memory of a device and the tiers (docs/kv-tiers.md). The CPU needs
// none of this: there tiers read and write the pool itself.
//
//   out  Keep(): the device's thread copies blocks to staging memory and from there into a batch for the TierStore.
//   in   KvLanding: fetch threads of the store read into staging memory, the device's thread copies it into the blocks.
//
// Invariant: the device's thread runs copies in the order in which they were handed over, and each of them ahead of the
// steps that were handed over later. So nobody needs to hold a block while it waits to be copied out: a step or a fetch
// that writes there anew comes later. A copy may overtake a step that has not begun: no step under way may use a block
// that is given to a fetch, on the CPU neither.
//
// Thread-safety: Keep by one thread, the others by any. Ownership: owns the staging memory, planned once; Ops and store
// are the engine's. Close() comes before what runs the tasks goes.
#ifndef DEEPINFER_ENGINE_BLOCK_COPIES_H_
#define DEEPINFER_ENGINE_BLOCK_COPIES_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/device_memory.h"
#include "cache/kv_landing.h"
#include "cache/tier_store.h"
#include "deepinfer/status.h"
#include "ops/ops.h"

namespace deepinfer {

/// Records that are to be kept together.
struct OutgoingRecords {
  std::vector<KvWrite> blocks;    ///< payload: device memory; ids: those below
  std::vector<int32_t> ids;       // [blocks, block tokens]
  KvBatch batch;                  ///< what lies in host memory; kept behind the blocks
  std::shared_ptr<bool> refused;  ///< shared by all pieces of a path: after one that was not kept no other is
  std::function<void()> lost;     ///< called by the device's thread when they are not kept
};

class BlockCopies final : public KvLanding {
 public:
  /// Buffers that fetches read into, each `chunk_bytes`. As many as two fetches fill while the device computes a step.
  static constexpr int kLandingBuffers = 4;

  /// `chunk_bytes`: at most so much is kept or landed at once. `post` has the device's thread run a task between two
  /// steps. kResourceExhausted: no memory.
  static Result<std::unique_ptr<BlockCopies>> Create(Ops& ops, int64_t chunk_bytes,
                                                     std::function<void(std::function<void()>)> post);

  void Keep(OutgoingRecords records, TierStore& store);

  uint8_t* Take() override;
  void Land(uint8_t* memory, std::vector<MemoryPiece> pieces, std::function<void(bool)> landed) override;

  /// Waits until everything that was handed over is done, so many seconds at most; how many copies are left.
  int64_t Wait(double seconds);
  /// From now on nothing lands; what was handed over before is still done.
  void Close();

  int64_t bytes() const { return memory_.bytes(); }

  /// Called by the device's thread when a copy fails: an error of the device, which is final. Set before the first
  /// copy.
  std::function<void(const Status& cause)> on_failure;

 private:
  BlockCopies(Ops& ops, int64_t chunk_bytes, std::function<void(std::function<void()>)> post)
      : ops_(ops), chunk_bytes_(chunk_bytes), post_(std::move(post)) {}

  void Post(std::function<void()> task);  // under mutex_
  bool KeepNow(OutgoingRecords& records, TierStore& store);
  bool Succeeds(const Status& copied) const;
  void GiveBack(uint8_t* memory);

  Ops& ops_;
  int64_t chunk_bytes_ = 0;
  std::function<void(std::function<void()>)> post_;
  DeviceMemory memory_;           // [1 + kLandingBuffers, chunk_bytes]
  uint8_t* outgoing_ = nullptr;   // of it: the device thread's
  std::vector<MemoryPiece> out_;  // the device thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint8_t*> free_;  // of memory_, under mutex_
  int64_t pending_ = 0;
  bool closed_ = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_BLOCK_COPIES_H_
