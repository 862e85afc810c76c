// Top-k, top-p and log probabilities (ops/sampling.h, step 5): a block a row, to the bit of the reference.
//
// A row is never sorted as a whole. Ranks are found by counting digits of the logits' order-preserving keys; top-p
// walks down bands of at most kBand ranks, sorted in shared memory. Sums over ids have 16 chains of additions, which
// one warp makes while the others compute the next weights.
#include "ops/cuda/choose_tokens.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kRankThreads = 1024;
constexpr int kRankWarps = kRankThreads / 32;
constexpr int kLanes = static_cast<int>(sampling::kWeightLanes);
constexpr int kTile = 2 * (kRankThreads - 32);  // weights at a time; a multiple of kLanes
constexpr int kSorted = 4096;
constexpr int kBand = 3840;  // < kSorted, so that its weights fit in front of the keys
constexpr int kDigits = 256;
static_assert(kTile % kLanes == 0 && 2 * kTile >= kBand && kMostTopLogprobs <= kBand);

struct Digit {
  int digit;       // -1: no more than `limit` keys
  uint32_t above;  // keys of larger digits
  uint32_t here;
};

struct Shared {
  union {
    uint32_t counts[kDigits][32];  // a column a lane: no conflicts however many keys share a digit
    struct {
      union {
        double tiles[2][kTile];
        double weights[kBand];
        uint64_t ranked[kMostTopLogprobs];
      };
      uint32_t keys[kSorted];
    };
  };
  uint32_t warps[kRankWarps];
  Digit digit;
  double sum;
  int32_t id;
  uint32_t count;
  int32_t last;
};
static_assert(sizeof(Shared) <= 48 * 1024);

// The functions below are for the whole block, and give every thread the result. key(id) is 0 for ids that have no
// rank.

// Of the keys low <= key < high with these digits in front: the largest digit with which more than `limit` keys are
// counted from the top.
template <typename Key>
__device__ Digit CountDigits(Shared& shared, const Key& key, int32_t vocabulary, uint32_t low, uint32_t high,
                             uint32_t prefix, int shift, uint32_t limit) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t mask = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kDigits * 32; i += kRankThreads) shared.counts[i / 32][i % 32] = 0;
  __syncthreads();
#pragma unroll 4
  for (int32_t id = static_cast<int32_t>(threadIdx.x); id < vocabulary; id += kRankThreads) {
    const uint32_t value = key(id);
    if (value >= low && value < high && (value & mask) == prefix) {
      atomicAdd(&shared.counts[value >> shift & 255u][lane], 1u);
    }
  }
  __syncthreads();
  uint32_t total = 0;  // of digit threadIdx.x / 4
  for (int i = 0; i < 8; ++i) total += shared.counts[threadIdx.x / 4][threadIdx.x % 4 * 8 + static_cast<unsigned>(i)];
  total += __shfl_xor_sync(0xffffffffu, total, 1);
  total += __shfl_xor_sync(0xffffffffu, total, 2);
  __syncthreads();
  if (threadIdx.x % 4 == 0) shared.counts[threadIdx.x / 4][0] = total;
  __syncthreads();
  if (threadIdx.x < 32) {  // eight digits a lane, the largest first
    uint32_t mine = 0;
    for (int i = 0; i < 8; ++i) mine += shared.counts[kDigits - 1 - lane * 8 - i][0];
    uint32_t through = mine;
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(0xffffffffu, through, step);
      if (lane >= step) through += before;
    }
    uint32_t above = through - mine;
    if (lane == 31 && through <= limit) shared.digit = {-1, through, 0};
    if (above <= limit && through > limit) {
      int digit = kDigits - 1 - lane * 8;
      while (above + shared.counts[digit][0] <= limit) above += shared.counts[digit--][0];
      shared.digit = {digit, above, shared.counts[digit][0]};
    }
  }
  __syncthreads();
  return shared.digit;
}

// The id of the n-th (from 1) of the ids with this key; there are as many.
template <typename Key>
__device__ int32_t IdOfTie(Shared& shared, const Key& key, int32_t vocabulary, uint32_t value, uint32_t n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int32_t span = (vocabulary + kRankThreads - 1) / kRankThreads * 32;  // ids of a warp
  const int32_t begin = warp * span, end = min(begin + span, vocabulary);
  const auto ties = [&](int32_t base) {
    return __ballot_sync(0xffffffffu, base + lane < end && key(base + lane) == value);
  };
  uint32_t count = 0;
  for (int32_t base = begin; base < end; base += 32) count += static_cast<uint32_t>(__popc(ties(base)));
  __syncthreads();
  if (lane == 0) shared.warps[warp] = count;
  __syncthreads();
  uint32_t before = 0;
  for (int w = 0; w < warp; ++w) before += shared.warps[w];
  if (before < n && n <= before + count) {
    for (int32_t base = begin; base < end; base += 32) {
      const uint32_t found = ties(base);
      const uint32_t rank = before + static_cast<uint32_t>(__popc(found & ((1u << lane) - 1))) + 1;
      if ((found >> lane & 1u) != 0 && rank == n) shared.id = base + lane;
      before += static_cast<uint32_t>(__popc(found));
    }
  }
  __syncthreads();
  return shared.id;
}

// Rank `wanted` (from 1): its key, and how many ids of this key rank up to it. Key 0: there are fewer ranks.
struct Rank {
  uint32_t key;
  uint32_t ties;
};
template <typename Key>
__device__ Rank FindRank(Shared& shared, const Key& key, int32_t vocabulary, uint32_t wanted) {
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const Digit digit = CountDigits(shared, key, vocabulary, 1, 0xffffffffu, prefix, shift, wanted - 1);
    if (digit.digit < 0) return {0, 0};
    wanted -= digit.above;
    prefix |= static_cast<uint32_t>(digit.digit) << shift;
  }
  return {prefix, wanted};
}

// The next ranks below `high`: the keys low .. high - 1, at most kBand of them, or any number of one key.
struct Band {
  uint32_t low = 0;
  uint32_t count = 0;
  bool one_key = false;
};
template <typename Key>
__device__ Band FindBand(Shared& shared, const Key& key, int32_t vocabulary, uint32_t lowest, uint32_t high) {
  uint32_t prefix = 0;
  Digit digit{};
  for (int shift = 24; shift >= 0; shift -= 8) {
    digit = CountDigits(shared, key, vocabulary, lowest, high, prefix, shift, kBand);
    if (digit.digit < 0) return {max(lowest, prefix), digit.above, false};
    if (digit.above > 0) {
      return {max(lowest, prefix | static_cast<uint32_t>(digit.digit + 1) << shift), digit.above, false};
    }
    prefix |= static_cast<uint32_t>(digit.digit) << shift;
  }
  return {prefix, digit.here, true};
}

// size: a power of two.
template <typename T>
__device__ void SortDescending(T* values, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kRankThreads) {
        const int other = i ^ step;
        if (other < i) continue;
        const T a = values[i], b = values[other];
        if ((a < b) != ((i & run) == 0)) continue;
        values[i] = b;
        values[other] = a;
      }
    }
  }
  __syncthreads();
}

__device__ __forceinline__ int PowerOfTwo(uint32_t count) {
  return count <= 1 ? 1 : 1 << (32 - __clz(static_cast<int>(count - 1)));
}

// The sum of weight(id) over the ids, in the order of ops/sampling_order.h.
template <typename Weight>
__device__ double LaneSum(Shared& shared, int32_t vocabulary, const Weight& weight) {
  const int thread = static_cast<int>(threadIdx.x);
  const int tiles = (vocabulary + kTile - 1) / kTile;
  double sum = 0;
  __syncthreads();
  for (int tile = 0; tile <= tiles; ++tile) {
    if (thread >= 32 && tile < tiles) {
      for (int at = thread - 32; at < kTile; at += kRankThreads - 32) {
        const int32_t id = tile * kTile + at;
        shared.tiles[tile % 2][at] = id < vocabulary ? weight(id) : 0;
      }
    } else if (thread < kLanes && tile > 0) {
      const double* weights = shared.tiles[(tile - 1) % 2];
#pragma unroll 4
      for (int at = thread; at < kTile; at += kLanes) sum += weights[at];
    }
    __syncthreads();
  }
  if (thread < 32) {
    for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
    if (thread == 0) shared.sum = sum;
  }
  __syncthreads();
  return shared.sum;
}

// Adds the weights of ranks one by one until `enough`; `of(i)` is the weight of rank i of the band. By one thread.
template <typename Of>
__device__ uint32_t AddRanks(uint32_t count, bool first, double enough, double& reached, const Of& of) {
  uint32_t n = 0;
  if (first && count > 0) reached += of(n++);
  while (n < count && reached < enough) {
    // Sums never fall, so eight at a time need one comparison.
    double ahead = reached;
    if (n + 8 <= count) {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) ahead += of(n + i);
      if (ahead < enough) {
        reached = ahead;
        n += 8;
        continue;
      }
    }
    reached += of(n++);
  }
  return n;
}

// Top-p among the `most` first ranks, the last of which has the key `lowest`: the last rank that stays.
template <typename Key, typename WeightOfKey>
__device__ Rank FindNucleus(Shared& shared, const Key& key, int32_t vocabulary, uint32_t lowest, uint32_t most,
                            double enough, const WeightOfKey& weight) {
  uint32_t high = 0xffffffffu, ranked = 0;
  double reached = 0;  // of thread 0
  while (true) {
    const Band band = FindBand(shared, key, vocabulary, lowest, high);
    if (band.count == 0) return {0, 0};
    if (!band.one_key) {
      const int size = PowerOfTwo(band.count);
      __syncthreads();
      if (threadIdx.x == 0) shared.count = 0;
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kRankThreads) shared.keys[i] = 0;
      __syncthreads();
      for (int32_t id = static_cast<int32_t>(threadIdx.x); id < vocabulary; id += kRankThreads) {
        const uint32_t value = key(id);
        if (value >= band.low && value < high) shared.keys[atomicAdd(&shared.count, 1u)] = value;
      }
      SortDescending(shared.keys, size);
      for (uint32_t i = threadIdx.x; i < band.count; i += kRankThreads) shared.weights[i] = weight(shared.keys[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t count = min(band.count, most - ranked);
      const double of_one = band.one_key ? weight(band.low) : 0;
      const uint32_t n =
          band.one_key ? AddRanks(count, ranked == 0, enough, reached, [&](uint32_t) { return of_one; })
                       : AddRanks(count, ranked == 0, enough, reached, [&](uint32_t i) { return shared.weights[i]; });
      ranked += n;
      shared.last = reached >= enough || ranked == most ? static_cast<int32_t>(n) - 1 : -1;
      shared.count = ranked;
    }
    __syncthreads();
    const int32_t last = shared.last;
    ranked = shared.count;
    if (last >= 0) {
      if (band.one_key) return {band.low, static_cast<uint32_t>(last) + 1};
      int32_t first = last;
      while (first > 0 && shared.keys[first - 1] == shared.keys[last]) --first;
      return {shared.keys[last], static_cast<uint32_t>(last - first) + 1};
    }
    high = band.low;
    if (high <= lowest) return {0, 0};
  }
}

__device__ void FilterRow(const SamplingRows& rows, int64_t t, Shared& shared) {
  const DeviceRule& rule = rows.rules[t];
  const LawRow row = LawRowOf(rows, t, false);
  if (row.likeliest.id < 0) return;
  const int32_t vocabulary = static_cast<int32_t>(rows.logits.columns);
  const float largest = row.likeliest.logit;
  const double temperature = rule.temperature;
  const auto key = [&](int32_t id) { return row.logits[id] == -INFINITY ? 0u : KeyOfLogit(row.logits[id]); };
  const auto weight = [&](float logit) { return ExpNonPositive((double{logit} - double{largest}) / temperature); };
  RankCut cut{kLowestLogit, kLastId};
  Rank last{1, 0};
  const auto cut_at = [&](Rank rank) {
    cut = {LogitOfKey(rank.key), IdOfTie(shared, key, vocabulary, rank.key, rank.ties)};
  };
  uint32_t most = static_cast<uint32_t>(vocabulary);
  if (rule.top_k > 0) {
    most = static_cast<uint32_t>(rule.top_k);
    const Rank rank = FindRank(shared, key, vocabulary, most);
    if (rank.key != 0) cut_at(last = rank);
  }
  if (rule.top_p < 1) {
    const double total = LaneSum(shared, vocabulary, [&](int32_t id) {
      const float z = row.logits[id];
      return Keeps(cut, z, id) ? weight(z) : 0.0;
    });
    const Rank rank = FindNucleus(shared, key, vocabulary, last.key, most, rule.top_p * total,
                                  [&](uint32_t value) { return weight(LogitOfKey(value)); });
    if (rank.key != 0) cut_at(rank);
  }
  if (threadIdx.x == 0) rows.cuts[t] = cut;
}

__device__ void LogprobsOfRow(const SamplingRows& rows, int64_t t, Shared& shared) {
  const DeviceRule& rule = rows.rules[t];
  const LawRow row = LawRowOf(rows, t, true);
  if (row.likeliest.id < 0) return;
  const int32_t vocabulary = static_cast<int32_t>(rows.logits.columns);
  const double largest = row.likeliest.logit;
  const double total =
      LaneSum(shared, vocabulary, [&](int32_t id) { return ExpNonPositive(double{row.logits[id]} - largest); });
  if (threadIdx.x == 0) {
    rows.logprobs[t].total = total;
    if (rule.known_id >= 0) rows.logprobs[t].of_known = row.logits[rule.known_id];
  }
  const int32_t count = min(min(rule.top_logprobs, vocabulary), rows.most_top);
  if (count <= 0) return;
  const auto key = [&](int32_t id) { return KeyOfLogit(row.logits[id]); };  // barred ids rank last
  const Rank last = FindRank(shared, key, vocabulary, static_cast<uint32_t>(count));
  const int32_t last_id = IdOfTie(shared, key, vocabulary, last.key, last.ties);
  const int size = PowerOfTwo(static_cast<uint32_t>(count));
  __syncthreads();
  if (threadIdx.x == 0) shared.count = 0;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kRankThreads) shared.ranked[i] = 0;
  __syncthreads();
  for (int32_t id = static_cast<int32_t>(threadIdx.x); id < vocabulary; id += kRankThreads) {
    const uint32_t value = key(id);
    if (value > last.key || (value == last.key && id <= last_id)) {
      shared.ranked[atomicAdd(&shared.count, 1u)] = uint64_t{value} << 32 | static_cast<uint32_t>(~id);
    }
  }
  SortDescending(shared.ranked, size);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kRankThreads) {
    const int32_t id = static_cast<int32_t>(~static_cast<uint32_t>(shared.ranked[i]));
    rows.top[t * rows.most_top + i] = {row.logits[id], id};
  }
}

// blockIdx.y + first: 0 filters, 1 log probabilities.
__global__ void __launch_bounds__(kRankThreads) RankKernel(SamplingRows rows, unsigned first) {
  WaitForKernelAhead();
  StartKernelBehind();
  __shared__ Shared shared;
  const int64_t t = blockIdx.x;
  if (blockIdx.y + first == 0) {
    if (rows.rules[t].filters) FilterRow(rows, t, shared);
  } else if (rows.rules[t].top_logprobs >= 0) {
    LogprobsOfRow(rows, t, shared);
  }
}

}  // namespace

void RankRows(cudaStream_t stream, const SamplingRows& rows, bool filters, bool logprobs) {
  const dim3 grid(static_cast<unsigned>(rows.logits.rows), filters && logprobs ? 2 : 1);
  LaunchEarly(stream, grid, kRankThreads, 0, RankKernel, rows, filters ? 0 : 1);
}

}  // namespace deepinfer::cuda
