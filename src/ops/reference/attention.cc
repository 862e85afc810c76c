#include "ops/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/dot.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {
namespace {

// The keys that batch row `t` of `sequence` sees, in order: window positions ascending, then selected rows ascending.
// Returns [keys, width].
std::vector<float> GatherKeys(const AttentionSequence& sequence, int64_t t, int window, const SelectedRows& selected,
                              int64_t width) {
  std::vector<float> keys;
  const auto append = [&](const PackedRows& rows, int64_t row) {
    keys.resize(keys.size() + static_cast<size_t>(width));
    UnpackRow(rows, row, keys.data() + keys.size() - width);
  };

  const int64_t position = sequence.first_position + (t - sequence.first_row);
  const int64_t oldest = sequence.whole_block ? sequence.first_position - window : position - window + 1;
  const int64_t newest = sequence.whole_block ? sequence.first_position + sequence.row_count - 1 : position;
  for (int64_t p = std::max({oldest, sequence.window_start, int64_t{0}}); p <= newest; ++p) {
    if (p < sequence.first_position) {
      append(sequence.ring, p % sequence.ring_slots);
    } else {
      append(sequence.fresh, p - sequence.first_position);
    }
  }
  if (selected.counts != nullptr) {
    for (int32_t i = 0; i < selected.counts[t]; ++i) append(sequence.compressed, selected.rows.row(t)[i]);
  }
  return keys;
}

// One head: out = sum_j e^{s_j} key_j / (sum_j e^{s_j} + e^{sink}), s_j = scale * <q, key_j>; all exponents relative
// to the largest.
void AttendHead(const float* q, const std::vector<float>& keys, int64_t width, float sink, float scale, float* out) {
  const int64_t count = static_cast<int64_t>(keys.size()) / width;
  std::vector<float> probability(static_cast<size_t>(count));
  float maximum = sink;
  for (int64_t j = 0; j < count; ++j) {
    const float score = Dot(keys.data() + j * width, nullptr, q, width) * scale;
    probability[static_cast<size_t>(j)] = score;
    maximum = std::max(maximum, score);
  }
  float denominator = 0;
  for (float& p : probability) denominator += p = std::exp(p - maximum);
  denominator += std::exp(sink - maximum);

  std::fill_n(out, width, 0.0f);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t c = 0; c < width; ++c) out[c] += probability[static_cast<size_t>(j)] * keys[j * width + c];
  }
  for (int64_t c = 0; c < width; ++c) out[c] /= denominator;
}

}  // namespace

void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
               const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) {
  const int64_t width = q.columns / heads;
  const std::vector<float> sinks = UnpackVector(sink);
  for (const AttentionSequence& sequence : sequences) {
    for (int64_t t = sequence.first_row; t < sequence.first_row + sequence.row_count; ++t) {
      const std::vector<float> keys = GatherKeys(sequence, t, window, selected, width);
      for (int h = 0; h < heads; ++h) {
        AttendHead(q.row(t) + h * width, keys, width, sinks[static_cast<size_t>(h)], scale, out.row(t) + h * width);
      }
    }
  }
}

}  // namespace deepinfer::reference
