// KvTransfers: what the engine asks of the tiers (docs/kv-tiers.md). Prefixes that the KV pool has lost, or never had,
// are fetched into the prefix tree before their request is admitted; what requests compute is written behind.
//
//   fetch    submit -> locate (which blocks, which rings) -> gate: not when computing is faster -> blocks from the pool
//            -> read, in order -> into the prefix tree, from where the admission takes them as any hit.
//            At the deadline the request goes on with what has arrived without a hole.
//   persist  at the end of the input, every persist_interval tokens of a long one, and at the end of the output: all
//            blocks of the path that are not kept yet, and window rings where resuming would be far. They are copied:
//            a tier that hangs must not keep a block of the pool. Of a GPU they are copied between two steps
//            (engine/block_copies.h), and fetches come in the same way.
//
// Promise 3 holds because a record's key covers everything that its bytes depend on, and admission treats what has
// arrived as it treats what was computed here.
//
// Thread-safety: the engine thread only; `wake` is called by the store's threads. Ownership: none of its arguments,
// which outlive it. The store is destroyed, so that no fetch writes any more, before the KvManager is.
#ifndef DEEPINFER_ENGINE_KV_TRANSFERS_H_
#define DEEPINFER_ENGINE_KV_TRANSFERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/tier_store.h"
#include "deepinfer/engine.h"
#include "engine/block_copies.h"
#include "engine/request.h"
#include "engine/sequence_cache.h"

namespace deepinfer {

struct KvTransferOptions {
  int64_t least_tokens = 256;           ///< that are missing in the pool, for a fetch; of a prefix, to be kept
  int64_t persist_interval = 4096;      ///< tokens of a long prefill between two writes
  int64_t rings_interval = 1024;        ///< tokens between rings that are kept along a path, at least
  double deadline_seconds = 0.25;       ///< of a fetch ...
  double deadline_per_ki_token = 0.05;  ///< ... and more for each 1024 tokens of it
  bool gate = true;                     ///< computes what would arrive later than it is computed
  WallClock clock;
};

class KvTransfers {
 public:
  /// Payload that is handed to the tiers at once, or one record that is larger.
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  /// `copies`: how blocks get out of device memory; null: they lie in host memory.
  KvTransfers(KvManager& kv, TierStore& store, const KvTransferOptions& options, std::function<void()> wake,
              BlockCopies* copies = nullptr);
  ~KvTransfers();

  /// A request has arrived. `seconds_per_token`: of its prefill, 0: not known. Afterwards request->transfer.waiting
  /// says whether it waits for a fetch.
  void Begin(const std::shared_ptr<Request>& request, double seconds_per_token);
  /// Takes what has arrived, and ends fetches whose time is over or whose reader has gone. `reserve`: blocks that
  /// running requests may need.
  void Poll(double now, int64_t reserve);
  /// The earliest deadline of a fetch; a large number without one.
  double NextDeadline() const;

  /// Memory of its tables (promise 5).
  int64_t bytes() const { return std::ssize(kept_blocks_) * static_cast<int64_t>(2 * sizeof(Mark)); }

  /// After kv.Publish: keeps what is due.
  void AfterStep(Request* request);
  /// After kv.Release, which returned `deepest`.
  void AfterEnd(NodeId deepest, Request* request);

  size_t tier_count() const { return store_.tier_count(); }
  std::string_view tier_name(size_t tier) const { return store_.tier_name(tier); }
  const KvTransferCounts& counts() const { return counts_; }

 private:
  struct Fetching;
  /// What was handed to the tiers: the beginning of the record's key, and until when it lives, seconds since 1970.
  struct Mark {
    uint64_t key = 0;
    int64_t expires_at = 0;
    bool operator==(const Mark&) const = default;
  };
  using Marks = std::vector<std::pair<Mark*, Mark>>;  // places, and what stands there once it is kept

  void StartReading(Fetching* fetching, double now, int64_t reserve);
  void TakeArrived(Fetching* fetching);
  void GiveBackRest(Fetching* fetching);
  void LetGo(Fetching* fetching);
  void Persist(NodeId deepest, Request* request, bool input_ended);
  std::vector<NodeId> ChooseRings(const std::vector<NodeId>& path, const Request& request, bool input_ended,
                                  int64_t now, int64_t expires) const;
  void ForgetLost();
  static bool Kept(const Mark& mark, const KvKey& key, int64_t now, int64_t expires);

  KvManager& kv_;
  TierStore& store_;
  KvTransferOptions options_;
  std::function<void()> wake_;
  BlockCopies* copies_;
  std::vector<std::unique_ptr<Fetching>> fetching_;
  // By node. A node that holds another block by now has another key.
  std::vector<Mark> kept_blocks_;
  std::vector<Mark> kept_rings_;
  std::mutex lost_mutex_;
  Marks lost_;        // by the device's thread: not kept after all
  int64_t slow_ = 0;  // fetches that computing would have outrun
  KvTransferCounts counts_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_KV_TRANSFERS_H_
