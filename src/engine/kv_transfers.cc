#include "engine/kv_transfers.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"

namespace deepinfer {
namespace {

constexpr int64_t kTryAgain = 32;
/// A record that is used goes to the tiers again after so long: its life is renewed, or it is written anew where it was
/// lost.
constexpr int64_t kOfferAgainSeconds = 600;
/// Whoever has computed so many tokens behind a hit may keep rings so close to others: they are no more bytes than its
/// blocks, and without them a hit computes up to rings_interval tokens again.
constexpr int64_t kLongRun = 4096;
constexpr int64_t kRingsOfLongRun = 256;
constexpr size_t kBlock = static_cast<size_t>(kKvBlockTokens);

uint64_t MarkOf(const KvKey& key) {
  uint64_t mark = 0;
  std::memcpy(&mark, key.bytes.data(), sizeof(mark));
  return mark | 1;  // 0: nothing was kept
}

std::span<const int32_t> IdsOfBlock(std::span<const int32_t> ids, int64_t block) {
  return ids.subspan(static_cast<size_t>(block) * kBlock, kBlock);
}

const KvKey& ParentOf(const RequestTransfer& transfer, int64_t block) {
  return block == 0 ? transfer.scope.root : transfer.keys[static_cast<size_t>(block - 1)];
}

}  // namespace

struct KvTransfers::Fetching {
  std::shared_ptr<Request> request;
  std::shared_ptr<KvFetch> fetch;
  std::vector<int32_t> ids;  // of the whole prefix; the request's may move while it runs
  std::vector<KvKey> keys;
  KvKey root;
  double seconds_per_token = 0;
  double deadline = 0;
  int64_t first = 0;       // blocks that the pool had
  NodeId deepest = kRoot;  // pinned: of these, then of those that have arrived
  bool reading = false;
  std::vector<int32_t> blocks;  // taken, by block - first
  int64_t adopted = 0;          // of them
  int32_t snapshot = kNoSnapshot;
  int64_t snapshot_block = -1;  // the rings behind it
  bool abandoned = false;       // the request has gone on; only payloads are waited for

  const KvKey& parent(int64_t block) const { return block == 0 ? root : keys[static_cast<size_t>(block - 1)]; }
};

KvTransfers::KvTransfers(KvManager& kv, TierStore& store, const KvTransferOptions& options, std::function<void()> wake,
                         BlockCopies* copies)
    : kv_(kv), store_(store), options_(options), wake_(std::move(wake)), copies_(copies) {
  const auto nodes = static_cast<size_t>(kv.blocks().block_count());
  kept_blocks_.resize(nodes);
  kept_rings_.resize(nodes);
}

KvTransfers::~KvTransfers() = default;

void KvTransfers::Begin(const std::shared_ptr<Request>& request, double seconds_per_token) {
  RequestTransfer& transfer = request->transfer;
  if (request->choice != 0 || request->sampling.prompt_logprobs >= 0) return;
  const std::span<const int32_t> ids = request->ids;
  const PrefixMatch match = kv_.tree().Match(request->cache.name_space, ids);
  const int64_t first = std::ssize(match.path);
  // The last token is always computed.
  const int64_t blocks = (std::ssize(ids) - 1) / kKvBlockTokens;
  if ((blocks - first) * kKvBlockTokens < options_.least_tokens) return;
  auto fetching = std::make_unique<Fetching>();
  fetching->request = request;
  fetching->ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(blocks * kKvBlockTokens));
  fetching->keys.assign(transfer.keys.begin(), transfer.keys.begin() + static_cast<std::ptrdiff_t>(blocks));
  fetching->root = transfer.scope.root;
  fetching->seconds_per_token = seconds_per_token;
  fetching->deadline = NowSeconds() + options_.deadline_seconds;
  fetching->first = first;
  fetching->deepest = match.deepest();
  kv_.tree().Pin(fetching->deepest);
  // Rings are of use where a resume may lie (cache/replay_plan.h).
  const ReplaySettings& settings = request->cache.settings;
  const int64_t usable = settings.bounded ? std::ssize(ids) - settings.keep : blocks * kKvBlockTokens;
  std::vector<KvKey> wanted(fetching->keys.begin() + static_cast<std::ptrdiff_t>(first), fetching->keys.end());
  fetching->fetch = store_.Locate(transfer.scope, std::move(wanted), 0, usable / kKvBlockTokens - 1 - first, wake_);
  transfer.waiting = true;
  fetching_.push_back(std::move(fetching));
}

void KvTransfers::LetGo(Fetching* fetching) {
  fetching->request->transfer.waiting = false;
  kv_.tree().Unpin(fetching->deepest);
  fetching->deepest = kRoot;
}

void KvTransfers::StartReading(Fetching* fetching, double now, int64_t reserve) {
  const KvFetch::Located& found = fetching->fetch->answer();
  const int64_t tokens = found.blocks * kKvBlockTokens;
  const bool worth = tokens >= options_.least_tokens;
  const bool slow = options_.gate && worth && fetching->seconds_per_token > 0 &&
                    found.seconds > fetching->seconds_per_token * static_cast<double>(tokens);
  // Now and then one goes through all the same, or nobody would notice that the tier is faster now.
  const bool refused = slow && ++slow_ % kTryAgain != 0;
  if (refused) ++counts_.refused;
  if (worth && !refused) fetching->blocks = kv_.TakeBlocks(found.blocks, reserve);
  if (fetching->blocks.empty()) {
    store_.Abandon(fetching->fetch);
    return;
  }
  ++counts_.fetches;
  fetching->reading = true;
  fetching->deadline =
      now + options_.deadline_seconds + options_.deadline_per_ki_token * static_cast<double>(tokens) / 1024;
  const auto read_of = [&](KvRecordKind kind, int64_t block, std::span<uint8_t> payload) {
    KvRead read;
    read.kind = kind;
    read.key = fetching->keys[static_cast<size_t>(block)];
    read.parent = fetching->parent(block);
    read.first_token = block * kKvBlockTokens;
    read.ids = IdsOfBlock(fetching->ids, block);
    read.payload = payload;
    return read;
  };
  std::vector<KvRead> reads;
  for (int64_t i = 0; i < std::ssize(fetching->blocks); ++i) {
    uint8_t* const data = kv_.block_data(fetching->blocks[static_cast<size_t>(i)]);
    reads.push_back(
        read_of(KvRecordKind::kBlock, fetching->first + i, {data, static_cast<size_t>(kv_.blocks().block_bytes())}));
  }
  std::vector<KvRead> rings;
  if (found.rings >= 0 && found.rings < std::ssize(fetching->blocks)) fetching->snapshot = kv_.TakeSnapshot();
  if (fetching->snapshot != kNoSnapshot) {
    fetching->snapshot_block = fetching->first + found.rings;
    rings.push_back(
        read_of(KvRecordKind::kRings, fetching->snapshot_block,
                {kv_.snapshots().data(fetching->snapshot), static_cast<size_t>(kv_.snapshots().block_bytes())}));
  }
  store_.Read(fetching->fetch, std::move(reads), std::move(rings));
}

void KvTransfers::TakeArrived(Fetching* fetching) {
  const std::vector<KvFetch::Arrival> from = fetching->fetch->arrivals();
  std::vector<int64_t>& tokens_from = fetching->request->transfer.tokens_from;
  tokens_from.resize(store_.tier_count());
  for (; fetching->adopted < std::ssize(from); ++fetching->adopted) {
    const auto i = static_cast<size_t>(fetching->adopted);
    const int64_t block = fetching->first + fetching->adopted;
    fetching->deepest = kv_.Adopt(fetching->request->cache.name_space, fetching->deepest,
                                  IdsOfBlock(fetching->ids, block), fetching->blocks[i]);
    kept_blocks_[static_cast<size_t>(fetching->deepest)] = {MarkOf(fetching->keys[static_cast<size_t>(block)]),
                                                            from[i].expires_at};
    tokens_from[from[i].tier] += kKvBlockTokens;
    counts_.fetched_tokens += kKvBlockTokens;
  }
  const int64_t depth = fetching->first + fetching->adopted;
  if (fetching->snapshot == kNoSnapshot || !fetching->fetch->finished()) return;
  if (fetching->fetch->arrived_rings() && fetching->snapshot_block < depth) {
    NodeId node = fetching->deepest;
    while (kv_.tree().depth(node) > fetching->snapshot_block + 1) node = kv_.tree().parent(node);
    kv_.AdoptSnapshot(node, fetching->snapshot);
    kept_rings_[static_cast<size_t>(node)] = {MarkOf(fetching->keys[static_cast<size_t>(fetching->snapshot_block)]),
                                              from.back().expires_at};
    fetching->snapshot = kNoSnapshot;
  }
}

void KvTransfers::GiveBackRest(Fetching* fetching) {
  for (int64_t i = fetching->adopted; i < std::ssize(fetching->blocks); ++i) {
    kv_.GiveBack(fetching->blocks[static_cast<size_t>(i)]);
  }
  fetching->blocks.clear();
  if (fetching->snapshot != kNoSnapshot) kv_.GiveBackSnapshot(std::exchange(fetching->snapshot, kNoSnapshot));
}

void KvTransfers::Poll(double now, int64_t reserve) {
  std::erase_if(fetching_, [&](const std::unique_ptr<Fetching>& owned) {
    Fetching* const fetching = owned.get();
    KvFetch& fetch = *fetching->fetch;
    const bool gone = fetching->request->stream->cancelled(0);
    if (!fetching->reading && fetch.located() && !gone && !fetching->abandoned) StartReading(fetching, now, reserve);
    // Before the arrivals: what has arrived by then is whole.
    const bool finished = fetch.finished();
    if (!fetching->abandoned) {
      if (fetching->reading) TakeArrived(fetching);
      const bool over = finished || gone || now >= fetching->deadline;
      if (over) {
        if (finished && fetching->adopted < std::ssize(fetching->blocks)) ++counts_.short_reads;
        if (!finished && !gone) ++counts_.late;
        LetGo(fetching);
        fetching->abandoned = true;
        if (!finished && fetch.Stop()) {
          GiveBackRest(fetching);
          return true;
        }
      }
    }
    if (!finished) return false;
    GiveBackRest(fetching);
    return true;
  });
}

double KvTransfers::NextDeadline() const {
  double next = std::numeric_limits<double>::max();
  for (const auto& fetching : fetching_) {
    if (!fetching->abandoned) next = std::min(next, fetching->deadline);
  }
  return next;
}

bool KvTransfers::Kept(const Mark& mark, const KvKey& key, int64_t now, int64_t expires) {
  return mark.key == MarkOf(key) && now < mark.expires_at && expires <= mark.expires_at + kOfferAgainSeconds;
}

void KvTransfers::ForgetLost() {
  const std::lock_guard lock(lost_mutex_);
  for (const auto& [place, mark] : lost_) {
    if (*place == mark) *place = {};
  }
  lost_.clear();
}

void KvTransfers::AfterStep(Request* request) {
  if (request->transfer.no_store) return;
  const int64_t fresh = (request->cache.published - request->transfer.persisted) * kKvBlockTokens;
  const bool input_ended = request->prefilled && !std::exchange(request->transfer.input_persisted, request->prefilled);
  if (!input_ended && (request->prefilled || fresh < options_.persist_interval)) return;
  Persist(request->cache.deepest, request, input_ended);
}

void KvTransfers::AfterEnd(NodeId deepest, Request* request) {
  if (!request->transfer.no_store) Persist(deepest, request, false);
}

std::vector<NodeId> KvTransfers::ChooseRings(const std::vector<NodeId>& path, const Request& request, bool input_ended,
                                             int64_t now, int64_t expires) const {
  std::vector<NodeId> rings;
  const std::vector<KvKey>& keys = request.transfer.keys;
  const PrefixTree& tree = kv_.tree();
  const int64_t computed = std::ssize(path) * kKvBlockTokens - request.cache.replay.hit_tokens;
  const int64_t interval =
      computed >= kLongRun ? std::min(kRingsOfLongRun, options_.rings_interval) : options_.rings_interval;
  const auto keep = [&](int64_t depth) {
    const NodeId node = path[static_cast<size_t>(depth - 1)];
    const int64_t apart = interval / kKvBlockTokens;
    for (int64_t above = depth; above > std::max<int64_t>(0, depth - apart); --above) {
      const NodeId at = path[static_cast<size_t>(above - 1)];
      const Mark& mark = kept_rings_[static_cast<size_t>(at)];
      if (Kept(mark, keys[static_cast<size_t>(above - 1)], now, expires)) return;
      if (std::ranges::find(rings, at) != rings.end()) return;
    }
    rings.push_back(node);
  };
  // The deepest that the same prompt, or one that goes on from it, can resume from; and the end of what was shared.
  const ReplaySettings& settings = request.cache.settings;
  const int64_t limit =
      input_ended && settings.bounded ? (request.prompt_tokens - settings.keep) / kKvBlockTokens : std::ssize(path);
  for (int64_t depth = std::min(limit, std::ssize(path)); depth > 0; --depth) {
    if (tree.snapshot(path[static_cast<size_t>(depth - 1)]) == kNoSnapshot) continue;
    keep(depth);
    break;
  }
  const int64_t shared = request.cache.replay.hit_tokens / kKvBlockTokens;
  if (shared > 0 && shared <= std::ssize(path) && tree.snapshot(path[static_cast<size_t>(shared - 1)]) != kNoSnapshot)
    keep(shared);
  return rings;
}

void KvTransfers::Persist(NodeId deepest, Request* request, bool input_ended) {
  RequestTransfer& transfer = request->transfer;
  const PrefixTree& tree = kv_.tree();
  const int64_t depth = tree.depth(deepest);
  transfer.persisted = std::max(transfer.persisted, depth);
  if (depth * kKvBlockTokens < options_.least_tokens) return;
  ExtendKeys(transfer.scope.root, std::span(request->ids).first(static_cast<size_t>(depth) * kBlock), kKvBlockTokens,
             &transfer.keys);
  std::vector<NodeId> path(static_cast<size_t>(depth));
  NodeId node = deepest;
  for (int64_t i = depth; i > 0; --i) {
    path[static_cast<size_t>(i - 1)] = node;
    node = tree.parent(node);
  }
  const int64_t now = options_.clock();
  const int64_t expires = now + transfer.ttl_seconds;
  ForgetLost();
  OutgoingRecords piece;
  int64_t piece_bytes = 0;
  Marks marks;
  const auto refused = copies_ == nullptr ? nullptr : std::make_shared<bool>(false);
  // False: a tier has too much to write; what it did not take is offered again when it is seen again.
  const auto send = [&] {
    if (marks.empty()) return true;
    piece_bytes = 0;
    if (copies_ == nullptr) {
      if (!store_.Store(std::exchange(piece.batch, {}))) return false;
    } else {
      piece.refused = refused;
      piece.lost = [this, marks] {
        const std::lock_guard lock(lost_mutex_);
        lost_.insert(lost_.end(), marks.begin(), marks.end());
      };
      copies_->Keep(std::exchange(piece, {}), store_);
    }
    for (const auto& [place, mark] : marks) *place = mark;
    marks.clear();
    return true;
  };
  const auto add = [&](KvRecordKind kind, int64_t block, const uint8_t* payload, int64_t bytes, Mark* place) {
    if (piece_bytes + bytes > kPieceBytes && !send()) return false;
    piece_bytes += bytes;
    const KvKey& key = transfer.keys[static_cast<size_t>(block)];
    const std::span<const int32_t> ids = IdsOfBlock(request->ids, block);
    const KvWrite write = {kind,
                           transfer.scope,
                           key,
                           ParentOf(transfer, block),
                           block * kKvBlockTokens,
                           ids,
                           std::span(payload, static_cast<size_t>(bytes)),
                           expires};
    // Rings are host memory everywhere.
    if (copies_ != nullptr && kind == KvRecordKind::kBlock) {
      piece.blocks.push_back(write);
      piece.ids.insert(piece.ids.end(), ids.begin(), ids.end());
    } else {
      piece.batch.Add(write);
    }
    marks.emplace_back(place, Mark{MarkOf(key), expires});
    return true;
  };
  for (int64_t i = 0; i < depth; ++i) {
    const NodeId at = path[static_cast<size_t>(i)];
    Mark* const place = &kept_blocks_[static_cast<size_t>(at)];
    if (Kept(*place, transfer.keys[static_cast<size_t>(i)], now, expires)) continue;
    if (!add(KvRecordKind::kBlock, i, kv_.block_data(tree.block(at)), kv_.blocks().block_bytes(), place)) return;
    counts_.persisted_tokens += kKvBlockTokens;
  }
  for (const NodeId at : ChooseRings(path, *request, input_ended, now, expires)) {
    if (!add(KvRecordKind::kRings, tree.depth(at) - 1, kv_.snapshots().data(tree.snapshot(at)),
             kv_.snapshots().block_bytes(), &kept_rings_[static_cast<size_t>(at)])) {
      return;
    }
    ++counts_.persisted_rings;
  }
  send();
}

}  // namespace deepinfer
