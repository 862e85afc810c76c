// Weights that a list brings to the GPU, and those that it leaves in host memory (ops/cuda/weight_store.h): every byte
// arrives, and ops have the bits that they have with weights copied at their first use.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/load_weights.h"
#include "ops/cuda/weight_store.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

std::unique_ptr<Ops> NewOps(bool device_memory, bool keep_weights = true) {
  CudaOptions options;
  options.device_memory = device_memory;
  options.keep_weights = keep_weights;
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

void List(const WeightMatrix& weight, bool resident, int layer, WeightList* list) {
  const int64_t values = weight.rows * weight.row_bytes();
  list->push_back({weight.data, values, resident, layer, ValuesOf(weight.format)});
  if (weight.scale != nullptr) list->push_back({weight.scale, weight.total_bytes() - values, resident, layer});
}

std::vector<uint8_t> Download(const uint8_t* from, int64_t bytes) {
  std::vector<uint8_t> host(static_cast<size_t>(bytes));
  EXPECT_EQ(cudaMemcpy(host.data(), from, host.size(), cudaMemcpyDefault), cudaSuccess);
  return host;
}

TEST(CudaWeights, EveryByteArrives) {
  cuda::CommandList commands(nullptr);
  ASSERT_TRUE(commands.Create().ok());
  // Three buffers and more, odd sizes and addresses, the file's order is not the list's.
  std::vector<uint8_t> file((int64_t{210} << 20) + 12345);
  uint64_t state = 1;
  for (size_t i = 0; i < file.size(); i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(file.data() + i, &state, std::min<size_t>(8, file.size() - i));
  }
  WeightRecipe recipe;
  recipe.kind = WeightRecipe::Kind::kScales;
  recipe.seed = 9;
  const auto generated = GeneratedWeights::Reserve(1 << 20).value();
  const uint8_t* made = generated->Add(recipe, 70'001);
  const uint8_t* made_passing = generated->Add(recipe, 33);
  const uint8_t* made_codes = generated->Add(recipe, 70'016);
  const uint8_t* made_passing_codes = generated->Add(recipe, 48);
  WeightList list = {{made, 70'001, true, 0},
                     {made_passing, 33, false, 1},
                     {made_codes, 70'016, true, 0, WeightBytes::kFp4Codes},
                     {made_passing_codes, 48, false, 1, WeightBytes::kFp4Codes}};
  int64_t listed = 0;
  for (int64_t at = 3, i = 0; at < std::ssize(file); ++i) {
    int64_t bytes = std::min<int64_t>(i % 4 == 0 ? (int64_t{70} << 20) + 77 : 1'000 * i + 1, std::ssize(file) - at);
    // Codes of FP4, resident and passing, at odd addresses and cut where a buffer is full.
    const WeightBytes kind = i % 12 < 6 && bytes >= 16 ? WeightBytes::kFp4Codes : WeightBytes::kPlain;
    if (kind == WeightBytes::kFp4Codes) bytes -= bytes % 16;
    list.insert(list.begin(), {file.data() + at, bytes, i % 3 != 1, static_cast<int>(i % 3), kind});
    listed += bytes;
    at += bytes;
    if (i > 2000) break;
  }
  cuda::WeightStore store;
  int64_t done = 0;
  const auto progress = [&](int64_t now, int64_t total) {
    EXPECT_GE(now, done);
    EXPECT_EQ(total, listed);
    done = now;
  };
  const Status loaded = cuda::LoadWeights(list, store, commands, progress);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(done, listed);
  for (const ListedBytes& weight : list) {
    EXPECT_TRUE(store.Holds(weight.data));
    EXPECT_EQ(store.Passes(weight.data), !weight.resident);
    std::vector<uint8_t> expected(static_cast<size_t>(weight.bytes));
    if (GeneratedWeights::Find(weight.data)) {
      FillGenerated(recipe, 0, weight.bytes, expected.data());
    } else {
      std::copy_n(weight.data, weight.bytes, expected.data());
    }
    if (weight.kind == WeightBytes::kFp4Codes) expected = InPairOrder(std::move(expected));
    const uint8_t* in_place = store.FindInPlace(weight.data, weight.bytes, weight.kind, commands);
    const uint8_t* copy = store.Find(weight.data, weight.bytes, weight.kind, commands);
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(copy == in_place, weight.resident);
    ASSERT_TRUE(commands.Wait().ok());
    ASSERT_TRUE(Download(in_place, weight.bytes) == expected);
    ASSERT_TRUE(Download(copy, weight.bytes) == expected);
    store.EndOp();
  }
}

// Views of one address with two lengths, a view from a row on, and codes that were asked for as plain bytes before.
TEST(CudaWeights, ViewsOfCodesAreInPairOrder) {
  cuda::CommandList commands(nullptr);
  ASSERT_TRUE(commands.Create().ok());
  Random random(5);
  const OwnedWeight weight = RandomWeight(WeightFormat::kF4Row32, 40, 96, random);
  const uint8_t* const data = weight.view().data;
  cuda::WeightStore store;
  const auto expect = [&](int64_t first, int64_t rows, WeightBytes kind) {
    const int64_t bytes = rows * 48;
    std::vector<uint8_t> expected(data + first * 48, data + first * 48 + bytes);
    if (kind == WeightBytes::kFp4Codes) expected = InPairOrder(std::move(expected));
    const uint8_t* found = store.Find(data + first * 48, bytes, kind, commands);
    ASSERT_NE(found, nullptr);
    ASSERT_TRUE(commands.Wait().ok());
    EXPECT_TRUE(Download(found, bytes) == expected) << rows << " rows from " << first;
  };
  for (int turn = 0; turn < 2; ++turn) {
    expect(0, 8, WeightBytes::kPlain);
    expect(0, 8, WeightBytes::kFp4Codes);
    expect(0, 40, WeightBytes::kFp4Codes);
    expect(0, 8, WeightBytes::kFp4Codes);
    expect(7, 33, WeightBytes::kFp4Codes);
  }
}

TEST(CudaWeights, NoRoomIsAnErrorWithNumbers) {
  const auto ops = NewOps(true);
  const uint8_t byte = 0;
  const WeightList list = {{&byte, int64_t{1} << 50, true, 0}};
  const Status status = ops->LoadWeights(list, {});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("1.0 PiB"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("free"), std::string::npos) << status.message();
  // The GPU is as good as before.
  Random random(1);
  const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, 64, 128, random);
  const Tensor x = RandomTensor(2, 128, random);
  Tensor out(2, 64), expected(2, 64);
  ops->Linear(x, weight, ActivationFormat::kFp8Groups32, 1, out);
  NewOps(false)->Linear(x, weight, ActivationFormat::kFp8Groups32, 1, expected);
  EXPECT_TRUE(SameBits(out, expected));
}

// Ops of four kinds on the same weights: at their first use, from a list, passing, copied for each op.
class FourOps {
 public:
  explicit FourOps(const std::vector<WeightMatrix>& weights) {
    for (const bool resident : {true, false}) {
      WeightList list;
      for (const WeightMatrix& weight : weights) List(weight, resident, 3, &list);
      Ops& ops = resident ? *listed_ : *passing_;
      const Status status = ops.LoadWeights(list, {});
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
  /// `run` gives the same bits on all four.
  template <typename Run>
  void Expect(int64_t rows, int64_t columns, const Run& run) {
    Tensor first(rows, columns), listed(rows, columns), passing(rows, columns), copied(rows, columns);
    run(*first_use_, first);
    run(*listed_, listed);
    run(*passing_, passing);
    run(*copied_, copied);
    ASSERT_TRUE(SameBits(listed, first)) << rows << " rows, resident";
    ASSERT_TRUE(SameBits(passing, first)) << rows << " rows, passing";
    ASSERT_TRUE(SameBits(copied, first)) << rows << " rows, copied";
  }

 private:
  std::unique_ptr<Ops> first_use_ = NewOps(false), listed_ = NewOps(false), passing_ = NewOps(false),
                       copied_ = NewOps(false, false);
};

TEST(CudaWeights, LinearsHaveTheSameBits) {
  Random random(2);
  const OwnedWeight fp8 = RandomWeight(WeightFormat::kF8Block32, 512, 1024, random);
  const OwnedWeight other = RandomWeight(WeightFormat::kF8Block32, 128, 1024, random);
  const OwnedWeight odd = RandomWeight(WeightFormat::kF8Block32, 40, 96, random);
  const OwnedWeight bf16 = RandomWeight(WeightFormat::kBF16, 48, 1024, random);
  const OwnedWeight fp4 = RandomWeight(WeightFormat::kF4Row32, 40, 96, random);
  FourOps four({fp8, other, odd, bf16, fp4});
  for (const int64_t rows : {1, 5, 64, 65, 300}) {
    const Tensor x = RandomTensor(rows, 1024, random), narrow = RandomTensor(rows, 96, random);
    for (const auto activation : {ActivationFormat::kFp8Groups32, ActivationFormat::kExact}) {
      four.Expect(rows, 512, [&](Ops& ops, FloatView out) { ops.Linear(x, fp8, activation, 1, out); });
      four.Expect(rows, 40, [&](Ops& ops, FloatView out) { ops.Linear(narrow, odd, activation, 1, out); });
      four.Expect(rows, 40, [&](Ops& ops, FloatView out) { ops.Linear(narrow, fp4, activation, 1, out); });
      const WeightMatrix part = fp4.view().RowRange(8, 40), start = fp4.view().RowRange(0, 8);
      four.Expect(rows, 32, [&](Ops& ops, FloatView out) { ops.Linear(narrow, part, activation, 1, out); });
      four.Expect(rows, 8, [&](Ops& ops, FloatView out) { ops.Linear(narrow, start, activation, 1, out); });
    }
    four.Expect(rows, 48, [&](Ops& ops, FloatView out) { ops.Linear(x, bf16, ActivationFormat::kExact, 1, out); });
    four.Expect(rows, 640, [&](Ops& ops, FloatView out) {
      ops.LinearPair(x, fp8, other, ActivationFormat::kFp8Groups32, out.ColumnRange(0, 512), out.ColumnRange(512, 640));
    });
  }
}

TEST(CudaWeights, ExpertsHaveTheSameBits) {
  // 512 columns and inner channels: few rows go straight, more by TMA, many to the wide products.
  constexpr int64_t kExperts = 12, kPicks = 3, kHidden = 512, kInner = 512;
  for (const bool fits : {true, false}) {
    Random random(3);
    const int64_t inner = fits ? kInner : 96;
    std::vector<OwnedWeight> owned;
    for (int64_t e = 0; e < kExperts; ++e) {
      owned.push_back(RandomWeight(WeightFormat::kF4Row32, inner, kHidden, random));
      owned.push_back(RandomWeight(WeightFormat::kF4Row32, kHidden, inner, random));
      owned.push_back(RandomWeight(WeightFormat::kF4Row32, inner, kHidden, random));
    }
    std::vector<ExpertWeights> experts;
    std::vector<WeightMatrix> weights;
    for (size_t e = 0; e < static_cast<size_t>(kExperts); ++e) {
      experts.push_back({owned[3 * e], owned[3 * e + 1], owned[3 * e + 2]});
      for (size_t i = 0; i < 3; ++i) weights.push_back(owned[3 * e + i]);
    }
    FourOps four(weights);
    for (const int64_t rows : {1, 2, 9, 1, 40, 200, 3}) {
      const Tensor x = RandomTensor(rows, kHidden, random);
      const Tensor gains = RandomTensor(rows, kPicks, random);
      std::vector<int32_t> picks;
      for (int64_t t = 0; t < rows; ++t) {
        std::vector<int32_t> all(static_cast<size_t>(kExperts));
        std::iota(all.begin(), all.end(), 0);
        while (std::ssize(all) > kPicks) all.erase(all.begin() + random.Below(std::ssize(all)));
        picks.insert(picks.end(), all.begin(), all.end());
      }
      four.Expect(rows, kHidden, [&](Ops& ops, FloatView out) {
        ops.Experts(x, TensorView<const int32_t>(picks.data(), rows, kPicks), gains, experts, 7,
                    ActivationFormat::kFp8Groups32, out);
      });
    }
  }
}

TEST(CudaWeights, TablesOnTheDeviceGiveTheSameRows) {
  Random random(4);
  const auto reference = MakeReferenceOps();
  for (const WeightFormat format : {WeightFormat::kF8Row32, WeightFormat::kF4Row32}) {
    const OwnedWeight table = RandomWeight(format, 1000, 64, random);
    FourOps four({table.view()});
    for (const int64_t count : {1, 7, 30'000}) {
      std::vector<int64_t> rows(static_cast<size_t>(count * 12));
      for (int64_t& row : rows) row = random.Below(1000);
      const TensorView<const int64_t> picked(rows.data(), count, 12);
      Tensor expected(count, 12 * 64);
      reference->GatherRows(table, picked, expected);
      four.Expect(count, 12 * 64, [&](Ops& ops, FloatView out) {
        ops.GatherRows(table, picked, out);
        ASSERT_TRUE(SameBits(out, expected));
      });
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
