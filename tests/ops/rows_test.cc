// The small per-row ops: embedding, RMS norm, rotary positions, SwiGLU, addition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

class RowsTest : public OpsTest {};

Tensor RunRmsNorm(Ops& ops, const Tensor& x, const WeightVector& weight, float eps) {
  Tensor out(x.rows(), x.columns());
  ops.RmsNorm(x, weight, eps, out);
  EXPECT_TRUE(out.GapsUntouched());
  return out;
}

TEST_P(RowsTest, EmbedCopiesStoredRows) {
  Random random(1);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF32}) {
    for (const int64_t width : {1, 7, 32, 100, 320}) {
      const OwnedWeight table = RandomWeight(format, 50, width, random);
      for (const int64_t rows : {0, 1, 2, 40}) {
        std::vector<int32_t> ids(static_cast<size_t>(rows));
        for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(50));
        if (rows > 1) ids[1] = ids[0] = 49;
        Tensor expected(rows, width);
        Tensor actual(rows, width);
        reference().Embed(table, ids, expected);
        ops().Embed(table, ids, actual);
        ASSERT_TRUE(SameBits(actual, expected));
        ASSERT_TRUE(actual.GapsUntouched());
      }
    }
  }
}

TEST_P(RowsTest, EmbedByHand) {
  OwnedWeight table = ZeroWeight(WeightFormat::kBF16, 3, 2);
  table.Set(2, 0, -1.5f);
  table.Set(2, 1, 0.25f);
  const std::vector<int32_t> ids = {2, 0};
  Tensor out(2, 2);
  ops().Embed(table, ids, out);
  EXPECT_EQ(out.row(0)[0], -1.5f);
  EXPECT_EQ(out.row(0)[1], 0.25f);
  EXPECT_EQ(out.row(1)[0], 0);
}

TEST_P(RowsTest, KeepRowsMovesRowsUp) {
  Random random(12);
  Tensor x(7, 33);
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t c = 0; c < 33; ++c) x.row(t)[c] = random.Normal();
  }
  Tensor before = x;
  const std::vector<int32_t> rows = {0, 2, 3, 6};
  ops().KeepRows(rows, x);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t c = 0; c < 33; ++c) EXPECT_EQ(x.row(static_cast<int64_t>(i))[c], before.row(rows[i])[c]);
  }
  for (int64_t c = 0; c < 33; ++c) EXPECT_EQ(x.row(5)[c], before.row(5)[c]) << "rows behind the kept ones stay";
  ops().KeepRows({}, x);
  EXPECT_TRUE(x.GapsUntouched());
}

TEST_P(RowsTest, ScaleMultipliesEveryElement) {
  Random random(13);
  for (const int64_t columns : {1, 33, 257}) {
    Tensor x = RandomTensor(3, columns, random);
    const Tensor before = x;
    ops().Scale(0.37f, x);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t c = 0; c < columns; ++c) EXPECT_EQ(x.row(t)[c], before.row(t)[c] * 0.37f);
    }
    EXPECT_TRUE(x.GapsUntouched());
  }
}

TEST_P(RowsTest, CopyFloatsFollowsTheLists) {
  Random random(14);
  const Tensor from = RandomTensor(5, 40, random);
  Tensor to(4, 40);
  const std::vector<const float*> sources = {from.row(4), from.row(0), from.row(0)};
  const std::vector<float*> targets = {to.row(0), to.row(3), to.row(1)};
  ops().CopyFloats(sources, 37, targets);
  for (size_t i = 0; i < sources.size(); ++i) {
    for (int64_t c = 0; c < 37; ++c) EXPECT_EQ(targets[i][c], sources[i][c]);
  }
  ops().CopyFloats({}, 37, {});
  EXPECT_TRUE(to.GapsUntouched());
}

TEST_P(RowsTest, RmsNormLikeReference) {
  Random random(2);
  for (const bool bf16 : {true, false}) {
    for (const int64_t width : {1, 7, 32, 64, 100, 512, 1155}) {
      for (const int64_t rows : {0, 1, 3, 20}) {
        const OwnedVector weight = RandomVector(width, bf16, random, 1, 0.3f);
        const Tensor x = RandomTensor(rows, width, random);
        ASSERT_TRUE(Near(RunRmsNorm(ops(), x, weight, 1e-20f), RunRmsNorm(reference(), x, weight, 1e-20f), 2e-6f));
      }
    }
  }
}

TEST_P(RowsTest, RmsNormByHand) {
  const OwnedVector weight({1, 2, 1, 0.5f}, true);
  Tensor x(3, 4);
  x.Fill(0);
  std::copy_n(std::vector<float>{2, 2, -2, 2}.data(), 4, x.row(0));
  x.row(2)[0] = 1e-12f;  // eps 1e-20 is inside the root: sqrt(2.5e-25 + 1e-20) is nearly 1e-10
  const Tensor out = RunRmsNorm(ops(), x, weight, 1e-20f);
  const float first[4] = {1, 2, -1, 0.5f};
  for (int c = 0; c < 4; ++c) EXPECT_NEAR(out.row(0)[c], first[c], 1e-6f);
  for (int c = 0; c < 4; ++c) EXPECT_EQ(out.row(1)[c], 0);  // no division by zero
  EXPECT_NEAR(out.row(2)[0], 1e-12 / std::sqrt(2.5e-25 + 1e-20), 1e-8f);
}

TEST_P(RowsTest, RmsNormInPlace) {
  Random random(3);
  const OwnedVector weight = RandomVector(96, true, random, 1, 0.3f);
  Tensor x = RandomTensor(9, 96, random);
  const Tensor expected = RunRmsNorm(ops(), x, weight, 1e-20f);
  ops().RmsNorm(x, weight, 1e-20f, x);
  EXPECT_TRUE(SameBits(x, expected));
}

TEST_P(RowsTest, RmsNormRowsAreIndependent) {
  Random random(4);
  const OwnedVector weight = RandomVector(200, true, random, 1, 0.3f);
  const Tensor x = RandomTensor(31, 200, random);
  ExpectRowIndependence(ops(), peer(), 31, [&](Ops& each, const std::vector<int64_t>& rows) {
    return RunRmsNorm(each, x.Gather(rows), weight, 1e-20f);
  });
}

// Angles up to a million radians are rounded to F32 first; their cosine is that of the rounded angle.
TEST_P(RowsTest, RopeTableMatchesDoublePrecision) {
  Random random(5);
  std::vector<int64_t> positions = {0, 1, 2, 3, 127, 128, 65535, 1048575};
  while (positions.size() < 60) positions.push_back(random.Below(1 << 20));
  for (const int pairs : {1, 3, 8, 32}) {
    std::vector<float> frequencies;
    for (int i = 0; i < pairs; ++i) {
      frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs)));
    }
    Tensor table(static_cast<int64_t>(positions.size()), 2 * pairs);
    ops().RopeTable(positions, frequencies, table);
    ASSERT_TRUE(table.GapsUntouched());
    for (size_t t = 0; t < positions.size(); ++t) {
      for (int i = 0; i < pairs; ++i) {
        const float angle = static_cast<float>(positions[t]) * frequencies[static_cast<size_t>(i)];
        const float* row = table.row(static_cast<int64_t>(t));
        ASSERT_NEAR(row[i], std::cos(static_cast<double>(angle)), 2e-7) << angle;
        ASSERT_NEAR(row[pairs + i], std::sin(static_cast<double>(angle)), 2e-7) << angle;
      }
    }
  }
}

TEST_P(RowsTest, RopeTableRowsAreIndependent) {
  const std::vector<float> frequencies = {1, 0.3f, 0.01f, 1e-4f, 1e-5f};
  ExpectRowIndependence(ops(), peer(), 40, [&](Ops& each, const std::vector<int64_t>& rows) {
    std::vector<int64_t> positions;
    for (const int64_t row : rows) positions.push_back(row * 977);
    Tensor table(static_cast<int64_t>(rows.size()), 10);
    each.RopeTable(positions, frequencies, table);
    return table;
  });
}

// A quarter turn takes (a, b) to (-b, a); pairs are adjacent; the channels before the last R stay.
TEST_P(RowsTest, RopeByHand) {
  Tensor turn(1, 4);  // pair 0: quarter turn, pair 1: half turn
  std::copy_n(std::vector<float>{0, -1, 1, 0}.data(), 4, turn.row(0));
  Tensor x(1, 12);  // two heads of six channels
  for (int c = 0; c < 12; ++c) x.row(0)[c] = static_cast<float>(c + 1);
  ops().Rope(x, 2, turn, false);
  const float turned[12] = {1, 2, -4, 3, -5, -6, 7, 8, -10, 9, -11, -12};
  for (int c = 0; c < 12; ++c) EXPECT_EQ(x.row(0)[c], turned[c]) << c;
  ops().Rope(x, 2, turn, true);
  for (int c = 0; c < 12; ++c) EXPECT_EQ(x.row(0)[c], static_cast<float>(c + 1)) << c;
}

TEST_P(RowsTest, RopeLikeReference) {
  Random random(6);
  for (const int heads : {1, 3, 4}) {
    for (const auto& [width, rotary] : {std::pair{8, 2}, {64, 16}, {64, 64}, {128, 64}, {40, 10}}) {
      for (const int64_t rows : {0, 1, 11}) {
        Tensor table(rows, rotary);
        for (int64_t t = 0; t < rows; ++t) {
          for (int i = 0; i < rotary; ++i) table.row(t)[i] = random.Uniform(-1, 1);
        }
        for (const bool inverse : {false, true}) {
          Tensor expected = RandomTensor(rows, heads * width, random);
          std::vector<int64_t> all(static_cast<size_t>(rows));
          std::iota(all.begin(), all.end(), 0);
          Tensor actual = expected.Gather(all);
          reference().Rope(expected, heads, table, inverse);
          ops().Rope(actual, heads, table, inverse);
          ASSERT_TRUE(Near(actual, expected, 1e-6f));
          ASSERT_TRUE(actual.GapsUntouched());
        }
      }
    }
  }
}

TEST_P(RowsTest, RopeRowsAreIndependent) {
  Random random(7);
  const Tensor x = RandomTensor(23, 3 * 48, random);
  const Tensor table = RandomTensor(23, 32, random);
  ExpectRowIndependence(ops(), peer(), 23, [&](Ops& each, const std::vector<int64_t>& rows) {
    Tensor turned = x.Gather(rows);
    each.Rope(turned, 3, table.Gather(rows), false);
    return turned;
  });
}

// The gate is clamped from above only, the value on both sides.
TEST_P(RowsTest, SwiGluClampsByHand) {
  Tensor gate(1, 6);
  Tensor up(1, 6);
  std::copy_n(std::vector<float>{30, 30, -30, 2, 2, 0}.data(), 6, gate.row(0));
  std::copy_n(std::vector<float>{3, -70, 1, 12, -12, 5}.data(), 6, up.row(0));
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  Tensor hidden(1, 6);
  ops().SwiGlu(gate, up, 10, hidden);
  const double clamped[6] = {silu(10) * 3, silu(10) * -10, silu(-30), silu(2) * 10, silu(2) * -10, 0};
  for (int c = 0; c < 6; ++c) EXPECT_NEAR(hidden.row(0)[c], clamped[c], std::fabs(clamped[c]) * 1e-6) << c;
  ops().SwiGlu(gate, up, 0, hidden);
  const double plain[6] = {silu(30) * 3, silu(30) * -70, silu(-30), silu(2) * 12, silu(2) * -12, 0};
  for (int c = 0; c < 6; ++c) EXPECT_NEAR(hidden.row(0)[c], plain[c], std::fabs(plain[c]) * 1e-6) << c;
}

TEST_P(RowsTest, SwiGluLikeReferenceAndInPlace) {
  Random random(8);
  for (const int64_t width : {1, 9, 32, 100}) {
    for (const int64_t rows : {0, 1, 14}) {
      Tensor gate = RandomTensor(rows, width, random);
      const Tensor up = RandomTensor(rows, width, random);
      Tensor expected(rows, width);
      Tensor actual(rows, width);
      reference().SwiGlu(gate, up, 10, expected);
      ops().SwiGlu(gate, up, 10, actual);
      ASSERT_TRUE(Near(actual, expected, 2e-6f));
      ASSERT_TRUE(actual.GapsUntouched());
      ops().SwiGlu(gate, up, 10, gate);
      ASSERT_TRUE(SameBits(gate, actual));
    }
  }
}

TEST_P(RowsTest, SwiGluRowsAreIndependent) {
  Random random(9);
  const Tensor gate = RandomTensor(25, 77, random);
  const Tensor up = RandomTensor(25, 77, random);
  ExpectRowIndependence(ops(), peer(), 25, [&](Ops& each, const std::vector<int64_t>& rows) {
    Tensor hidden(static_cast<int64_t>(rows.size()), 77);
    each.SwiGlu(gate.Gather(rows), up.Gather(rows), 10, hidden);
    return hidden;
  });
}

TEST_P(RowsTest, AddIsExact) {
  Random random(10);
  for (const int64_t rows : {0, 1, 13}) {
    const Tensor y = RandomTensor(rows, 75, random);
    Tensor out = RandomTensor(rows, 75, random);
    Tensor expected(rows, 75);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < 75; ++c) expected.row(t)[c] = out.row(t)[c] + y.row(t)[c];
    }
    ops().Add(y, out);
    ASSERT_TRUE(SameBits(out, expected));
    ASSERT_TRUE(out.GapsUntouched());
  }
}

DEEPINFER_INSTANTIATE_BACKENDS(RowsTest);

}  // namespace
}  // namespace deepinfer::test
