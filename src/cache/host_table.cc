#include "cache/host_table.h"

#include <fmt/format.h>
#include <openssl/rand.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

namespace deepinfer {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

constexpr int64_t kLine = 64;  // bytes
constexpr int64_t kWord = sizeof(uint64_t);
constexpr uint64_t kUsesPerCall = uint64_t{1} << 20;
constexpr int kEvictionWindow = 64;  // records
/// Keys are spread by a secret seed, so longer chains are not met; a walk astray in a chain that changes ends here.
constexpr int kLongestChain = 1024;
constexpr int kAttempts = 4;

constexpr auto kGet = std::memory_order_acquire;
constexpr auto kPut = std::memory_order_release;
constexpr auto kHint = std::memory_order_relaxed;

enum SlotState : uint32_t { kFree = 0, kHead = 1, kPiece = 2 };

uint32_t Form(SlotState state, KvRecordKind kind, size_t ids) {
  return state | static_cast<uint32_t>(kind) << 8 | static_cast<uint32_t>(ids) << 16;
}
uint32_t StateOf(uint32_t form) { return form & 0xFF; }
KvRecordKind KindOf(uint32_t form) { return static_cast<KvRecordKind>(form >> 8 & 0xFF); }
uint32_t IdsOf(uint32_t form) { return form >> 16; }

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
int64_t IdBytes(int64_t ids) { return RoundUp(ids * static_cast<int64_t>(sizeof(int32_t)), kWord); }

uint64_t WordOf(const KvKey& key, size_t index) {
  uint64_t word = 0;
  std::memcpy(&word, key.bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

using KeyWords = std::array<std::atomic<uint64_t>, 4>;

bool Same(const KeyWords& words, const KvKey& key) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].load(kGet) != WordOf(key, i)) return false;
  }
  return true;
}
void Store(const KvKey& key, KeyWords* words) {
  for (size_t i = 0; i < words->size(); ++i) (*words)[i].store(WordOf(key, i), kPut);
}
KvKey Load(const KeyWords& words) {
  KvKey key;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = words[i].load(kGet);
    std::memcpy(key.bytes.data() + i * sizeof(word), &word, sizeof(word));
  }
  return key;
}

uint64_t ChecksumOf(KvRecordKind kind, const KvKey& key, const KvKey& parent, int64_t first_token,
                    std::span<const int32_t> ids, std::span<const uint8_t> payload) {
  struct {
    KvKey key, parent;
    int64_t first_token, ids, payload_bytes, kind;
  } const about = {key, parent, first_token, std::ssize(ids), std::ssize(payload), static_cast<int64_t>(kind)};
  const uint64_t of_about = XXH3_64bits(&about, sizeof(about));
  const uint64_t of_ids = XXH3_64bits_withSeed(ids.data(), ids.size_bytes(), of_about);
  return XXH3_64bits_withSeed(payload.data(), payload.size(), of_ids);
}

// Data words are stored with release and loaded with acquire order, so that a reader who sees a word of a later change
// sees the sequence number that was set before it. Both are plain moves on x86.
void StoreBytes(std::span<const uint8_t> bytes, uint8_t* to) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to + i)).store(word, kPut);
  }
}
void LoadBytes(uint8_t* from, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; i += kWord) {
    const uint64_t word = std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(from + i)).load(kGet);
    std::memcpy(to + i, &word, sizeof(word));
  }
}

}  // namespace

struct HostTable::Header {
  std::array<uint8_t, kReservedBytes> reserved;
  alignas(kLine) pthread_mutex_t mutex;
  alignas(kLine) std::atomic<uint64_t> seed;  // of the buckets
  std::atomic<uint64_t> serial;               // of the last record
  std::atomic<int64_t> records;
  std::atomic<int64_t> used;   // slots
  std::atomic<uint32_t> free;  // 1 + first free slot that has been used before, 0: none
  std::atomic<uint32_t> fresh;
  std::atomic<uint32_t> hand;
  alignas(kLine) std::atomic<uint64_t> use;  // readers write it
};

struct HostTable::Slot {
  KeyWords key;
  KeyWords parent;
  std::atomic<uint64_t> scope;  // first bytes of its root
  std::atomic<uint64_t> checksum;
  std::atomic<uint64_t> serial;  // equal in all slots of a record, never used again
  std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> form;  // state, kind and number of ids
  std::atomic<uint32_t> first_token;
  std::atomic<uint32_t> expires_at;
  std::atomic<uint32_t> next_in_bucket;  // 1 + slot; of a free slot the next free one
  std::atomic<uint32_t> next_in_record;  // 1 + slot
  std::atomic<uint32_t> head;            // of a piece
  std::atomic<uint32_t> number;          // of a piece, from 1
  uint64_t unused;
};

Result<HostLayout> HostLayout::Make(const KvNamespace& name_space, int64_t block_tokens, int64_t bytes) {
  constexpr int64_t kSlotTableBytes = 128;
  HostLayout made;
  made.block_tokens = block_tokens;
  made.block_bytes = name_space.block_bytes;
  made.rings_bytes = name_space.rings_bytes;
  made.slot_bytes = RoundUp(IdBytes(block_tokens) + made.block_bytes, kLine);
  made.rings_slots = (made.body_bytes(KvRecordKind::kRings) + made.slot_bytes - 1) / made.slot_bytes;

  constexpr int64_t kMostSlots = int64_t{1} << 31;
  const auto place = [&made](int64_t slots) {
    made.slots = slots;
    made.buckets = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(slots, 1))));
    made.buckets_at = RoundUp(HostTable::kReservedBytes + 3 * kLine, kLine);
    made.uses_at = RoundUp(made.buckets_at + made.buckets * 4, kLine);
    made.slots_at = RoundUp(made.uses_at + slots * 8, kLine);
    made.data_at = RoundUp(made.slots_at + slots * kSlotTableBytes, kLine);
    made.total_bytes = made.data_at + slots * made.slot_bytes;
  };
  int64_t slots = std::clamp<int64_t>(bytes / (made.slot_bytes + kSlotTableBytes + 8 + 4), 0, kMostSlots);
  for (place(slots); made.total_bytes > bytes && slots > 0; place(--slots)) {
  }
  const int64_t fewest = 1 + made.rings_slots;
  if (slots < fewest) {
    place(fewest);
    return Status::InvalidArgument(
        fmt::format("the host tier needs at least {} bytes for one block and one snapshot of rings, {} are given",
                    made.total_bytes, bytes));
  }
  return made;
}

int64_t HostLayout::body_bytes(KvRecordKind kind) const {
  return IdBytes(block_tokens) + RoundUp(payload_bytes(kind), kWord);
}

HostTable::HostTable(uint8_t* memory, const HostLayout& layout)
    : layout_(layout),
      header_(reinterpret_cast<Header*>(memory)),
      buckets_(reinterpret_cast<std::atomic<uint32_t>*>(memory + layout.buckets_at)),
      uses_(reinterpret_cast<std::atomic<uint64_t>*>(memory + layout.uses_at)),
      slots_(reinterpret_cast<Slot*>(memory + layout.slots_at)),
      data_(memory + layout.data_at) {
  static_assert(sizeof(Header) == kReservedBytes + 3 * kLine && sizeof(Slot) == 128);
}

void HostTable::Format() {
  MakeMutex();
  uint64_t seed = 0;
  // Without random bytes the seed is 0, and only the spread over the buckets can be guessed.
  if (RAND_bytes(reinterpret_cast<uint8_t*>(&seed), sizeof(seed)) != 1) seed = 0;
  header_->seed.store(seed, kPut);
}

void HostTable::MakeMutex() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  std::memset(&header_->mutex, 0, sizeof(header_->mutex));
  pthread_mutex_init(&header_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

Result<HostTable::Lock> HostTable::Acquire(double seconds) {
  int error = pthread_mutex_trylock(&header_->mutex);
  if (error == EBUSY) {
    // The wall clock, because ThreadSanitizer knows no lock with a monotonic deadline; a jump ends the wait early or
    // late.
    timespec deadline = {};
    clock_gettime(CLOCK_REALTIME, &deadline);
    const int64_t nanoseconds = deadline.tv_nsec + static_cast<int64_t>(seconds * 1e9);
    deadline.tv_sec += nanoseconds / 1'000'000'000;
    deadline.tv_nsec = nanoseconds % 1'000'000'000;
    error = pthread_mutex_timedlock(&header_->mutex, &deadline);
  }
  if (error == 0) return Lock(&header_->mutex);
  if (error == EOWNERDEAD) {
    Lock lock(&header_->mutex);
    Rebuild(lock);
    pthread_mutex_consistent(&header_->mutex);
    recoveries_.fetch_add(1, kHint);
    return lock;
  }
  if (error == ETIMEDOUT) {
    return Status::Io(fmt::format(
        "the host tier has been locked for {} s; a process that shares it may be stopped: continue it or end it",
        seconds));
  }
  return Status::Io(fmt::format("the host tier cannot be locked: {}", std::strerror(error)));
}

uint64_t HostTable::NewUse() { return header_->use.fetch_add(kUsesPerCall, kHint) + kUsesPerCall; }

std::atomic<uint32_t>& HostTable::BucketOf(KvRecordKind kind, const KvKey& key) const {
  const uint64_t hash =
      XXH3_64bits_withSeed(key.bytes.data(), key.bytes.size(), header_->seed.load(kHint) + static_cast<uint64_t>(kind));
  return buckets_[hash & static_cast<uint64_t>(layout_.buckets - 1)];
}

std::optional<uint32_t> HostTable::Search(KvRecordKind kind, const KvKey& key) const {
  uint32_t link = BucketOf(kind, key).load(kGet);
  for (int step = 0; step < kLongestChain && link != 0 && link <= layout_.slots; ++step) {
    const Slot& slot = slots_[link - 1];
    const uint32_t form = slot.form.load(kGet);
    if (StateOf(form) == kHead && KindOf(form) == kind && Same(slot.key, key)) return link - 1;
    link = slot.next_in_bucket.load(kGet);
  }
  return std::nullopt;
}

bool HostTable::Has(KvRecordKind kind, const KvKey& key, int64_t now) const {
  const std::optional<uint32_t> slot = Search(kind, key);
  return slot.has_value() && slots_[*slot].expires_at.load(kGet) > now;
}

HostTable::Outcome HostTable::Read(KvRead* read, int64_t now, std::span<uint8_t> staging, Place* place) const {
  if (std::ssize(read->payload) != layout_.payload_bytes(read->kind) || std::ssize(read->ids) > layout_.block_tokens) {
    return Outcome::kMiss;
  }
  const int64_t id_bytes = IdBytes(std::ssize(read->ids));
  const int64_t body_bytes = id_bytes + RoundUp(std::ssize(read->payload), kWord);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::optional<uint32_t> found = Search(read->kind, read->key);
    if (!found.has_value()) return Outcome::kMiss;
    const Slot& slot = slots_[*found];
    const uint32_t sequence = slot.sequence.load(kGet);
    const uint32_t form = slot.form.load(kGet);
    if (sequence % 2 != 0 || StateOf(form) != kHead || KindOf(form) != read->kind || !Same(slot.key, read->key))
      continue;
    if (slot.expires_at.load(kGet) <= now) return Outcome::kMiss;
    const bool same = Same(slot.parent, read->parent) && slot.first_token.load(kGet) == read->first_token &&
                      IdsOf(form) == read->ids.size();
    const uint64_t checksum = slot.checksum.load(kGet);
    const bool copied = same && CopyBody(*found, body_bytes, staging.data());
    if (slot.sequence.load(kGet) != sequence) continue;

    // The copy is of one moment. The checksum is over what was asked for, so a record that says something else, or
    // whose bytes have changed, has another one.
    *place = {*found, sequence};
    const uint8_t* const payload = staging.data() + id_bytes;
    if (!copied || std::memcmp(staging.data(), read->ids.data(), read->ids.size_bytes()) != 0 ||
        checksum != ChecksumOf(read->kind, read->key, read->parent, read->first_token, read->ids,
                               {payload, read->payload.size()})) {
      return Outcome::kBad;
    }
    std::memcpy(read->payload.data(), payload, read->payload.size());
    return Outcome::kHit;
  }
  return Outcome::kMiss;
}

bool HostTable::CopyBody(uint32_t head, int64_t bytes, uint8_t* to) const {
  int64_t slot = head;
  while (true) {
    const int64_t count = std::min(bytes, layout_.slot_bytes);
    LoadBytes(data_ + slot * layout_.slot_bytes, count, to);
    bytes -= count;
    to += count;
    if (bytes == 0) return true;
    slot = int64_t{slots_[slot].next_in_record.load(kGet)} - 1;
    if (slot < 0 || slot >= layout_.slots) return false;
  }
}

void HostTable::FillBody(uint32_t head, int64_t place, std::span<const uint8_t> bytes) {
  int64_t slot = head;
  while (!bytes.empty()) {
    if (place < layout_.slot_bytes) {
      const auto part = bytes.first(std::min<size_t>(bytes.size(), static_cast<size_t>(layout_.slot_bytes - place)));
      StoreBytes(part, data_ + slot * layout_.slot_bytes + place);
      bytes = bytes.subspan(part.size());
      place += std::ssize(part);
    }
    if (bytes.empty()) return;
    place -= layout_.slot_bytes;
    slot = int64_t{slots_[slot].next_in_record.load(kGet)} - 1;
  }
}

bool HostTable::Touch(KvRecordKind kind, const KvKey& key, uint64_t use) {
  const std::optional<uint32_t> slot = Search(kind, key);
  if (slot.has_value()) uses_[*slot].store(use, kHint);
  return slot.has_value();
}

uint64_t HostTable::TouchChain(KvKey block, uint64_t use) {
  for (uint64_t step = 0; step < kUsesPerCall / 2; ++step) {
    const std::optional<uint32_t> slot = Search(KvRecordKind::kBlock, block);
    if (!slot.has_value()) break;
    uses_[*slot].store(use++, kHint);
    block = Load(slots_[*slot].parent);
  }
  return use;
}

uint64_t HostTable::Checksum(const KvWrite& write) {
  return ChecksumOf(write.kind, write.key, write.parent, write.first_token, write.ids, write.payload);
}

HostTable::Inserted HostTable::Insert(const Lock& /*lock*/, const KvWrite& write, uint64_t checksum, uint64_t use,
                                      int64_t now) {
  Inserted counts;
  if (const std::optional<uint32_t> found = Search(write.kind, write.key); found.has_value()) {
    std::atomic<uint32_t>& expires_at = slots_[*found].expires_at;
    expires_at.store(std::max(expires_at.load(kHint), static_cast<uint32_t>(write.expires_at)), kPut);
    uses_[*found].store(use, kHint);
    return counts;
  }
  const int64_t need = layout_.slots_of(write.kind);
  while (layout_.slots - header_->used.load(kHint) < need) EvictOne(now, &counts);

  // A slot that dies with an odd number is dropped by Rebuild, and with it every piece of its serial.
  const uint64_t serial = header_->serial.load(kHint) + 1;
  header_->serial.store(serial, kPut);
  const uint32_t head = TakeSlot();
  Slot& slot = slots_[head];
  const uint32_t sequence = slot.sequence.load(kHint);
  slot.sequence.store(sequence + 1, kPut);
  slot.form.store(Form(kHead, write.kind, write.ids.size()), kPut);
  slot.serial.store(serial, kPut);
  slot.next_in_record.store(0, kPut);
  Store(write.key, &slot.key);
  Store(write.parent, &slot.parent);
  slot.scope.store(WordOf(write.scope.root, 0), kPut);
  slot.checksum.store(checksum, kPut);
  slot.first_token.store(static_cast<uint32_t>(write.first_token), kPut);
  slot.expires_at.store(static_cast<uint32_t>(write.expires_at), kPut);
  for (uint32_t last = head, number = 1; number < need; ++number) {
    const uint32_t piece = TakeSlot();
    slots_[piece].serial.store(serial, kPut);
    slots_[piece].head.store(head, kPut);
    slots_[piece].number.store(number, kPut);
    slots_[piece].next_in_record.store(0, kPut);
    slots_[piece].form.store(Form(kPiece, write.kind, 0), kPut);
    slots_[last].next_in_record.store(piece + 1, kPut);
    last = piece;
  }
  FillBody(head, 0, {reinterpret_cast<const uint8_t*>(write.ids.data()), write.ids.size_bytes()});
  FillBody(head, IdBytes(std::ssize(write.ids)), write.payload);

  std::atomic<uint32_t>& bucket = BucketOf(write.kind, write.key);
  slot.next_in_bucket.store(bucket.load(kHint), kPut);
  bucket.store(head + 1, kPut);
  uses_[head].store(use, kHint);
  header_->records.store(header_->records.load(kHint) + 1, kHint);
  slot.sequence.store(sequence + 2, kPut);
  counts.is_new = true;
  return counts;
}

void HostTable::EvictOne(int64_t now, Inserted* counts) {
  const uint32_t fresh = header_->fresh.load(kHint);
  uint32_t at = header_->hand.load(kHint);
  std::optional<uint32_t> oldest;
  bool expired = false;
  int seen = 0;
  for (uint32_t step = 0; step < fresh && seen < kEvictionWindow && !expired; ++step) {
    at = at + 1 < fresh ? at + 1 : 0;
    if (StateOf(slots_[at].form.load(kHint)) != kHead) continue;
    ++seen;
    expired = slots_[at].expires_at.load(kHint) <= now;
    if (expired || !oldest.has_value() || uses_[at].load(kHint) < uses_[*oldest].load(kHint)) oldest = at;
  }
  header_->hand.store(at, kHint);
  assert(oldest.has_value());  // slots are in use, so there are records
  RemoveRecord(*oldest);
  ++(expired ? counts->expired : counts->evicted);
}

uint32_t HostTable::TakeSlot() {
  header_->used.store(header_->used.load(kHint) + 1, kHint);
  const uint32_t free = header_->free.load(kHint);
  if (free != 0) {
    header_->free.store(slots_[free - 1].next_in_bucket.load(kHint), kPut);
    return free - 1;
  }
  const uint32_t fresh = header_->fresh.load(kHint);
  header_->fresh.store(fresh + 1, kPut);
  return fresh;
}

void HostTable::GiveSlot(uint32_t slot) {
  slots_[slot].form.store(kFree, kPut);
  slots_[slot].next_in_bucket.store(header_->free.load(kHint), kPut);
  header_->free.store(slot + 1, kPut);
  header_->used.store(header_->used.load(kHint) - 1, kHint);
}

void HostTable::Unlink(uint32_t head) {
  std::atomic<uint32_t>* link = &BucketOf(KindOf(slots_[head].form.load(kHint)), Load(slots_[head].key));
  while (link->load(kHint) != head + 1) {
    if (link->load(kHint) == 0) return;
    link = &slots_[link->load(kHint) - 1].next_in_bucket;
  }
  link->store(slots_[head].next_in_bucket.load(kHint), kPut);
}

void HostTable::RemoveRecord(uint32_t head) {
  Slot& slot = slots_[head];
  slot.sequence.store(slot.sequence.load(kHint) + 1, kPut);
  Unlink(head);
  for (uint32_t link = slot.next_in_record.load(kHint); link != 0;) {
    const uint32_t piece = link - 1;
    link = slots_[piece].next_in_record.load(kHint);
    GiveSlot(piece);
  }
  header_->records.store(header_->records.load(kHint) - 1, kHint);
  GiveSlot(head);
  slot.sequence.store(slot.sequence.load(kHint) + 1, kPut);
}

bool HostTable::Remove(const Lock& /*lock*/, Place place) {
  const Slot& slot = slots_[place.slot];
  if (slot.sequence.load(kHint) != place.sequence || StateOf(slot.form.load(kHint)) != kHead) return false;
  RemoveRecord(place.slot);
  return true;
}

bool HostTable::MayBeExpired(uint32_t slot, int64_t now) const {
  return StateOf(slots_[slot].form.load(kGet)) == kHead && slots_[slot].expires_at.load(kGet) <= now;
}

bool HostTable::MayBeOfScope(uint32_t slot, const KvScope& scope) const {
  return StateOf(slots_[slot].form.load(kGet)) == kHead && slots_[slot].scope.load(kGet) == WordOf(scope.root, 0);
}

bool HostTable::RemoveExpired(const Lock& /*lock*/, uint32_t slot, int64_t now) {
  if (!MayBeExpired(slot, now)) return false;
  RemoveRecord(slot);
  return true;
}

bool HostTable::RemoveOfScope(const Lock& /*lock*/, uint32_t slot, const KvScope& scope) {
  if (!MayBeOfScope(slot, scope)) return false;
  // The record first: readers must not take the zeros for damage.
  std::vector<uint32_t> slots = {slot};
  while (slots_[slots.back()].next_in_record.load(kHint) != 0) {
    slots.push_back(slots_[slots.back()].next_in_record.load(kHint) - 1);
  }
  RemoveRecord(slot);
  const std::vector<uint8_t> zeros(static_cast<size_t>(layout_.slot_bytes));
  for (const uint32_t each : slots) StoreBytes(zeros, data_ + each * layout_.slot_bytes);
  return true;
}

bool HostTable::IsWhole(uint32_t head) const {
  const Slot& slot = slots_[head];
  const uint32_t form = slot.form.load(kHint);
  if (slot.sequence.load(kHint) % 2 != 0 || KindOf(form) > KvRecordKind::kRings) return false;
  const int64_t need = layout_.slots_of(KindOf(form));
  uint32_t link = slot.next_in_record.load(kHint);
  for (uint32_t number = 1; number < need; ++number) {
    if (link == 0 || link > header_->fresh.load(kHint)) return false;
    const Slot& piece = slots_[link - 1];
    if (StateOf(piece.form.load(kHint)) != kPiece || piece.head.load(kHint) != head ||
        piece.number.load(kHint) != number || piece.serial.load(kHint) != slot.serial.load(kHint)) {
      return false;
    }
    link = piece.next_in_record.load(kHint);
  }
  return link == 0;
}

void HostTable::Rebuild(const Lock& /*lock*/) {
  const uint32_t fresh = header_->fresh.load(kHint);
  for (uint32_t i = 0; i < fresh; ++i) {
    Slot& slot = slots_[i];
    const uint32_t sequence = slot.sequence.load(kHint);
    if (sequence % 2 == 0 && (StateOf(slot.form.load(kHint)) != kHead || IsWhole(i))) continue;
    slot.sequence.store(sequence | 1, kPut);
    slot.form.store(kFree, kPut);
    slot.sequence.store((sequence | 1) + 1, kPut);
  }
  for (int64_t i = 0; i < layout_.buckets; ++i) buckets_[i].store(0, kPut);
  int64_t records = 0;
  int64_t used = 0;
  uint32_t free = 0;
  for (uint32_t i = fresh; i-- > 0;) {
    Slot& slot = slots_[i];
    const uint32_t state = StateOf(slot.form.load(kHint));
    if (state == kHead) {
      std::atomic<uint32_t>& bucket = BucketOf(KindOf(slot.form.load(kHint)), Load(slot.key));
      slot.next_in_bucket.store(bucket.load(kHint), kPut);
      bucket.store(i + 1, kPut);
      ++records;
      ++used;
      continue;
    }
    const uint32_t head = slot.head.load(kHint);
    if (state == kPiece && head < fresh && StateOf(slots_[head].form.load(kHint)) == kHead &&
        slots_[head].serial.load(kHint) == slot.serial.load(kHint)) {
      ++used;
      continue;
    }
    slot.form.store(kFree, kPut);
    slot.next_in_bucket.store(free, kPut);
    free = i + 1;
  }
  header_->free.store(free, kPut);
  header_->records.store(records, kHint);
  header_->used.store(used, kHint);
}

Status HostTable::Verify(const Lock& /*lock*/) const {
  const auto wrong = [](std::string_view what, int64_t number) {
    return Status::Corruption(fmt::format("host tier: {} {}", what, number));
  };
  const int64_t fresh = header_->fresh.load(kHint);
  if (fresh > layout_.slots) return wrong("more slots used than there are:", fresh);
  int64_t records = 0;
  int64_t owned = 0;
  int64_t pieces = 0;
  for (uint32_t i = 0; i < fresh; ++i) {
    const uint32_t form = slots_[i].form.load(kHint);
    if (StateOf(form) == kPiece) ++pieces;
    if (StateOf(form) != kHead) continue;
    ++records;
    if (!IsWhole(i)) return wrong("a record that is not whole in slot", i);
    owned += layout_.slots_of(KindOf(form));
    if (Search(KindOf(form), Load(slots_[i].key)) != i) return wrong("a record that is not found in slot", i);
  }
  if (records != header_->records.load(kHint)) return wrong("a wrong number of records:", records);
  if (records + pieces != owned) return wrong("pieces that belong to no record:", records + pieces - owned);
  if (owned != header_->used.load(kHint)) return wrong("a wrong number of used slots:", owned);
  int64_t free = 0;
  for (uint32_t link = header_->free.load(kHint); link != 0 && free <= fresh; ++free) {
    if (link > fresh || StateOf(slots_[link - 1].form.load(kHint)) != kFree) return wrong("no free slot:", link);
    link = slots_[link - 1].next_in_bucket.load(kHint);
  }
  if (free != fresh - owned) return wrong("a wrong number of free slots:", free);
  return Status::Ok();
}

int64_t HostTable::record_count() const { return header_->records.load(kHint); }
int64_t HostTable::used_slots() const { return header_->used.load(kHint); }
uint32_t HostTable::first_fresh_slot() const { return header_->fresh.load(kHint); }

}  // namespace deepinfer
