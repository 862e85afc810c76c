// Packed KV rows: byte layouts, scales, ties and saturation (spec c.7); copies; pooling of ratio-2 pairs (spec c.6).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "ops/ops.h"
#include "ops/reference/unpack.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::kWindowFp8, RowFormat::kCompressedFp4, RowFormat::kIndexFp4};

class CacheRowsTest : public OpsTest {
 protected:
  /// Stores one row and returns its bytes: values, then scales.
  std::vector<uint8_t> Pack(RowFormat format, const std::vector<float>& x) {
    const OwnedRows rows(format, static_cast<int32_t>(x.size()), 1, 1);
    Tensor input(1, static_cast<int64_t>(x.size()));
    std::copy(x.begin(), x.end(), input.row(0));
    const std::vector<int64_t> destination = {0};
    ops().StoreRows(input, rows, destination);
    const std::vector<uint8_t>& page = rows.pages()[0];
    return {page.begin() + OwnedRows::kOffset, page.end()};
  }
};

TEST_P(CacheRowsTest, ReleasedRowSizes) {
  EXPECT_EQ(PackedRowBytes(RowFormat::kWindowFp8, 512).total(), 528);
  EXPECT_EQ(PackedRowBytes(RowFormat::kCompressedFp4, 512).total(), 288);
  EXPECT_EQ(PackedRowBytes(RowFormat::kIndexFp4, 128).total(), 68);
}

TEST_P(CacheRowsTest, BytesLikeReference) {
  Random random(1);
  for (const RowFormat format : kFormats) {
    for (const int32_t channels : {32, 64, 96, 128, 512}) {
      for (const int64_t count : {0, 1, 2, 25}) {
        Tensor x = RandomTensor(count, channels, random);
        for (int64_t t = 0; t < count; ++t) {
          const float special[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-5f, 6.0f, -1e4f, 1e6f};
          for (const float value : special) {
            if (random.Below(2) == 0) x.row(t)[random.Below(channels)] = value;
          }
          if (t % 5 == 0) std::fill_n(x.row(t), 32, t % 2 == 0 ? 0.0f : -0.0f);  // a group of zeros
        }
        std::vector<int64_t> destination;
        for (int64_t t = 0; t < count; ++t) destination.push_back((t * 7 + 3) % 31);
        for (const int32_t rows_per_page : {1, 4, 32}) {
          const OwnedRows expected(format, channels, 31, rows_per_page);
          const OwnedRows actual(format, channels, 31, rows_per_page);
          reference().StoreRows(x, expected, destination);
          ops().StoreRows(x, actual, destination);
          ASSERT_EQ(actual.pages(), expected.pages())
              << "format " << static_cast<int>(format) << " channels " << channels << " rows " << count;
        }
      }
    }
  }
}

TEST_P(CacheRowsTest, QueriesAndKeysAreTheFourOps) {
  Random random(12);
  constexpr int kHeads = 3;
  for (const int64_t count : {0, 1, 5}) {
    for (const int64_t width : {32, 96, 512}) {
      const OwnedVector norm = RandomVector(width, true, random, 1, 0.3f);
      const Tensor table = RandomTensor(count, 16, random);
      Tensor queries = RandomTensor(count, kHeads * width, random), kv = RandomTensor(count, width, random);
      Tensor expected_queries = queries, expected_kv = kv;
      std::vector<int64_t> destination;
      for (int64_t t = 0; t < count; ++t) destination.push_back(count - 1 - t);
      const auto channels = static_cast<int32_t>(width);
      const OwnedRows expected(RowFormat::kWindowFp8, channels, 5, 2), actual(RowFormat::kWindowFp8, channels, 5, 2);
      ops().Rope(expected_queries, kHeads, table, false);
      ops().RmsNorm(expected_kv, norm, 1e-6f, expected_kv);
      ops().Rope(expected_kv, 1, table, false);
      ops().StoreRows(expected_kv, expected, destination);
      ops().FinishQueriesAndKeys(queries, kHeads, kv, norm, 1e-6f, table, actual, destination);
      ASSERT_TRUE(SameBits(queries, expected_queries)) << "width " << width << " rows " << count;
      ASSERT_TRUE(SameBits(kv, expected_kv)) << "width " << width << " rows " << count;
      ASSERT_EQ(actual.pages(), expected.pages()) << "width " << width << " rows " << count;
    }
  }
}

TEST_P(CacheRowsTest, WindowRowByHand) {
  std::vector<float> x(64, 0.0f);
  x[0] = 448;  // scale 2^0
  x[1] = -17;  // tie between 16 and 18: even mantissa
  x[31] = -0.0f;
  x[32] = 449;  // just above: scale 2^1
  x[33] = 2;
  const std::vector<uint8_t> bytes = Pack(RowFormat::kWindowFp8, x);
  ASSERT_EQ(bytes.size(), 66u);
  EXPECT_EQ(bytes[0], 0x7e);
  EXPECT_EQ(bytes[1], FloatToE4m3(-16));
  EXPECT_EQ(bytes[31], 0x80);
  EXPECT_EQ(bytes[32], FloatToE4m3(224));  // 224.5 rounds to 224
  EXPECT_EQ(bytes[33], FloatToE4m3(1));
  EXPECT_EQ(bytes[64], 127);
  EXPECT_EQ(bytes[65], 128);
  // The floor of amax is 1e-4: 2^ceil(log2(1e-4 / 448)) = 2^-22.
  EXPECT_EQ(Pack(RowFormat::kWindowFp8, std::vector<float>(32, 0.0f))[32], 127 - 22);
}

TEST_P(CacheRowsTest, CompressedRowByHand) {
  // amax 6 gives scale 1; then every tie that the spec lists, low nibble first.
  const std::vector<float> x = {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -0.75f, -5, -0.0f, 0, 0, 0, 0};
  const std::vector<uint8_t> bytes = Pack(RowFormat::kCompressedFp4, x);
  ASSERT_EQ(bytes.size(), 9u);
  const uint8_t nibbles[16] = {7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 14, 8, 0, 0, 0, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], nibbles[2 * i] | nibbles[2 * i + 1] << 4) << i;
  EXPECT_EQ(bytes[8], FloatToE4m3(1));

  // 6.3 / 6 = 1.05 rounds down to 1, so 6.3 saturates at 6.
  std::vector<float> saturating(16, 0.0f);
  saturating[2] = -6.3f;
  EXPECT_EQ(Pack(RowFormat::kCompressedFp4, saturating)[8], FloatToE4m3(1));
  EXPECT_EQ(Pack(RowFormat::kCompressedFp4, saturating)[1], 15);
  // The smallest scale is 2^-9, the largest 448.
  EXPECT_EQ(Pack(RowFormat::kCompressedFp4, std::vector<float>(16, 0.0f))[8], 1);
  EXPECT_EQ(Pack(RowFormat::kCompressedFp4, std::vector<float>(16, 1e9f))[8], 0x7e);
  EXPECT_EQ(Pack(RowFormat::kCompressedFp4, std::vector<float>(16, 1e9f))[0], 0x77);
}

TEST_P(CacheRowsTest, IndexRowByHand) {
  std::vector<float> x(64, 0.0f);
  x[0] = 12;  // 12 / 6 = 2: scale 2^1
  x[1] = -1.5f;
  x[2] = 2.5f;   // 1.25: tie to 1
  x[32] = 6.5f;  // above 6: scale 2
  x[33] = 6.5f;
  const std::vector<uint8_t> bytes = Pack(RowFormat::kIndexFp4, x);
  ASSERT_EQ(bytes.size(), 34u);
  EXPECT_EQ(bytes[0], 7 | 10 << 4);  // -0.75: tie to -1
  EXPECT_EQ(bytes[1], 2);
  EXPECT_EQ(bytes[16], 5 | 5 << 4);  // 3.25 rounds to 3
  EXPECT_EQ(bytes[32], 128);
  EXPECT_EQ(bytes[33], 128);
  EXPECT_EQ(Pack(RowFormat::kIndexFp4, std::vector<float>(32, 0.0f))[16], 1);  // 2^-126
}

// Within a page: all values of its rows, then all scales.
TEST_P(CacheRowsTest, PageLayout) {
  const OwnedRows rows(RowFormat::kWindowFp8, 32, 6, 4);
  Tensor x(2, 32);
  x.Fill(1);
  std::fill_n(x.row(1), 32, 448.0f);
  const std::vector<int64_t> destination = {2, 5};
  ops().StoreRows(x, rows, destination);
  std::vector<std::vector<uint8_t>> expected(2, std::vector<uint8_t>(OwnedRows::kOffset + 4 * 33, 0xff));
  std::fill_n(expected[0].begin() + OwnedRows::kOffset + 2 * 32, 32, FloatToE4m3(256));  // 1 / 448 rounds up to 2^-8
  expected[0][OwnedRows::kOffset + 4 * 32 + 2] = 127 - 8;
  std::fill_n(expected[1].begin() + OwnedRows::kOffset + 1 * 32, 32, 0x7e);
  expected[1][OwnedRows::kOffset + 4 * 32 + 1] = 127;
  EXPECT_EQ(rows.pages(), expected);
}

TEST_P(CacheRowsTest, UnpackedRowsAreNear) {
  Random random(2);
  for (const RowFormat format : kFormats) {
    const OwnedRows rows(format, 64, 20, 8);
    const Tensor x = RandomTensor(20, 64, random);
    std::vector<int64_t> destination(20);
    for (int64_t t = 0; t < 20; ++t) destination[static_cast<size_t>(t)] = 19 - t;
    ops().StoreRows(x, rows, destination);
    for (int64_t t = 0; t < 20; ++t) {
      float unpacked[64];
      reference::UnpackRow(rows, 19 - t, unpacked);
      const int group = format == RowFormat::kCompressedFp4 ? 16 : 32;
      for (int c = 0; c < 64; ++c) {
        float amax = 0;
        for (int i = c / group * group; i < c / group * group + group; ++i)
          amax = std::max(amax, std::fabs(x.row(t)[i]));
        // Half of the largest step: 32 of 448 for E4M3, 2 of 6 for E2M1, twice that when the scale was rounded up.
        const float bound = format == RowFormat::kWindowFp8 ? 2 * 16.0f / 448 : 2 * 1.0f / 6;
        ASSERT_LE(std::fabs(unpacked[c] - x.row(t)[c]), amax * bound);
      }
    }
  }
}

// Values that came out of a format with power-of-two scales are its fixed points.
TEST_P(CacheRowsTest, QuantisedValuesStay) {
  Random random(5);
  for (const RowFormat format : {RowFormat::kWindowFp8, RowFormat::kIndexFp4}) {
    const OwnedRows rows(format, 64, 20, 8);
    std::vector<int64_t> destination(20);
    for (int64_t t = 0; t < 20; ++t) destination[static_cast<size_t>(t)] = t;
    const auto pass = [&](const Tensor& x) {
      ops().StoreRows(x, rows, destination);
      Tensor out(20, 64);
      for (int64_t t = 0; t < 20; ++t) reference::UnpackRow(rows, t, out.row(t));
      return out;
    };
    const Tensor once = pass(RandomTensor(20, 64, random));
    ASSERT_TRUE(SameBits(pass(once), once));
  }
}

TEST_P(CacheRowsTest, CopyMovesBytesBetweenPageSizes) {
  Random random(3);
  for (const RowFormat format : kFormats) {
    const OwnedRows from(format, 96, 13, 4);
    const OwnedRows to(format, 96, 9, 2);
    std::vector<int64_t> all(13);
    for (int64_t t = 0; t < 13; ++t) all[static_cast<size_t>(t)] = t;
    ops().StoreRows(RandomTensor(13, 96, random), from, all);
    const std::vector<int64_t> source = {12, 0, 5, 5};
    const std::vector<int64_t> destination = {0, 8, 3, 4};
    ops().CopyRows(from, source, to, destination);
    const RowBytes bytes = PackedRowBytes(format, 96);
    for (int64_t row = 0; row < 9; ++row) {
      const auto found = std::find(destination.begin(), destination.end(), row);
      for (int64_t i = 0; i < bytes.values + bytes.scales; ++i) {
        const auto byte = [&](const PackedRows& rows, int64_t at) {
          return i < bytes.values ? rows.values(at)[i] : rows.scales(at)[i - bytes.values];
        };
        const uint8_t expected =
            found == destination.end() ? 0xff : byte(from, source[static_cast<size_t>(found - destination.begin())]);
        ASSERT_EQ(byte(to, row), expected) << "row " << row << " byte " << i;
      }
    }
    ops().CopyRows(from, {}, to, {});
  }
}

// Row i of the output pools first[i] and second[i]; each input is kv then gate, and the softmax is per channel.
TEST_P(CacheRowsTest, PoolPairsByHand) {
  const float first[] = {1, 2, 3, 4, 0, 0, 100, -100};
  const float second[] = {5, 6, 7, 8, 0, 1, 0, 0};
  const float* const firsts[] = {first};
  const float* const seconds[] = {second};
  Tensor out(1, 4);
  ops().PoolPairs(firsts, seconds, out);
  const double share = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(out.row(0)[0], 3, 1e-6);
  EXPECT_NEAR(out.row(0)[1], share * 2 + (1 - share) * 6, 1e-5);
  EXPECT_NEAR(out.row(0)[2], 3, 1e-6);
  EXPECT_NEAR(out.row(0)[3], 8, 1e-6);
}

TEST_P(CacheRowsTest, PoolPairsLikeReferenceAndIndependent) {
  Random random(4);
  for (const int64_t width : {1, 32, 75, 512}) {
    const Tensor raw = RandomTensor(24, 2 * width, random);
    const auto run = [&](Ops& each, const std::vector<int64_t>& pairs) {
      std::vector<const float*> first, second;
      for (const int64_t pair : pairs) {
        first.push_back(raw.row(2 * pair));
        second.push_back(raw.row(2 * pair + 1));
      }
      Tensor out(static_cast<int64_t>(pairs.size()), width);
      each.PoolPairs(first, second, out);
      return out;
    };
    ASSERT_TRUE(Near(run(ops(), {}), run(reference(), {}), 0));
    const std::vector<int64_t> pairs = {3, 0, 11, 7};
    ASSERT_TRUE(Near(run(ops(), pairs), run(reference(), pairs), 2e-6f));
    ExpectRowIndependence(ops(), peer(), 12, run);
  }
}

DEEPINFER_INSTANTIATE_BACKENDS(CacheRowsTest);

}  // namespace
}  // namespace deepinfer::test
