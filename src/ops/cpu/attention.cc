#include "ops/cpu/attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "base/dtype.h"
#include "ops/cpu/attention_split.h"

namespace deepinfer::cpu {
namespace {

// Below this many multiply-adds per token (tens of microseconds), waking the other threads for a token costs more than
// they save.
constexpr int64_t kSharedTokenWork = 1 << 20;

constexpr int64_t RoundUp(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

// One worker's buffers, laid out for one call; with null pointers only `size` counts.
struct Buffers {
  Buffers(float* floats, KeyRow* key_rows, int64_t heads, int64_t width, int64_t attended_rows)
      : padded_heads(PaddedHeads(heads)), rows(key_rows) {
    const int64_t keys = RoundUp(attended_rows, kKeyGrain);
    const auto take = [&](int64_t count) {
      float* begin = floats == nullptr ? nullptr : floats + size;
      size += RoundUp(count, 16);
      return begin;
    };
    values = take(keys * KeyStride(width));
    scores = take(keys * padded_heads);
    queries = take(width * padded_heads);
    sums = take(padded_heads * width);
    sinks = take(padded_heads);
    denominators = take(padded_heads);
  }

  int64_t padded_heads;
  KeyRow* rows;         // [keys]
  float* values;        // [keys, KeyStride(width)]
  float* scores;        // [keys, padded_heads], then the softmax weights
  float* queries;       // [width, padded_heads]
  float* sums;          // [padded_heads, width]
  float* sinks;         // [padded_heads]
  float* denominators;  // [padded_heads]
  int64_t size = 0;     // floats
};

float StoredFloat(const WeightVector& vector, int64_t index) {
  if (vector.is_bf16) {
    uint16_t bits;
    std::memcpy(&bits, vector.data + index * 2, sizeof(bits));
    return Bf16ToFloat(bits);
  }
  float value;
  std::memcpy(&value, vector.data + index * 4, sizeof(value));
  return value;
}

// Window positions [begin, end) that row `row` of the sequence sees.
StaticRange WindowOf(const AttentionSequence& sequence, int32_t row, int window) {
  const int64_t position = sequence.first_position + row;
  const int64_t oldest = sequence.whole_block ? sequence.first_position - window : position - window + 1;
  const int64_t end = sequence.whole_block ? sequence.first_position + sequence.row_count : position + 1;
  return {std::max({oldest, sequence.window_start, int64_t{0}}), end};
}

int64_t GatherKeys(const AttentionSequence& sequence, int32_t row, int window, const SelectedRows& selected,
                   KeyRow* rows) {
  KeyList keys(rows);
  const StaticRange seen = WindowOf(sequence, row, window);
  int64_t position = seen.begin;
  while (position < std::min(seen.end, sequence.first_position)) {
    const int64_t slot = position % sequence.ring_slots;
    const int64_t run = std::min(std::min(seen.end, sequence.first_position) - position, sequence.ring_slots - slot);
    keys.AppendRun(sequence.ring, slot, run);
    position += run;
  }
  if (position < seen.end) {
    keys.AppendRun(sequence.fresh, position - sequence.first_position, seen.end - position);
  }
  if (selected.counts != nullptr) {
    const int64_t t = sequence.first_row + row;
    keys.AppendRows(sequence.compressed, selected.rows.row(t), selected.counts[t]);
  }
  return keys.size();
}

}  // namespace

Status AttentionScratch::Reserve(const ScratchLimits& limits, int workers) {
  attended_rows = RoundUp(limits.attended_rows, kKeyGrain);
  floats_per_worker = Buffers(nullptr, nullptr, limits.heads, limits.head_width, attended_rows).size;
  if (!floats.Allocate(floats_per_worker * workers) || !keys.Allocate(attended_rows * workers) ||
      !bounds.Allocate(workers + 1)) {
    return Status::ResourceExhausted(
        "no memory for attention scratch: " + std::to_string(floats_per_worker * workers * 4) + " bytes for " +
        std::to_string(workers) + " threads; use fewer threads");
  }
  return Status::Ok();
}

void Attention(ThreadPool& pool, AttentionScratch& scratch, ConstFloatView q, int heads,
               std::span<const AttentionSequence> sequences, int window, const SelectedRows& selected,
               const WeightVector& sink, float scale, FloatView out) {
  const int workers = pool.workers();
  const int64_t width = q.columns / heads;
  assert(width % 32 == 0);
  const auto buffers_of = [&](int worker) {
    const Buffers buffers(scratch.floats.data() + worker * scratch.floats_per_worker,
                          scratch.keys.data() + worker * scratch.attended_rows, heads, width, scratch.attended_rows);
    assert(buffers.size <= scratch.floats_per_worker);
    for (int64_t h = 0; h < buffers.padded_heads; ++h) buffers.sinks[h] = h < heads ? StoredFloat(sink, h) : 0.0f;
    return buffers;
  };

  const auto keys_of = [&](const AttentionSequence& sequence, int32_t row) {
    const StaticRange seen = WindowOf(sequence, row, window);
    const int64_t count = std::max<int64_t>(seen.end - seen.begin, 0) +
                          (selected.counts == nullptr ? 0 : selected.counts[sequence.first_row + row]);
    assert(count <= scratch.attended_rows);
    return count;
  };
  int64_t tokens = 0;
  for (const AttentionSequence& sequence : sequences) tokens += sequence.row_count;
  if (tokens == 0) return;
  const int64_t keys = SplitByCost(sequences, workers, scratch.bounds.data(), keys_of);
  const int64_t work = keys * heads * width * 2;

  // Few tokens with much work each: all threads on one token after the other.
  if (workers > 1 && tokens < 4 * workers && work / tokens >= kSharedTokenWork) {
    const Buffers b = buffers_of(0);
    ForRows(sequences, 0, tokens, [&](const AttentionSequence& sequence, int32_t first, int32_t last) {
      for (int32_t row = first; row < last; ++row) {
        const int64_t t = sequence.first_row + row;
        const int64_t count = GatherKeys(sequence, row, window, selected, b.rows);
        TransposeQueries(q.row(t), heads, width, b.queries);
        pool.Run([&](int worker) {
          const StaticRange range = SplitRange(count, worker, workers, kKeyGrain);
          ScoreKeys(b.rows, range.begin, range.end, width, b.queries, b.padded_heads, b.values, b.scores);
        });
        pool.Run([&](int worker) {
          const StaticRange range = SplitRange(b.padded_heads, worker, workers, kHeadTile);
          if (range.begin < range.end) {
            SoftmaxWithSink(b.scores, count, b.padded_heads, range.begin, range.end, scale, b.sinks, b.denominators);
          }
        });
        pool.Run([&](int worker) {
          const StaticRange range = SplitRange(ValueItems(b.padded_heads, width), worker, workers);
          AddValues(b.values, b.scores, count, b.padded_heads, width, range.begin, range.end, b.denominators, b.sums,
                    heads, out.row(t));
        });
      }
    });
    return;
  }

  const auto attend = [&](int64_t begin, int64_t end, int worker) {
    const Buffers b = buffers_of(worker);
    ForRows(sequences, begin, end, [&](const AttentionSequence& sequence, int32_t first, int32_t last) {
      for (int32_t row = first; row < last; ++row) {
        const int64_t t = sequence.first_row + row;
        const int64_t count = GatherKeys(sequence, row, window, selected, b.rows);
        TransposeQueries(q.row(t), heads, width, b.queries);
        ScoreKeys(b.rows, 0, count, width, b.queries, b.padded_heads, b.values, b.scores);
        SoftmaxWithSink(b.scores, count, b.padded_heads, 0, b.padded_heads, scale, b.sinks, b.denominators);
        AddValues(b.values, b.scores, count, b.padded_heads, width, 0, ValueItems(b.padded_heads, width),
                  b.denominators, b.sums, heads, out.row(t));
      }
    });
  };
  if (workers == 1 || work < kSharedTokenWork) {
    attend(0, tokens, 0);
  } else {
    pool.Run([&](int worker) {
      const int64_t begin = scratch.bounds[worker];
      const int64_t end = scratch.bounds[worker + 1];
      if (begin < end) attend(begin, end, worker);
    });
  }
}

void PoolPairs(ThreadPool& pool, std::span<const float* const> first, std::span<const float* const> second,
               FloatView out) {
  constexpr int64_t kGrain = 8;  // pairs worth waking a thread for
  ParallelRange(pool, static_cast<int64_t>(first.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      PoolPair(first[static_cast<size_t>(i)], second[static_cast<size_t>(i)], out.columns, out.row(i));
    }
  });
}

}  // namespace deepinfer::cpu
