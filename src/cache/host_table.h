// HostTable: records in one piece of memory that threads and processes share, and the index to find them. Everything is
// in that memory and refers to it by number, so that every process may map it elsewhere (docs/kv-tiers.md has the
// layout).
//
// The data is cut into slots of one size, a block with its ids. A record is a chain of slots: one for a block, several
// for rings. The first slot of a record, its head, has the key and a sequence number, odd while it is being changed.
//
//  * Changes are made under a robust mutex in the memory. Its owner may die at any instruction: the next one that
//    locks it rebuilds the index from the slots and drops what was being written.
//  * Reads take no lock and hold no pin: they copy the record, and it counts only when its sequence number has stayed
//    the same and checksum, key, parent, position and ids are right. A copy that was overtaken by a change is a miss.
//
// Eviction: of the next 64 records behind a hand that goes round, the one whose last use is the longest ago; up to 64
// records that is exact.
//
// Invariants, whenever nobody has the lock: 1. each slot is free, or belongs to one record; 2. each record is found
// under its key; 3. record_count() and used_slots() say what is there.
//
// Thread-safety: functions that take a Lock change something and need that of this table; all others from any thread.
// Ownership: the memory is the caller's and outlives the table.
#ifndef DEEPINFER_CACHE_HOST_TABLE_H_
#define DEEPINFER_CACHE_HOST_TABLE_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "cache/kv_record.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Where things are in the memory; all sizes and places in bytes.
struct HostLayout {
  int64_t block_tokens = 0;
  int64_t block_bytes = 0;
  int64_t rings_bytes = 0;
  int64_t slot_bytes = 0;   ///< of data
  int64_t slots = 0;        ///< count
  int64_t buckets = 0;      ///< count, a power of two
  int64_t rings_slots = 0;  ///< slots of a rings record
  int64_t buckets_at = 0;
  int64_t uses_at = 0;
  int64_t slots_at = 0;
  int64_t data_at = 0;
  int64_t total_bytes = 0;

  /// As many slots as fit into `bytes`. kInvalidArgument: less than one record of each kind; the message says how much.
  static Result<HostLayout> Make(const KvNamespace& name_space, int64_t block_tokens, int64_t bytes);

  int64_t slots_of(KvRecordKind kind) const { return kind == KvRecordKind::kBlock ? 1 : rings_slots; }
  int64_t payload_bytes(KvRecordKind kind) const { return kind == KvRecordKind::kBlock ? block_bytes : rings_bytes; }
  /// A record as it is copied out: ids and payload, each up to a multiple of 8.
  int64_t body_bytes(KvRecordKind kind) const;
};

class HostTable {
 public:
  /// The bytes at the front of the memory that are not the table's.
  static constexpr int64_t kReservedBytes = 128;

  /// layout.total_bytes of memory on a 64-byte boundary.
  HostTable(uint8_t* memory, const HostLayout& layout);

  /// Makes an empty table of zeros.
  void Format();
  /// A new mutex, for memory that was copied while somebody had the old one.
  void MakeMutex();

  class Lock {
   public:
    Lock(Lock&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
      if (mutex_ != nullptr) pthread_mutex_unlock(mutex_);
    }

   private:
    friend class HostTable;
    explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) {}
    pthread_mutex_t* mutex_;
  };
  /// Waits for at most `seconds`; rebuilds the table when the last owner died. kIo: someone keeps it.
  Result<Lock> Acquire(double seconds);
  /// How often this object found a dead owner.
  int64_t recoveries() const { return recoveries_.load(std::memory_order_relaxed); }

  /// A number of uses that is newer than all before, with room for a long chain of newer ones behind it.
  uint64_t NewUse();

  /// Whether there is a record that has not expired.
  bool Has(KvRecordKind kind, const KvKey& key, int64_t now) const;

  struct Place {
    uint32_t slot = 0;
    uint32_t sequence = 0;
  };
  enum class Outcome : uint8_t { kHit, kMiss, kBad };
  /// Copies a record that counts to read->payload by way of `staging`, body_bytes() long on an 8-byte boundary.
  /// kBad: what is in `place` does not prove itself and should be removed.
  Outcome Read(KvRead* read, int64_t now, std::span<uint8_t> staging, Place* place) const;

  /// Marks a record as used. False: it is not here.
  bool Touch(KvRecordKind kind, const KvKey& key, uint64_t use);
  /// Marks the block and those above it, each as newer than the one below it; the first number that is left.
  uint64_t TouchChain(KvKey block, uint64_t use);

  struct Inserted {
    bool is_new = false;
    int64_t evicted = 0;
    int64_t expired = 0;
  };
  /// Keeps a record of the namespace's sizes and at most block_tokens ids, evicting others for space; one that is here
  /// gets the later expiry.
  Inserted Insert(const Lock& lock, const KvWrite& write, uint64_t checksum, uint64_t use, int64_t now);
  /// What Insert is told: over the ids, the payload and all else that a reader compares.
  static uint64_t Checksum(const KvWrite& write);

  /// Removes what Read found bad, unless it has been replaced.
  bool Remove(const Lock& lock, Place place);
  /// Removes the record whose head the slot is when it has expired.
  bool RemoveExpired(const Lock& lock, uint32_t slot, int64_t now);
  /// Removes the record whose head the slot is when it belongs to the scope, and overwrites it.
  bool RemoveOfScope(const Lock& lock, uint32_t slot, const KvScope& scope);
  /// Hints for the two above, without the lock.
  bool MayBeExpired(uint32_t slot, int64_t now) const;
  bool MayBeOfScope(uint32_t slot, const KvScope& scope) const;

  /// The index from the slots. Slots of records that are not whole become free.
  void Rebuild(const Lock& lock);
  /// kCorruption: an invariant does not hold.
  Status Verify(const Lock& lock) const;

  const HostLayout& layout() const { return layout_; }
  int64_t record_count() const;
  int64_t used_slots() const;
  /// The slots from this one on were never used.
  uint32_t first_fresh_slot() const;

 private:
  struct Header;
  struct Slot;

  std::atomic<uint32_t>& BucketOf(KvRecordKind kind, const KvKey& key) const;
  std::optional<uint32_t> Search(KvRecordKind kind, const KvKey& key) const;
  bool CopyBody(uint32_t head, int64_t bytes, uint8_t* to) const;
  void FillBody(uint32_t head, int64_t place, std::span<const uint8_t> bytes);

  void EvictOne(int64_t now, Inserted* counts);
  uint32_t TakeSlot();
  void GiveSlot(uint32_t slot);
  void Unlink(uint32_t head);
  void RemoveRecord(uint32_t head);
  bool IsWhole(uint32_t head) const;

  HostLayout layout_;
  Header* header_;
  std::atomic<uint32_t>* buckets_;  // [buckets]
  std::atomic<uint64_t>* uses_;     // [slots], last use of a head; a hint in other slots
  Slot* slots_;                     // [slots]
  uint8_t* data_;                   // [slots, slot_bytes]
  std::atomic<int64_t> recoveries_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_HOST_TABLE_H_
