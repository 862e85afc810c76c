// Engram: table gather and gated injection (spec c.8).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

class EngramTest : public OpsTest {};

Tensor RunGather(Ops& ops, const WeightMatrix& table, std::vector<int64_t>& rows, int64_t columns) {
  const int64_t count = static_cast<int64_t>(rows.size()) / columns;
  Tensor out(count, columns * table.columns);
  ops.GatherRows(table, TensorView<const int64_t>(rows.data(), count, columns), out);
  EXPECT_TRUE(out.GapsUntouched());
  return out;
}

TEST_P(EngramTest, GatherLikeReference) {
  Random random(1);
  for (const int64_t width : {32, 64, 256}) {
    const OwnedWeight table = RandomWeight(WeightFormat::kF8Row32, 77, width, random);
    for (const int64_t columns : {1, 6, 24}) {
      for (const int64_t count : {0, 1, 2, 15}) {
        std::vector<int64_t> rows(static_cast<size_t>(count * columns));
        for (int64_t& row : rows) row = random.Below(77);
        ASSERT_TRUE(SameBits(RunGather(ops(), table, rows, columns), RunGather(reference(), table, rows, columns)));
      }
    }
  }
}

TEST_P(EngramTest, GatherByHand) {
  OwnedWeight table = ZeroWeight(WeightFormat::kF8Row32, 3, 64);
  table.data()[2 * 64] = 0x38;       // row 2: 1 in column 0
  table.data()[2 * 64 + 32] = 0xb8;  // and -1 in column 32
  table.scale()[2 * 2] = 127 + 4;    // one scale per row and 32 columns
  table.scale()[2 * 2 + 1] = 127 - 3;
  std::vector<int64_t> rows = {0, 2};
  const Tensor out = RunGather(ops(), table, rows, 2);
  EXPECT_EQ(out.row(0)[0], 0);
  EXPECT_EQ(out.row(0)[64], 16);
  EXPECT_EQ(out.row(0)[96], -0.125f);
}

// One stream of `width` channels, q and k weights 1: gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)).
float GateOf(Ops& ops, const std::vector<float>& stream, const std::vector<float>& key) {
  const int64_t width = static_cast<int64_t>(stream.size());
  const OwnedVector ones(std::vector<float>(static_cast<size_t>(width), 1.0f), true);
  Tensor streams(1, width);
  std::copy(stream.begin(), stream.end(), streams.row(0));
  Tensor kv(1, 2 * width);
  kv.Fill(0);
  std::copy(key.begin(), key.end(), kv.row(0));
  kv.row(0)[2 * width - 1] = 1024;  // value: the last channel shows the gate
  const float before = streams.row(0)[width - 1];
  ops.EngramInject(kv, ones, ones, 1, 1e-20f, streams);
  return (streams.row(0)[width - 1] - before) / 1024;
}

TEST_P(EngramTest, GateByHand) {
  const auto gate = [](double dot) {
    return 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
  };
  // Parallel unit vectors: dot = D / sqrt(D) = 2 for four channels.
  EXPECT_NEAR(GateOf(ops(), {1, 1, 1, 1}, {3, 3, 3, 3}), gate(2), 1e-6);
  EXPECT_NEAR(GateOf(ops(), {1, 1, 1, 1}, {-3, -3, -3, -3}), gate(-2), 1e-6);
  // Orthogonal: |dot| is raised to 1e-6, and the sign of the dot product decides.
  EXPECT_NEAR(GateOf(ops(), {1, -1, 1, -1}, {1, 1, 1, 1}), gate(1e-9), 1e-6);
  EXPECT_NEAR(GateOf(ops(), {1, 1, 1, 1}, {1, -1, 1, -1.000001f}), gate(-1e-9), 1e-6);
  // A zero stream or key is not a division by zero.
  EXPECT_NEAR(GateOf(ops(), {0, 0, 0, 0}, {1, 1, 1, 1}), gate(0), 1e-6);
  EXPECT_NEAR(GateOf(ops(), {1, 1, 1, 1}, {0, 0, 0, 0}), gate(0), 1e-6);
}

// Every stream has its own key, q and k weights; the value is shared.
TEST_P(EngramTest, StreamsByHand) {
  const OwnedVector q({1, 1, 2, 2}, true);
  const OwnedVector k({1, 1, -1, -1}, true);
  Tensor streams(1, 4);
  streams.Fill(1);
  Tensor kv(1, 6);
  std::copy_n(std::vector<float>{1, 1, 5, 5, 10, -20}.data(), 6, kv.row(0));
  ops().EngramInject(kv, q, k, 2, 1e-20f, streams);
  const double dot0 = 2 / std::sqrt(2.0);
  const double dot1 = -4 / std::sqrt(2.0);
  const double gate0 = 1 / (1 + std::exp(-std::sqrt(dot0)));
  const double gate1 = 1 / (1 + std::exp(std::sqrt(-dot1)));
  EXPECT_NEAR(streams.row(0)[0], 1 + gate0 * 10, 1e-5);
  EXPECT_NEAR(streams.row(0)[1], 1 - gate0 * 20, 1e-5);
  EXPECT_NEAR(streams.row(0)[2], 1 + gate1 * 10, 1e-5);
  EXPECT_NEAR(streams.row(0)[3], 1 - gate1 * 20, 1e-5);
}

TEST_P(EngramTest, InjectLikeReferenceAndIndependent) {
  Random random(2);
  for (const int n : {1, 2, 4}) {
    for (const int64_t width : {32, 75, 320}) {
      const OwnedVector q = RandomVector(n * width, true, random, 1, 0.3f);
      const OwnedVector k = RandomVector(n * width, true, random, 1, 0.3f);
      const Tensor streams = RandomTensor(18, n * width, random);
      const Tensor kv = RandomTensor(18, (n + 1) * width, random);
      const auto run = [&](Ops& each, const std::vector<int64_t>& rows) {
        Tensor updated = streams.Gather(rows);
        each.EngramInject(kv.Gather(rows), q, k, n, 1e-20f, updated);
        EXPECT_TRUE(updated.GapsUntouched());
        return updated;
      };
      ASSERT_TRUE(Near(run(ops(), {}), run(reference(), {}), 0));
      const std::vector<int64_t> some = {0, 1, 5, 17, 9};
      ASSERT_TRUE(Near(run(ops(), some), run(reference(), some), 2e-5f));
      ExpectRowIndependence(ops(), peer(), 18, run);
    }
  }
}

DEEPINFER_INSTANTIATE_BACKENDS(EngramTest);

}  // namespace
}  // namespace deepinfer::test
