// Weights that a kernel makes have the bytes that the host makes (base/generated_weights.h), and FP4 codes that a
// kernel moves lie as the host says (ops/cuda/fp4_pairs.h).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/device_limits.h"
#include "ops/cuda/staging.h"
#include "ops/cuda/weight_store.h"

namespace deepinfer::cuda {
namespace {

TEST(CudaSmallFill, KernelAndHostMakeTheSameBytes) {
  WeightRecipe recipe;
  recipe.seed = 77;
  recipe.scale = 121;
  recipe.mean = 0.3f;
  recipe.deviation = 0.7f;
  for (size_t i = 0; i < 256; ++i) recipe.table[i] = static_cast<uint8_t>(255 - i);
  CommandList commands(nullptr);
  ASSERT_TRUE(commands.Create().ok());
  for (const auto kind :
       {WeightRecipe::Kind::kTable, WeightRecipe::Kind::kScales, WeightRecipe::Kind::kBF16, WeightRecipe::Kind::kF32}) {
    recipe.kind = kind;
    for (const int32_t streams : {0, 4}) {
      recipe.streams = streams;
      recipe.read_offset = -1.25f;
      for (const int64_t bytes : {int64_t{12}, int64_t{96}, int64_t{8191}, int64_t{9'000'003}}) {
        const auto weights = GeneratedWeights::Reserve(bytes + 4096).value();
        weights->Add(recipe, 5);
        const uint8_t* address = weights->Add(recipe, bytes);
        WeightStore store;  // the next range may lie at the same addresses
        for (const int64_t offset : {0, 8, 11}) {
          if (offset >= bytes) continue;
          const uint8_t* device = store.Find(address + offset, bytes - offset, WeightBytes::kPlain, commands);
          ASSERT_NE(device, nullptr);
          std::vector<uint8_t> found(static_cast<size_t>(bytes - offset)), expected(found.size());
          ASSERT_TRUE(commands.Wait().ok());
          ASSERT_EQ(cudaMemcpy(found.data(), device, found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
          FillGenerated(recipe, offset, bytes - offset, expected.data());
          EXPECT_TRUE(found == expected) << static_cast<int>(kind) << " " << bytes << " from " << offset;
        }
      }
    }
  }
}

TEST(CudaSmallFill, CodesThatAreMadeLieInPairOrder) {
  WeightRecipe recipe;
  recipe.kind = WeightRecipe::Kind::kTable;
  for (size_t i = 0; i < 256; ++i) recipe.table[i] = static_cast<uint8_t>(i);
  CommandList commands(nullptr);
  ASSERT_TRUE(commands.Create().ok());
  for (const int64_t bytes : {int64_t{16}, int64_t{96}, int64_t{8192}, int64_t{9'000'000}}) {
    const auto weights = GeneratedWeights::Reserve(bytes + 4096).value();
    const uint8_t* address = weights->Add(recipe, bytes);
    WeightStore store;
    // A view of the last rows, as of experts side by side, comes at an address of its own.
    for (const int64_t offset : {0, 48}) {
      if (offset >= bytes) continue;
      const uint8_t* device = store.Find(address + offset, bytes - offset, WeightBytes::kFp4Codes, commands);
      ASSERT_NE(device, nullptr);
      std::vector<uint8_t> found(static_cast<size_t>(bytes - offset)), made(found.size());
      ASSERT_TRUE(commands.Wait().ok());
      ASSERT_EQ(cudaMemcpy(found.data(), device, found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      FillGenerated(recipe, offset, bytes - offset, made.data());
      EXPECT_TRUE(found == test::InPairOrder(made)) << bytes << " from " << offset;
    }
  }
}

TEST(CudaSmallRanges, MemoryThatComesAgainIsOneRange) {
  DeviceRanges ranges;
  const auto at = [](uintptr_t address) { return reinterpret_cast<const void*>(address); };
  const auto expect = [&](uintptr_t begin, uintptr_t end) {
    EXPECT_FALSE(ranges.Contains(at(begin - 1)));
    EXPECT_TRUE(ranges.Contains(at(begin)));
    EXPECT_TRUE(ranges.Contains(at((begin + end) / 2)));
    EXPECT_TRUE(ranges.Contains(at(end - 1)));
    EXPECT_FALSE(ranges.Contains(at(end)));
  };
  EXPECT_FALSE(ranges.Contains(at(1000)));
  ranges.Add(at(1000), 100);
  ranges.Add(at(3000), 100);
  expect(1000, 1100);
  expect(3000, 3100);
  ranges.Add(at(1000), 50);  // inside
  expect(1000, 1100);
  ranges.Add(at(900), 100);  // touches
  expect(900, 1100);
  ranges.Add(at(1050), 1000);
  expect(900, 2050);
  expect(3000, 3100);
  ranges.Add(at(800), 2300);  // over all
  expect(800, 3100);
}

TEST(CudaLimits, AreMeasured) {
  const DeviceLimits limits = MeasureDeviceLimits(0, 0.02, int64_t{256} << 20);
  EXPECT_GT(limits.read_bytes_per_second, 1e11);
  EXPECT_GE(limits.tensor_flops_per_second, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace deepinfer::cuda
