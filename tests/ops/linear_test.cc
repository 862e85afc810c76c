// Linear: the canonical dot product on every backend, all weight formats, both activation formats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/dtype.h"
#include "ops/ops.h"
#include "ops/reference/unpack.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

constexpr ActivationFormat kActivations[] = {ActivationFormat::kExact, ActivationFormat::kFp8Groups32};
constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kF8Block32,
                                     WeightFormat::kF4Row32, WeightFormat::kF8Row32};

class LinearTest : public OpsTest {
 protected:
  Tensor Run(Ops& ops, const Tensor& x, const WeightMatrix& weight, ActivationFormat activation, int groups = 1) {
    Tensor out(x.rows(), weight.rows);
    ops.Linear(x, weight, activation, groups, out);
    EXPECT_TRUE(out.GapsUntouched());
    return out;
  }

  void ExpectLikeReference(const Tensor& x, const WeightMatrix& weight, ActivationFormat activation, int groups = 1) {
    const Tensor expected = Run(reference(), x, weight, activation, groups);
    const Tensor actual = Run(ops(), x, weight, activation, groups);
    if (fused()) {
      ASSERT_TRUE(SameBits(actual, expected));
    } else {
      ExpectWithinRounding(actual, expected, x, weight, groups);
    }
  }

  /// |actual - expected| <= 1e-6 |x| |w| of the columns that meet: sums may cancel.
  void ExpectWithinRounding(const Tensor& actual, const Tensor& expected, const Tensor& x, const WeightMatrix& weight,
                            int groups) {
    const auto norm = [](const float* values, int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += double{values[i]} * double{values[i]};
      return std::sqrt(sum);
    };
    std::vector<float> row(static_cast<size_t>(weight.columns));
    for (int64_t o = 0; o < weight.rows; ++o) {
      reference::UnpackWeightRow(weight, o, row.data());
      const int64_t column = o / (weight.rows / groups) * weight.columns;
      for (int64_t t = 0; t < x.rows(); ++t) {
        const double bound = norm(row.data(), weight.columns) * norm(x.row(t) + column, weight.columns);
        ASSERT_LE(std::fabs(double{actual.row(t)[o]} - double{expected.row(t)[o]}), 1e-6 * bound + 1e-40)
            << "row " << t << " output " << o;
      }
    }
  }
};

TEST_P(LinearTest, LikeReferenceOnRandomShapes) {
  Random random(1);
  for (const WeightFormat format : kFormats) {
    for (const ActivationFormat activation : kActivations) {
      for (const int64_t columns : {32, 64, 96, 128, 160, 320, 1152}) {
        for (const int64_t outputs : {1, 5, 16, 31, 33, 48, 100}) {
          const int64_t rows_choice[] = {0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 33};
          const int64_t rows = rows_choice[random.Below(11)];
          SCOPED_TRACE(::testing::Message()
                       << "format " << static_cast<int>(format) << " activation " << static_cast<int>(activation)
                       << " K " << columns << " N " << outputs << " T " << rows);
          const OwnedWeight weight = RandomWeight(format, outputs, columns, random);
          ExpectLikeReference(RandomTensor(rows, columns, random), weight, activation);
        }
      }
    }
  }
}

TEST_P(LinearTest, LikeReferenceOnManyRows) {
  Random random(2);
  for (const WeightFormat format : kFormats) {
    for (const ActivationFormat activation : kActivations) {
      const OwnedWeight weight = RandomWeight(format, 72, 288, random);
      ExpectLikeReference(RandomTensor(260, 288, random), weight, activation);
    }
  }
}

TEST_P(LinearTest, AnyWidthOfPlainWeights) {
  Random random(3);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16}) {
    for (const int64_t columns : {1, 7, 8, 31, 33, 100, 127, 129, 257}) {
      SCOPED_TRACE(columns);
      const OwnedWeight weight = RandomWeight(format, 19, columns, random);
      ExpectLikeReference(RandomTensor(6, columns, random), weight, ActivationFormat::kExact);
    }
  }
}

TEST_P(LinearTest, Groups) {
  Random random(4);
  for (const WeightFormat format : kFormats) {
    for (int groups = 1; groups <= 8; ++groups) {
      for (const int64_t outputs_per_group : {1, 12, 32, 40}) {
        SCOPED_TRACE(::testing::Message()
                     << "format " << static_cast<int>(format) << " groups " << groups << " of " << outputs_per_group);
        const OwnedWeight weight = RandomWeight(format, groups * outputs_per_group, 96, random);
        const Tensor x = RandomTensor(1 + random.Below(20), 96 * groups, random);
        ExpectLikeReference(x, weight, ActivationFormat::kExact, groups);
        ExpectLikeReference(x, weight, ActivationFormat::kFp8Groups32, groups);
      }
    }
  }
}

TEST_P(LinearTest, PairIsTwoLinears) {
  Random random(8);
  for (const WeightFormat format : kFormats) {
    const OwnedWeight first = RandomWeight(format, 48, 192, random);
    const OwnedWeight second = RandomWeight(WeightFormat::kF8Block32, 31, 192, random);
    for (const int64_t rows : {0, 1, 9}) {
      const Tensor x = RandomTensor(rows, 192, random);
      Tensor first_out(rows, 48), second_out(rows, 31);
      ops().LinearPair(x, first, second, ActivationFormat::kFp8Groups32, first_out, second_out);
      ASSERT_TRUE(SameBits(first_out, Run(ops(), x, first, ActivationFormat::kFp8Groups32)));
      ASSERT_TRUE(SameBits(second_out, Run(ops(), x, second, ActivationFormat::kFp8Groups32)));
    }
  }
}

TEST_P(LinearTest, GroupReadsItsOwnColumns) {
  OwnedWeight weight = ZeroWeight(WeightFormat::kF8Block32, 4, 32);  // two groups of two outputs
  weight.Set(0, 0, 1);
  weight.Set(1, 31, 2);
  weight.Set(2, 0, 1);
  weight.Set(3, 31, 2);
  Tensor x(1, 64);
  x.Fill(0);
  x.row(0)[0] = 1;
  x.row(0)[31] = 2;
  x.row(0)[32] = 4;
  x.row(0)[63] = 8;
  const Tensor out = Run(ops(), x, weight, ActivationFormat::kExact, 2);
  EXPECT_EQ(out.row(0)[0], 1);
  EXPECT_EQ(out.row(0)[1], 4);
  EXPECT_EQ(out.row(0)[2], 4);
  EXPECT_EQ(out.row(0)[3], 16);
}

TEST_P(LinearTest, RowsAreIndependent) {
  Random random(5);
  for (const WeightFormat format : kFormats) {
    for (const ActivationFormat activation : kActivations) {
      const OwnedWeight weight = RandomWeight(format, 70, 352, random);
      const Tensor x = RandomTensor(37, 352, random);
      ExpectRowIndependence(ops(), peer(), 37, [&](Ops& each, const std::vector<int64_t>& rows) {
        return Run(each, x.Gather(rows), weight, activation);
      });
    }
  }
}

// The extreme block scales 2^-127 .. 2^127 and the largest codes.
TEST_P(LinearTest, ExtremeScales) {
  Random random(6);
  for (const WeightFormat format : {WeightFormat::kF8Block32, WeightFormat::kF4Row32}) {
    for (const int scale : {0, 1, 20, 230}) {
      OwnedWeight weight = RandomWeight(format, 40, 160, random);
      std::fill_n(weight.scale(), weight.view().total_bytes() - 40 * weight.view().row_bytes(),
                  static_cast<uint8_t>(scale));
      ExpectLikeReference(RandomTensor(11, 160, random), weight, ActivationFormat::kExact);
      ExpectLikeReference(RandomTensor(11, 160, random), weight, ActivationFormat::kFp8Groups32);
    }
  }
}

// Three columns whose sum tells the order of addition apart: large + 1 - large is 0 left to right and 1 otherwise.
TEST_P(LinearTest, ColumnOrderWithinALane) {
  if (!fused()) GTEST_SKIP() << "no fused multiply-add";
  OwnedWeight ones(WeightFormat::kF32, 1, 128);
  for (int64_t c = 0; c < 128; ++c) ones.Set(0, c, 1);
  const int order[8] = {4, 0, 5, 1, 6, 2, 7, 3};
  const float large = 0x1p24f;
  for (int lane = 0; lane < 16; ++lane) {
    for (int i = 0; i + 2 < 8; ++i) {
      Tensor x(2, 128);
      x.Fill(0);
      // in order: large, 1 (lost), -large
      x.row(0)[lane * 8 + order[i]] = large;
      x.row(0)[lane * 8 + order[i + 1]] = 1;
      x.row(0)[lane * 8 + order[i + 2]] = -large;
      // in order: large, -large, 1 (kept)
      x.row(1)[lane * 8 + order[i]] = large;
      x.row(1)[lane * 8 + order[i + 1]] = -large;
      x.row(1)[lane * 8 + order[i + 2]] = 1;
      const Tensor out = Run(ops(), x, ones, ActivationFormat::kExact);
      EXPECT_EQ(out.row(0)[0], 0) << "lane " << lane << " step " << i;
      EXPECT_EQ(out.row(1)[0], 1) << "lane " << lane << " step " << i;
    }
  }
}

TEST_P(LinearTest, LanesAreAddedAsATree) {
  OwnedWeight ones(WeightFormat::kBF16, 1, 128);
  for (int64_t c = 0; c < 128; ++c) ones.Set(0, c, 1);
  const float large = 0x1p24f;
  for (const int half : {8, 4, 2, 1}) {
    // lane 0 meets lane `half` before any lane that is left for a later level
    Tensor x(1, 128);
    x.Fill(0);
    x.row(0)[0] = large;
    x.row(0)[half * 8] = -large;
    float kept = 0;
    for (int later = half / 2; later > 0; later /= 2) {
      x.row(0)[later * 8] = 1;
      kept += 1;
    }
    EXPECT_EQ(Run(ops(), x, ones, ActivationFormat::kExact).row(0)[0], kept) << half;
  }
}

TEST_P(LinearTest, ChunksAreAddedInOrderPerLane) {
  OwnedWeight ones(WeightFormat::kBF16, 1, 384);
  for (int64_t c = 0; c < 384; ++c) ones.Set(0, c, 1);
  Tensor x(2, 384);
  x.Fill(0);
  x.row(0)[0] = 0x1p24f;  // chunk 0, 1 and 2 of lane 0
  x.row(0)[128] = 1;
  x.row(0)[256] = -0x1p24f;
  x.row(1)[0] = 0x1p24f;
  x.row(1)[128] = -0x1p24f;
  x.row(1)[256] = 1;
  const Tensor out = Run(ops(), x, ones, ActivationFormat::kExact);
  EXPECT_EQ(out.row(0)[0], 0);
  EXPECT_EQ(out.row(1)[0], 1);
}

TEST_P(LinearTest, ProductsAreFused) {
  if (!fused()) GTEST_SKIP() << "no fused multiply-add";
  OwnedWeight weight = ZeroWeight(WeightFormat::kF32, 1, 8);
  const float a = 1 + 0x1p-12f;  // a * a = 1 + 2^-11 + 2^-24: the last term needs more than F32
  weight.Set(0, 4, 1);
  weight.Set(0, 0, a);
  Tensor x(1, 8);
  x.Fill(0);
  x.row(0)[4] = -(1 + 0x1p-11f);
  x.row(0)[0] = a;
  EXPECT_EQ(Run(ops(), x, weight, ActivationFormat::kExact).row(0)[0], 0x1p-24f);
}

// Spec c.1 by hand: amax 448 gives scale 1, where 17 lies midway between 16 and 18 and 25 midway between 24 and 26.
TEST_P(LinearTest, ActivationsGoThroughE4m3) {
  for (const WeightFormat format : {WeightFormat::kF8Block32, WeightFormat::kF4Row32, WeightFormat::kF8Row32}) {
    OwnedWeight identity = ZeroWeight(format, 32, 32);
    for (int64_t i = 0; i < 32; ++i) identity.Set(i, i, 1);
    Tensor x(1, 32);
    x.Fill(0);
    x.row(0)[0] = 448;
    x.row(0)[1] = 17;
    x.row(0)[2] = 19;
    x.row(0)[3] = -25;
    x.row(0)[4] = 0x1p-10f;  // half of the smallest step: to even, 0
    const Tensor quantised = Run(ops(), x, identity, ActivationFormat::kFp8Groups32);
    const float expected[5] = {448, 16, 20, -24, 0};
    for (int i = 0; i < 5; ++i) EXPECT_EQ(quantised.row(0)[i], expected[i]) << i;
    const Tensor exact = Run(ops(), x, identity, ActivationFormat::kExact);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(exact.row(0)[i], x.row(0)[i]) << i;
  }
}

TEST_P(LinearTest, ActivationScaleHasAFloor) {
  OwnedWeight identity = ZeroWeight(WeightFormat::kF8Block32, 32, 32);
  for (int64_t i = 0; i < 32; ++i) identity.Set(i, i, 1);
  Tensor x(1, 32);
  x.Fill(0);
  x.row(0)[0] = 0x1p-40f;  // 1e-4 / 448 rounds up to 2^-22; its smallest step is 2^-31
  x.row(0)[1] = 0x1p-31f * 1.75f;
  const Tensor out = Run(ops(), x, identity, ActivationFormat::kFp8Groups32);
  EXPECT_EQ(out.row(0)[0], 0);
  EXPECT_EQ(out.row(0)[1], 0x1p-30f);
}

TEST_P(LinearTest, PlainWeightsTakeExactActivations) {
  OwnedWeight identity = ZeroWeight(WeightFormat::kBF16, 32, 32);
  for (int64_t i = 0; i < 32; ++i) identity.Set(i, i, 1);
  Random random(7);
  const Tensor x = RandomTensor(3, 32, random);
  EXPECT_TRUE(SameBits(Run(ops(), x, identity, ActivationFormat::kFp8Groups32), x));
}

// Low nibble = even column; an E4M3 block scale covers 32 rows, an E2M1 scale one row.
TEST_P(LinearTest, StoredLayouts) {
  OwnedWeight fp4 = ZeroWeight(WeightFormat::kF4Row32, 2, 64);
  fp4.data()[0] = 0x7a;              // row 0: columns 0 and 1 are -1 and 6
  fp4.data()[32 + 16] = 0x02;        // row 1: column 32 is 1
  fp4.scale()[1 * 2 + 1] = 127 + 3;  // row 1, columns 32..63
  Tensor x(1, 64);
  x.Fill(0);
  x.row(0)[0] = 1;
  x.row(0)[1] = 10;
  x.row(0)[32] = 1;
  Tensor out = Run(ops(), x, fp4, ActivationFormat::kExact);
  EXPECT_EQ(out.row(0)[0], 59);
  EXPECT_EQ(out.row(0)[1], 8);

  OwnedWeight fp8 = ZeroWeight(WeightFormat::kF8Block32, 33, 64);
  for (int64_t row = 0; row < 33; ++row) fp8.data()[row * 64 + 32] = 0x38;  // 1
  fp8.scale()[1] = 127 + 2;                                                 // rows 0..31, columns 32..63
  fp8.scale()[3] = 127 - 1;                                                 // row 32
  out = Run(ops(), x, fp8, ActivationFormat::kExact);
  EXPECT_EQ(out.row(0)[0], 4);
  EXPECT_EQ(out.row(0)[31], 4);
  EXPECT_EQ(out.row(0)[32], 0.5f);
}

DEEPINFER_INSTANTIATE_BACKENDS(LinearTest);

}  // namespace
}  // namespace deepinfer::test
