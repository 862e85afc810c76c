// KvLanding: the way of fetched blocks into memory that only a device writes. Tiers read into host memory of the
// landing; who drives the device copies it on.
//
// Thread-safety: all calls from any thread. Ownership: memory of Take() is the landing's, and goes back to it by
// Land().
#ifndef DEEPINFER_CACHE_KV_LANDING_H_
#define DEEPINFER_CACHE_KV_LANDING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/device_memory.h"

namespace deepinfer {

class KvLanding {
 public:
  virtual ~KvLanding() = default;

  /// Host memory for the payloads of one chunk (TierStoreOptions). Waits until some is free; null: the landing is
  /// closed.
  virtual uint8_t* Take() = 0;

  /// Copies pieces of `memory` to where they are wanted, behind what earlier calls land. `landed` is called once, when
  /// all are in their places (true) or will never be (false). `memory` may be null when there is nothing to copy: then
  /// `landed` is called behind all earlier ones.
  virtual void Land(uint8_t* memory, std::vector<MemoryPiece> pieces, std::function<void(bool)> landed) = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_LANDING_H_
