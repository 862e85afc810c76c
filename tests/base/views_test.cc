// TensorView, WeightMatrix and AlignedBuffer: addresses and sizes.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/tensor_view.h"
#include "base/weight_matrix.h"

namespace deepinfer {
namespace {

TEST(TensorViewTest, RangesKeepTheStride) {
  float data[24];
  const FloatView view(data, 3, 6, 8);
  EXPECT_EQ(view.row(2), data + 16);
  const FloatView middle = view.RowRange(1, 3).ColumnRange(2, 5);
  EXPECT_EQ(middle.data, data + 10);
  EXPECT_EQ(middle.rows, 2);
  EXPECT_EQ(middle.columns, 3);
  EXPECT_EQ(middle.row(1), data + 18);
  const ConstFloatView read_only = middle;
  EXPECT_EQ(read_only.row(1), data + 18);
}

TEST(WeightMatrixTest, SizesOfEveryFormat) {
  struct Case {
    WeightFormat format;
    int64_t row_bytes;
    int64_t scale_row_bytes;
    int64_t total;
  };
  // 70 rows of 96 columns
  const Case cases[] = {
      {WeightFormat::kF32, 384, 0, 26880},     {WeightFormat::kBF16, 192, 0, 13440},
      {WeightFormat::kF8Block32, 96, 3, 6729},  // 3 rows of scales
      {WeightFormat::kF4Row32, 48, 3, 3570},   {WeightFormat::kF8Row32, 96, 3, 6930},
  };
  for (const Case& c : cases) {
    WeightMatrix weight;
    weight.format = c.format;
    weight.rows = 70;
    weight.columns = 96;
    EXPECT_EQ(weight.row_bytes(), c.row_bytes);
    EXPECT_EQ(weight.scale_row_bytes(), c.scale_row_bytes);
    EXPECT_EQ(weight.total_bytes(), c.total);
  }
}

TEST(WeightMatrixTest, RowRangeMovesValuesAndScales) {
  uint8_t values[64 * 64];
  uint8_t scales[64 * 2];
  WeightMatrix blocks{values, scales, WeightFormat::kF8Block32, 64, 64};
  EXPECT_EQ(blocks.scale_row(31), scales);
  EXPECT_EQ(blocks.scale_row(32), scales + 2);
  const WeightMatrix part = blocks.RowRange(32, 64);
  EXPECT_EQ(part.data, values + 32 * 64);
  EXPECT_EQ(part.scale, scales + 2);
  EXPECT_EQ(part.rows, 32);

  WeightMatrix rows{values, scales, WeightFormat::kF4Row32, 64, 64};
  EXPECT_EQ(rows.RowRange(3, 5).data, values + 3 * 32);
  EXPECT_EQ(rows.RowRange(3, 5).scale, scales + 3 * 2);
}

TEST(AlignedBufferTest, ZeroFilledAlignedAndMovable) {
  AlignedBuffer<float> buffer;
  ASSERT_TRUE(buffer.Allocate(1000));
  EXPECT_EQ(buffer.size(), 1000);
  EXPECT_EQ(buffer.bytes(), 4000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(buffer[i], 0.0f);
  buffer[7] = 1;
  float* const data = buffer.data();
  AlignedBuffer<float> moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved[7], 1.0f);
  ASSERT_TRUE(moved.Allocate(8));  // again: new zeros
  EXPECT_EQ(moved[7], 0.0f);
  ASSERT_TRUE(moved.Allocate(0));
  EXPECT_EQ(moved.data(), nullptr);
}

TEST(AlignedBufferTest, SaysWhenTheKernelRefuses) {
  AlignedBuffer<uint8_t> buffer;
  EXPECT_FALSE(buffer.Allocate(int64_t{1} << 62));
  EXPECT_EQ(buffer.size(), 0);
}

}  // namespace
}  // namespace deepinfer
