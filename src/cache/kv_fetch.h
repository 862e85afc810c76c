// KvFetch: one prefix on its way from the tiers into the KV pool. TierStore makes and fills it.
//
// Thread-safety: any thread. Ownership: shared by the engine and the store; what `reads` point to is the engine's and
// stays until finished().
#ifndef DEEPINFER_CACHE_KV_FETCH_H_
#define DEEPINFER_CACHE_KV_FETCH_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "cache/kv_record.h"

namespace deepinfer {

class KvFetch {
 public:
  /// Where the blocks are; tiers in the store's order.
  struct Located {
    int64_t blocks = 0;            ///< from the front of the keys
    std::vector<int64_t> by_tier;  // [tiers] of these
    int64_t rings = -1;            ///< index of the deepest of these with a rings record, if asked for; -1: none
    double seconds = 0;            ///< estimate of reading the blocks, from earlier reads; 0: none yet
  };

  /// Whether the search has ended; answer() is valid from then on.
  bool located() const;
  const Located& answer() const { return answer_; }

  struct Arrival {
    uint8_t tier = 0;
    int64_t expires_at = 0;  ///< seconds since 1970; 0: not known
  };
  /// Blocks from the front that have arrived.
  int64_t arrived_blocks() const;
  std::vector<Arrival> arrivals() const;
  bool arrived_rings() const;
  /// Nothing more arrives, and nobody touches the payloads any more.
  bool finished() const;
  /// Ends it after the chunk that is being read. True: nothing was being read yet and nothing will be; the payloads are
  /// the caller's again at once.
  bool Stop();

 private:
  friend class TierStore;

  /// The next blocks are where they are wanted.
  void Arrive(std::span<const Arrival> blocks);
  /// Ends the fetch; the last thing that its threads do with it.
  void Finish();

  mutable std::mutex mutex_;
  bool located_ = false;
  bool reading_ = false;
  bool finished_ = false;
  bool stop_ = false;
  bool arrived_rings_ = false;
  std::vector<Arrival> arrivals_;

  // Written before the first thread sees it, or by the one thread that works on it.
  KvScope scope_;
  std::vector<KvKey> keys_;
  int64_t first_rings_ = 0;
  int64_t last_rings_ = -1;
  Located answer_;
  std::vector<KvRead> reads_;
  std::vector<KvRead> rings_;
  std::function<void()> on_news_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_FETCH_H_
