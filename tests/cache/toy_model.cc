#include "toy_model.h"

#include <algorithm>

namespace deepinfer::test {
namespace {

uint64_t Hash(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15u;
  return state ^ (state >> 29);
}

}  // namespace

ToyRun::ToyRun(const ReplaySettings& settings, const ReplayPlan& plan, std::vector<int32_t> ids,
               std::vector<ToyBlock*> blocks)
    : settings_(settings),
      plan_(plan),
      ids_(std::move(ids)),
      blocks_(std::move(blocks)),
      encoder_start_(plan.encoder_start),
      outputs_(ids_.size()) {}

void ToyRun::Compute(const std::function<void(int64_t)>& at_boundary) {
  const auto end = static_cast<int64_t>(ids_.size());
  for (int64_t p = plan_.first_position; p < plan_.resume_position; ++p) ComputeRow(p, Rows::kReplayed);
  for (int64_t p = plan_.resume_position; p < end; ++p) {
    const bool restarts = settings_.bounded && p > plan_.resume_position && p % settings_.grid == 0;
    if (restarts) {
      encoder_start_ = p - settings_.replay;
      for (int64_t q = encoder_start_; q < p; ++q) ComputeRow(q, Rows::kReplayed);
    }
    ComputeRow(p, Rows::kFirstTime);
    if ((p + 1) % kToyBlock == 0) at_boundary(p + 1);
  }
}

void ToyRun::ComputeRow(int64_t position, Rows rows) {
  ++computed_rows_;
  uint64_t stream = Hash(1, static_cast<uint64_t>(ids_[position]));
  Publish(position, 0, stream, rows);
  for (int layer = 0; layer < kToyEncoder; ++layer) stream = Layer(layer, position, stream, encoder_start_);
  Publish(position, 1, stream, rows);
  // In bounded mode replayed rows fill encoder rings only; in exact mode they pass all layers.
  if (settings_.bounded && (rows == Rows::kReplayed || position < plan_.decoder_start)) return;
  for (int layer = kToyEncoder; layer < kToyLayers; ++layer) {
    stream = Layer(layer, position, stream, plan_.decoder_start);
  }
  outputs_[position] = stream;
}

uint64_t ToyRun::Layer(int layer, int64_t position, uint64_t input, int64_t start) {
  auto& ring = rings_[layer];
  ring[position % kToyWindow] = input;
  uint64_t row = Hash(input, static_cast<uint64_t>(layer));
  for (int64_t p = std::max(start, position - kToyWindow + 1); p <= position; ++p) {
    row = Hash(row, ring[p % kToyWindow]);
  }
  // Decoder layers read both sources, encoder layers only what is there already: the first.
  for (int64_t p = 0; p <= position; ++p) {
    const auto& published = (*blocks_[p / kToyBlock])[p % kToyBlock];
    row = Hash(row, published[0]);
    if (layer >= kToyEncoder) row = Hash(row, published[1]);
  }
  return row;
}

void ToyRun::Publish(int64_t position, int source, uint64_t row, Rows rows) {
  uint64_t& published = (*blocks_[position / kToyBlock])[position % kToyBlock][source];
  if (rows == Rows::kReplayed) return;
  if (position >= plan_.hit_tokens) {
    published = row;
  } else if (published != row) {
    ++contradictions_;
  }
}

}  // namespace deepinfer::test
