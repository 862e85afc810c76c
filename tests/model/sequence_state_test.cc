#include "model/sequence_state.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace deepinfer {
namespace {

// The sequence state of the released model (spec a).
ModelConfig Released() {
  ModelConfig config;
  config.compress_ratios.assign(43, 0);
  for (size_t layer = 2; layer < 20; ++layer) config.compress_ratios[layer] = 2;
  for (size_t layer = 20; layer < 40; ++layer) config.compress_ratios[layer] = 1;
  config.kv_source_layer_ids = {2, 8, 14, 20};
  config.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  return config;
}

Ops* Host() {
  static const std::unique_ptr<Ops> ops = MakeReferenceOps();
  return ops.get();
}

TEST(SequenceLayout, RolesOfTheRelease) {
  const auto layout = SequenceLayout::FromConfig(Released());
  ASSERT_EQ(layout->sources.size(), 4u);
  EXPECT_EQ(layout->sources[1].layer, 8);
  EXPECT_EQ(layout->sources[1].ratio, 2);
  EXPECT_EQ(layout->sources[2].tail_slot, 2);
  EXPECT_EQ(layout->sources[3].ratio, 1);
  EXPECT_EQ(layout->sources[3].tail_slot, -1);
  EXPECT_EQ(layout->tails, 3);
  EXPECT_EQ(layout->source_of_layer[1], -1);
  EXPECT_EQ(layout->source_of_layer[13], 1);
  EXPECT_EQ(layout->source_of_layer[39], 3);
}

TEST(SequenceLayout, GrowsByTheSpecifiedBytesPerToken) {
  const auto layout = SequenceLayout::FromConfig(Released());
  // 890 bytes of packed rows (spec c.7), 4 of the token id, and a page pointer per 64 tokens.
  EXPECT_EQ(layout->UsedBytes(1 << 20) - layout->UsedBytes(0), (int64_t{890 + 4} << 20) + (1 << 20) / 64 * 8);
  EXPECT_EQ(layout->PlannedBytes(1 << 20), layout->UsedBytes(1 << 20));
  // 43 rings of 128 + 16 window rows of 528 bytes, 3 tails of 18 rows of 2 * 512 floats, their pointer.
  EXPECT_EQ(layout->UsedBytes(0), 43 * 144 * 528 + 3 * 18 * 2 * 512 * 4 + 8);
}

TEST(SequenceState, HoldsAMillionTokensWithoutTouchingThem) {
  Result<std::unique_ptr<SequenceState>> state =
      SequenceState::Create(SequenceLayout::FromConfig(Released()), 1 << 20, *Host());
  ASSERT_TRUE(state.ok()) << state.status().message();
  EXPECT_EQ((*state)->length(), 0);
  EXPECT_EQ((*state)->capacity(), 1 << 20);
  EXPECT_GT((*state)->bytes(), int64_t{890} << 20);
  EXPECT_LT((*state)->used_bytes(), int64_t{4} << 20);
}

TEST(SequenceState, RowsDoNotOverlap) {
  const auto layout = SequenceLayout::FromConfig(Released());
  Result<std::unique_ptr<SequenceState>> created = SequenceState::Create(layout, 130, *Host());
  ASSERT_TRUE(created.ok());
  const SequenceState& state = **created;
  std::set<const uint8_t*> seen;
  int64_t bytes = 0;
  const auto visit = [&](const PackedRows& rows, int64_t count) {
    const RowBytes sizes = PackedRowBytes(rows.format, rows.channels);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t i = 0; i < sizes.values; ++i) seen.insert(rows.values(row) + i);
      for (int64_t i = 0; i < sizes.scales; ++i) seen.insert(rows.scales(row) + i);
      bytes += sizes.total();
    }
  };
  visit(state.WindowRing(0), layout->ring_slots);
  visit(state.WindowRing(39), layout->ring_slots);
  visit(state.DraftRing(0), layout->ring_slots);
  visit(state.DraftRing(2), layout->ring_slots);
  for (int source = 0; source < 4; ++source) {
    const int64_t rows = 130 / layout->sources[static_cast<size_t>(source)].ratio;
    visit(state.CompressedRows(source), rows);
    visit(state.IndexKeys(source), rows);
  }
  EXPECT_EQ(std::ssize(seen), bytes);
}

TEST(SequenceState, RefusesEmptyCapacity) {
  const Status status = SequenceState::Create(SequenceLayout::FromConfig(Released()), 0, *Host()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(SequenceState, TruncatesOnlyWhatTheRingsStillHold) {
  Result<std::unique_ptr<SequenceState>> created =
      SequenceState::Create(SequenceLayout::FromConfig(Released()), 100, *Host());
  ASSERT_TRUE(created.ok());
  SequenceState& state = **created;
  state.Append(std::vector<int32_t>(40, 7));
  EXPECT_EQ(state.rollback_floor(), 24);

  EXPECT_EQ(state.Truncate(41).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.Truncate(23).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.Truncate(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.length(), 40);

  ASSERT_TRUE(state.Truncate(30).ok());
  EXPECT_EQ(state.length(), 30);
  // What was overwritten by the longer sequence stays lost.
  EXPECT_EQ(state.Truncate(20).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(state.Truncate(24).ok());
  state.Append(std::vector<int32_t>(3, 7));
  EXPECT_EQ(state.rollback_floor(), 24);
}

TEST(SequenceState, ShortSequencesCanBeEmptied) {
  Result<std::unique_ptr<SequenceState>> created =
      SequenceState::Create(SequenceLayout::FromConfig(Released()), 100, *Host());
  ASSERT_TRUE(created.ok());
  (*created)->Append(std::vector<int32_t>(16, 7));
  (*created)->SetDraftRange(0, 16);
  ASSERT_TRUE((*created)->Truncate(5).ok());
  EXPECT_EQ((*created)->draft_end(), 5);
  ASSERT_TRUE((*created)->Truncate(0).ok());
  EXPECT_EQ((*created)->draft_end(), 0);
}

}  // namespace
}  // namespace deepinfer
