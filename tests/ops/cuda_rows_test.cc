// Ops of one or few blocks a row on the GPU, with the canonical order: the bits of the reference, at widths where a
// thread has one chunk of columns, several, and a second round of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/kernels.h"
#include "ops/dot_order.h"
#include "ops/reference/linear.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

constexpr float kEps = 1e-20f;

std::unique_ptr<Ops> MakeCanonicalOps() {
  CudaOptions options;
  options.products = CudaProducts::kCanonical;
  options.keep_weights = false;
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

// With vectors of four columns where the width is a multiple of 8.
constexpr int64_t kWidths[] = {1, 8, 12, 120, 128, 129, 136, 512, 1280, 5120, 5121, 8192, 8200, 17001};

TEST(CudaRows, NormHasTheBitsOfTheReference) {
  Random random(1);
  const auto ops = MakeCanonicalOps();
  const auto reference = MakeReferenceOps();
  for (const int64_t width : kWidths) {
    for (const bool bf16 : {true, false}) {
      SCOPED_TRACE(testing::Message() << width << (bf16 ? " bf16" : " f32"));
      const OwnedVector weight = RandomVector(width, bf16, random, 1, 0.3f);
      Tensor x = RandomTensor(3, width, random);
      Tensor expected(3, width), actual(3, width);
      reference->RmsNorm(x, weight, kEps, expected);
      ops->RmsNorm(x, weight, kEps, actual);
      ASSERT_TRUE(SameBits(actual, expected));
      ops->RmsNorm(x, weight, kEps, x);  // in place
      ASSERT_TRUE(SameBits(x, expected));
    }
  }
}

TEST(CudaRows, CollapseHasTheBitsOfTheReference) {
  Random random(2);
  const auto ops = MakeCanonicalOps();
  const auto reference = MakeReferenceOps();
  for (const int64_t width : kWidths) {
    for (const int n : {1, 4, 7}) {
      SCOPED_TRACE(testing::Message() << width << " by " << n);
      const OwnedVector weight = RandomVector(width, width % 3 == 0, random, 1, 0.3f);
      const Tensor streams = RandomTensor(2, n * width, random);
      const Tensor pre = RandomTensor(2, (2 + n) * n, random);
      Tensor expected(2, width), expected_sum(2, width), actual(2, width), sum(2, width), without(2, width);
      reference->CollapseNorm(streams, n, pre, weight, kEps, expected, expected_sum);
      ops->CollapseNorm(streams, n, pre, weight, kEps, actual, sum);
      ops->CollapseNorm(streams, n, pre, weight, kEps, without, FloatView());
      ASSERT_TRUE(SameBits(sum, expected_sum));
      ASSERT_TRUE(SameBits(actual, expected));
      ASSERT_TRUE(SameBits(without, expected));
    }
  }
}

TEST(CudaRows, FewOutputsAndSquaresHaveTheBitsOfTheReference) {
  Random random(3);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16}) {
    for (const int64_t width : {7, 40, 384, 3000, 20480, 20488, 30001}) {
      for (const int64_t gap : {0, 3}) {  // rows that start at multiples of 16 bytes, or not
        SCOPED_TRACE(testing::Message() << width << " gap " << gap);
        constexpr int64_t rows = 3;
        const int64_t stride = (width + 3) / 4 * 4 + gap;
        const Tensor x = RandomTensor(rows, width, random);
        const OwnedWeight weight = RandomWeight(format, 5, width, random);
        Tensor expected(rows, 5);
        reference::Linear(x, weight, ActivationFormat::kExact, 1, expected);

        std::vector<float> host(static_cast<size_t>(rows * stride), kUntouched);
        for (int64_t t = 0; t < rows; ++t) std::copy_n(x.row(t), width, host.begin() + t * stride);
        const DeviceBytes device(host);
        const DeviceWeight device_weight(weight.view());
        const DeviceBytes squares(std::vector<float>(rows, kUntouched));
        const DeviceFloats out(rows, 5);
        cuda::LinearAndSquares(nullptr, ConstFloatView(device.as<float>(), rows, width, stride), device_weight.view,
                               out.view(), squares.as<float>());
        ASSERT_TRUE(SameBits(out.Get(), expected));
        std::vector<float> actual(rows);
        Check(cudaMemcpy(actual.data(), squares.as<float>(), rows * sizeof(float), cudaMemcpyDeviceToHost));
        for (int64_t t = 0; t < rows; ++t) {
          ASSERT_EQ(actual[static_cast<size_t>(t)], CanonicalDot(x.row(t), nullptr, x.row(t), width)) << t;
        }
      }
    }
  }
}

// Both forms of the kernel, blocks with rows behind the last, and fewer outputs or chunks than it has room for.
TEST(CudaRows, LinearAndSquaresOfManyHasTheSameBits) {
  Random random(5);
  for (const int64_t rows : {1, 8, 9, 67, 2112, 2113, 2145}) {
    for (const int64_t width : {128, 256, 640}) {
      for (const int64_t outputs : {3, 8, 24}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << width << " to " << outputs);
        const Tensor x = RandomTensor(rows, width, random);
        const OwnedWeight weight = RandomWeight(WeightFormat::kF32, outputs, width, random);
        std::vector<float> host;
        for (int64_t t = 0; t < rows; ++t) host.insert(host.end(), x.row(t), x.row(t) + width);
        const DeviceBytes device(host);
        const ConstFloatView view(device.as<float>(), rows, width);
        const DeviceWeight device_weight(weight.view());
        ASSERT_TRUE(cuda::LinearAndSquaresOfManyFits(view, device_weight.view));
        const auto run = [&](auto* function) {
          const DeviceBytes squares(std::vector<float>(static_cast<size_t>(rows) + 1, kUntouched));
          const DeviceFloats out(rows, outputs);
          function(nullptr, view, device_weight.view, out.view(), squares.as<float>());
          Tensor result(rows + 1, outputs + 1);  // the squares are the last column
          result.Fill(0);
          const Tensor products = out.Get();
          for (int64_t t = 0; t < rows; ++t) std::copy_n(products.row(t), outputs, result.row(t));
          std::vector<float> sums(static_cast<size_t>(rows) + 1);
          Check(cudaMemcpy(sums.data(), squares.as<float>(), sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
          for (int64_t t = 0; t <= rows; ++t) result.row(t)[outputs] = sums[static_cast<size_t>(t)];
          return result;
        };
        ASSERT_TRUE(SameBits(run(&cuda::LinearAndSquaresOfMany), run(&cuda::LinearAndSquares)));
      }
    }
  }
}

TEST(CudaRows, SpreadHasTheBitsOfTheReference) {
  Random random(6);
  const auto ops = MakeCanonicalOps();
  const auto reference = MakeReferenceOps();
  for (const int64_t width : {1, 8, 12, 1032, 5120}) {
    for (const int n : {1, 4, 7}) {
      const Tensor y = RandomTensor(3, width, random);
      const Tensor mix = RandomTensor(3, (2 + n) * n, random);
      Tensor expected = RandomTensor(3, n * width, random);
      Tensor actual = expected;
      reference->SpreadStreams(y, mix, n, expected);
      ops->SpreadStreams(y, mix, n, actual);
      ASSERT_TRUE(SameBits(actual, expected)) << n << " streams of " << width;
    }
  }
}

// Rows that start at multiples of 16 bytes have another kernel.
TEST(CudaRows, SplitRowsHasTheSameBitsWhereverRowsStart) {
  constexpr int64_t kRows = 3;
  Random random(7);
  for (const int64_t columns : {32, 96, 2048, 2080}) {
    for (const cuda::ColumnOrder order :
         {cuda::ColumnOrder::kPlain, cuda::ColumnOrder::kFp8, cuda::ColumnOrder::kFp4, cuda::ColumnOrder::kFp8Wide}) {
      if (order == cuda::ColumnOrder::kFp8Wide && columns % 64 != 0) continue;
      const Tensor x = RandomTensor(kRows, columns, random);
      std::vector<float> host;
      for (int64_t t = 0; t < kRows; ++t) host.insert(host.end(), x.row(t), x.row(t) + columns);
      const DeviceBytes packed(host);
      const DeviceFloats apart(x);
      const DeviceRows expected(cuda::kExactTerms * kRows, columns), actual(cuda::kExactTerms * kRows, columns);
      cuda::SplitRows(nullptr, apart.view(), order, expected.From(0));
      cuda::SplitRows(nullptr, ConstFloatView(packed.as<float>(), kRows, columns), order, actual.From(0));
      ASSERT_EQ(actual.Get(), expected.Get()) << columns << " columns";
    }
  }
}

struct Routes {
  std::vector<int32_t> picks;
  Tensor weights;
};

Routes RunFinishRoute(const Tensor& logits, const std::vector<float>& bias, int per_token, bool normalise) {
  const DeviceFloats device(logits);
  const DeviceBytes device_bias(bias);
  const DeviceBytes picks(std::vector<int32_t>(static_cast<size_t>(logits.rows() * per_token), -1));
  const DeviceFloats weights(logits.rows(), per_token);
  cuda::FinishRoute(nullptr, device.view(), {device_bias.as<uint8_t>(), false, std::ssize(bias)}, normalise, 1.5f,
                    picks.as<int32_t>(), per_token, per_token, weights.view());
  Routes routes{std::vector<int32_t>(static_cast<size_t>(logits.rows() * per_token)), weights.Get()};
  Check(cudaMemcpy(routes.picks.data(), picks.as<int32_t>(), routes.picks.size() * sizeof(int32_t),
                   cudaMemcpyDeviceToHost));
  return routes;
}

// Experts that nobody picks, behind the others, change the kernel but no bit. Ties, infinities, NaN and -0 as well.
TEST(CudaRows, RoutesFromRegistersAreThoseFromSharedMemory) {
  constexpr int64_t kRows = 5, kMany = 600;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Random random(4);
  for (const int64_t experts : {1, 8, 31, 128, 129, 384, 385, 512}) {
    for (const int per_token : {1, 6, 8, 32}) {
      if (per_token > experts) continue;
      for (const bool special : {false, true}) {
        SCOPED_TRACE(testing::Message() << experts << " experts, " << per_token << (special ? " special" : ""));
        Tensor logits = RandomTensor(kRows, experts, random);
        std::vector<float> bias(kMany, -kInfinity);
        for (int64_t e = 0; e < experts; ++e) bias[static_cast<size_t>(e)] = 0.1f * random.Normal();
        if (special) {
          constexpr float kValues[] = {0.0f, -0.0f, 1, 1, 2, -200, kInfinity, -kInfinity, kNan};
          for (int64_t e = 0; e < experts; ++e) {
            for (int64_t t = 0; t < kRows; ++t) logits.row(t)[e] = kValues[random.Below(t < 2 ? 6 : 9)];
            bias[static_cast<size_t>(e)] = kValues[random.Below(e % 16 == 0 ? 9 : 4)];
          }
        }
        Tensor padded(kRows, kMany);
        padded.Fill(3);
        for (int64_t t = 0; t < kRows; ++t) std::copy_n(logits.row(t), experts, padded.row(t));
        for (const bool normalise : {false, true}) {
          const Routes expected = RunFinishRoute(padded, bias, per_token, normalise);
          const Routes actual = RunFinishRoute(logits, {bias.begin(), bias.begin() + experts}, per_token, normalise);
          ASSERT_EQ(actual.picks, expected.picks);
          ASSERT_TRUE(SameBits(actual.weights, expected.weights));
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
