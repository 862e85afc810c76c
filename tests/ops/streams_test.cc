// Hyper-connections: coefficients with their Sinkhorn normalisation, collapse, spread, mean (spec c.3).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

constexpr float kHcEps = 1e-6f;
constexpr float kRmsEps = 1e-20f;

// The parameters of one hyper-connection site.
struct Site {
  Site(int n, int64_t width, WeightFormat format, Random& random)
      : n(n),
        fn(RandomWeight(format, (2 + n) * n, n * width, random)),
        base(RandomVector((2 + n) * n, false, random)),
        scale(RandomVector(3, false, random, 0.5f, 0.1f)) {}
  Tensor Run(Ops& ops, const Tensor& streams, int iterations) const {
    Tensor out(streams.rows(), (2 + n) * n);
    ops.MixStreams(streams, n, fn, base, scale, iterations, kHcEps, kRmsEps, out);
    EXPECT_TRUE(out.GapsUntouched());
    return out;
  }
  int n;
  OwnedWeight fn;
  OwnedVector base;
  OwnedVector scale;
};

class StreamsTest : public OpsTest {};

TEST_P(StreamsTest, MixLikeReference) {
  Random random(1);
  for (const int n : {1, 2, 4}) {
    for (const int64_t width : {32, 96, 320}) {
      for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16}) {
        const Site site(n, width, format, random);
        for (const int64_t rows : {0, 1, 2, 19}) {
          Tensor streams = RandomTensor(rows, n * width, random);
          ASSERT_TRUE(Near(site.Run(ops(), streams, 20), site.Run(reference(), streams, 20), 1e-5f));
        }
      }
    }
  }
}

TEST_P(StreamsTest, MixRowsAreIndependent) {
  Random random(2);
  const Site site(4, 160, WeightFormat::kF32, random);
  const Tensor streams = RandomTensor(70, 640, random);
  ExpectRowIndependence(ops(), peer(), 70, [&](Ops& each, const std::vector<int64_t>& rows) {
    return site.Run(each, streams.Gather(rows), 20);
  });
}

// Zero streams leave the coefficients to `base`; the rest is computed here in double, step by step as in the spec. The
// large epsilon makes every place where it is added visible.
TEST_P(StreamsTest, MixByHand) {
  const int n = 2;
  OwnedWeight fn = ZeroWeight(WeightFormat::kF32, 8, 64);
  const std::vector<float> base_values = {0.5f, -1, 2, 0, 1, -1, 0.25f, 3};
  const OwnedVector base(base_values, false);
  const OwnedVector scale({1, 1, 1}, false);
  Tensor streams(1, 64);
  streams.Fill(0);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const float eps : {kHcEps, 0.125f}) {
    for (const int iterations : {1, 2, 20}) {
      double comb[2][2];
      for (int i = 0; i < 2; ++i) {  // softmax over the last index
        const double e0 = std::exp(base_values[static_cast<size_t>(4 + 2 * i)]);
        const double e1 = std::exp(base_values[static_cast<size_t>(5 + 2 * i)]);
        comb[i][0] = e0 / (e0 + e1) + eps;
        comb[i][1] = e1 / (e0 + e1) + eps;
      }
      for (int iteration = 0; iteration < iterations; ++iteration) {
        if (iteration > 0) {
          for (int i = 0; i < 2; ++i) {
            const double sum = comb[i][0] + comb[i][1] + eps;
            for (int j = 0; j < 2; ++j) comb[i][j] /= sum;
          }
        }
        for (int j = 0; j < 2; ++j) {
          const double sum = comb[0][j] + comb[1][j] + eps;
          for (int i = 0; i < 2; ++i) comb[i][j] /= sum;
        }
      }
      Tensor out(1, 8);
      ops().MixStreams(streams, n, fn, base, scale, iterations, eps, kRmsEps, out);
      const double expected[8] = {sigmoid(0.5) + eps, sigmoid(-1) + eps, 2 * sigmoid(2), 2 * sigmoid(0),
                                  comb[0][0],         comb[0][1],        comb[1][0],     comb[1][1]};
      for (int i = 0; i < 8; ++i) {
        EXPECT_NEAR(out.row(0)[i], expected[i], 2e-6) << "eps " << eps << " iterations " << iterations << ' ' << i;
      }
    }
  }
}

// m = fn v / rms(v) with one scale per part; v = all ones has rms 1.
TEST_P(StreamsTest, MixUsesItsThreeScales) {
  const int n = 2;
  OwnedWeight fn = ZeroWeight(WeightFormat::kF32, 8, 64);
  for (int i = 0; i < 8; ++i) fn.Set(i, 5, 1);
  const OwnedVector base(std::vector<float>(8, 0.0f), false);
  const OwnedVector scale({1, 2, 3}, false);
  Tensor streams(1, 64);
  streams.Fill(4);  // normalised away
  Tensor out(1, 8);
  ops().MixStreams(streams, n, fn, base, scale, 20, kHcEps, kRmsEps, out);
  EXPECT_NEAR(out.row(0)[0], 1 / (1 + std::exp(-1.0)) + kHcEps, 1e-6);
  EXPECT_NEAR(out.row(0)[2], 2 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(out.row(0)[4], 0.5, 2e-6);
}

TEST_P(StreamsTest, CollapseLikeReference) {
  Random random(3);
  for (const int n : {1, 2, 4}) {
    for (const int64_t width : {1, 33, 64, 320}) {
      for (const int64_t rows : {0, 1, 17}) {
        const Tensor streams = RandomTensor(rows, n * width, random);
        const Tensor pre = RandomTensor(rows, (2 + n) * n, random);  // wider than n, as MixStreams writes it
        const OwnedVector weight = RandomVector(width, true, random, 1, 0.3f);
        Tensor normed(rows, width), collapsed(rows, width), expected_normed(rows, width), expected(rows, width);
        reference().CollapseNorm(streams, n, pre, weight, kRmsEps, expected_normed, expected);
        ops().CollapseNorm(streams, n, pre, weight, kRmsEps, normed, collapsed);
        ASSERT_TRUE(Near(collapsed, expected, 1e-5f));
        ASSERT_TRUE(Near(normed, expected_normed, 1e-5f));
        ASSERT_TRUE(normed.GapsUntouched());
        ASSERT_TRUE(collapsed.GapsUntouched());
        Tensor without(rows, width);  // an empty view: the collapsed rows are not wanted
        ops().CollapseNorm(streams, n, pre, weight, kRmsEps, without, FloatView());
        ASSERT_TRUE(SameBits(without, normed));
      }
    }
  }
}

TEST_P(StreamsTest, CollapseByHand) {
  Tensor streams(1, 4);  // two streams of two channels
  std::copy_n(std::vector<float>{1, 2, 10, 20}.data(), 4, streams.row(0));
  Tensor pre(1, 3);
  std::copy_n(std::vector<float>{2, -1, 99}.data(), 3, pre.row(0));
  const OwnedVector weight({1, 3}, true);
  Tensor normed(1, 2), collapsed(1, 2);
  ops().CollapseNorm(streams, 2, pre, weight, kRmsEps, normed, collapsed);
  EXPECT_EQ(collapsed.row(0)[0], -8);
  EXPECT_EQ(collapsed.row(0)[1], -16);
  const double rms = std::sqrt((64.0 + 256.0) / 2);
  EXPECT_NEAR(normed.row(0)[0], -8 / rms, 1e-6);
  EXPECT_NEAR(normed.row(0)[1], -48 / rms, 2e-6);
}

TEST_P(StreamsTest, CollapseRowsAreIndependent) {
  Random random(4);
  const Tensor streams = RandomTensor(70, 4 * 72, random);
  const Tensor pre = RandomTensor(70, 24, random);
  const OwnedVector weight = RandomVector(72, true, random, 1, 0.3f);
  ExpectRowIndependence(ops(), peer(), 70, [&](Ops& each, const std::vector<int64_t>& rows) {
    Tensor normed(static_cast<int64_t>(rows.size()), 72);
    each.CollapseNorm(streams.Gather(rows), 4, pre.Gather(rows), weight, kRmsEps, normed, FloatView());
    return normed;
  });
}

TEST_P(StreamsTest, MixAndCollapseIsTheTwoOps) {
  Random random(9);
  for (const int n : {1, 2, 4, 6}) {
    for (const int64_t width : {33, 320, 1440}) {
      for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16}) {
        const Site site(n, width, format, random);
        const OwnedVector norm = RandomVector(width, format == WeightFormat::kBF16, random, 1, 0.3f);
        for (const int64_t rows : {0, 1, 3, 64, 65}) {
          if (rows > 3 && (n != 4 || width != 320)) continue;
          const Tensor streams = RandomTensor(rows, n * width, random);
          const Tensor pre = RandomTensor(rows, (2 + n) * n, random);
          Tensor expected(rows, width), normed(rows, width), mix(rows, (2 + n) * n);
          ops().CollapseNorm(streams, n, pre, norm, kRmsEps, expected, FloatView());
          ops().MixAndCollapse(streams, n, site.fn, site.base, site.scale, 20, kHcEps, kRmsEps, mix, pre, norm, normed);
          ASSERT_TRUE(SameBits(mix, site.Run(ops(), streams, 20))) << n << " streams of " << width << ", rows " << rows;
          ASSERT_TRUE(SameBits(normed, expected)) << n << " streams of " << width << ", rows " << rows;
          ASSERT_TRUE(mix.GapsUntouched());
          ASSERT_TRUE(normed.GapsUntouched());
        }
      }
    }
  }
}

TEST_P(StreamsTest, SpreadLikeReference) {
  Random random(5);
  for (const int n : {1, 2, 4}) {
    for (const int64_t width : {1, 33, 64, 320}) {
      for (const int64_t rows : {0, 1, 17}) {
        const Tensor y = RandomTensor(rows, width, random);
        const Tensor mix = RandomTensor(rows, (2 + n) * n, random);
        Tensor expected = RandomTensor(rows, n * width, random);
        Tensor actual(rows, n * width);
        for (int64_t t = 0; t < rows; ++t) std::copy_n(expected.row(t), n * width, actual.row(t));
        reference().SpreadStreams(y, mix, n, expected);
        ops().SpreadStreams(y, mix, n, actual);
        ASSERT_TRUE(Near(actual, expected, 2e-6f));
        ASSERT_TRUE(actual.GapsUntouched());
      }
    }
  }
}

// comb's first index is the source: comb[0, 1] moves stream 0 into stream 1.
TEST_P(StreamsTest, SpreadByHand) {
  Tensor y(1, 1);
  y.row(0)[0] = 100;
  Tensor mix(1, 8);  // pre (unused here), post, comb
  std::copy_n(std::vector<float>{7, 7, 1, 2, 0, 1, 0.5f, 0}.data(), 8, mix.row(0));
  Tensor streams(1, 2);
  streams.row(0)[0] = 3;
  streams.row(0)[1] = 4;
  ops().SpreadStreams(y, mix, 2, streams);
  EXPECT_EQ(streams.row(0)[0], 100 + 0.5f * 4);
  EXPECT_EQ(streams.row(0)[1], 200 + 3);
}

TEST_P(StreamsTest, SpreadRowsAreIndependent) {
  Random random(6);
  const Tensor y = RandomTensor(21, 72, random);
  const Tensor mix = RandomTensor(21, 24, random);
  const Tensor streams = RandomTensor(21, 4 * 72, random);
  ExpectRowIndependence(ops(), peer(), 21, [&](Ops& each, const std::vector<int64_t>& rows) {
    Tensor updated = streams.Gather(rows);
    each.SpreadStreams(y.Gather(rows), mix.Gather(rows), 4, updated);
    return updated;
  });
}

TEST_P(StreamsTest, Mean) {
  Tensor streams(1, 6);
  std::copy_n(std::vector<float>{1, 2, 3, 4, 8, 10}.data(), 6, streams.row(0));
  Tensor out(1, 3);
  ops().MeanStreams(streams, 2, out);
  EXPECT_EQ(out.row(0)[0], 2.5f);
  EXPECT_EQ(out.row(0)[1], 5);
  EXPECT_EQ(out.row(0)[2], 6.5f);

  Random random(7);
  for (const int64_t rows : {0, 1, 18}) {
    const Tensor random_streams = RandomTensor(rows, 4 * 75, random);
    Tensor expected(rows, 75);
    Tensor actual(rows, 75);
    reference().MeanStreams(random_streams, 4, expected);
    ops().MeanStreams(random_streams, 4, actual);
    ASSERT_TRUE(Near(actual, expected, 1e-6f));
    ASSERT_TRUE(actual.GapsUntouched());
  }
}

TEST_P(StreamsTest, MeanRowsAreIndependent) {
  Random random(8);
  const Tensor streams = RandomTensor(21, 4 * 72, random);
  ExpectRowIndependence(ops(), peer(), 21, [&](Ops& each, const std::vector<int64_t>& rows) {
    Tensor out(static_cast<int64_t>(rows.size()), 72);
    each.MeanStreams(streams.Gather(rows), 4, out);
    return out;
  });
}

DEEPINFER_INSTANTIATE_BACKENDS(StreamsTest);

}  // namespace
}  // namespace deepinfer::test
