// Ops that write few rows in the forms that products read (ops/cuda/row_forms.h): F32 rows as without forms, forms as
// QuantiseRows and SplitRows make them from these; and the ops of one launch that stand for several.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/kernels.h"

namespace deepinfer::test {
namespace {

constexpr float kEps = 1e-20f;

/// Rows on the device without gaps, which take vectors, or with gaps of two, so that every second row does not.
class Rows {
 public:
  explicit Rows(const Tensor& from, int64_t gap = 0) : rows_(from.rows()), columns_(from.columns()), gap_(gap) {
    std::vector<float> all(static_cast<size_t>(rows_ * (columns_ + gap_)), kUntouched);
    for (int64_t t = 0; t < rows_; ++t) std::copy_n(from.row(t), columns_, all.data() + t * (columns_ + gap_));
    bytes_ = std::make_unique<DeviceBytes>(all);
  }
  Rows(int64_t rows, int64_t columns, int64_t gap = 0) : Rows(Tensor(rows, columns), gap) {}
  FloatView view() const { return {bytes_->as<float>(), rows_, columns_, columns_ + gap_}; }
  Tensor Get() const {
    Check(cudaDeviceSynchronize());
    std::vector<float> all(static_cast<size_t>(rows_ * (columns_ + gap_)));
    Check(cudaMemcpy(all.data(), bytes_->as<float>(), all.size() * sizeof(float), cudaMemcpyDeviceToHost));
    Tensor out(rows_, columns_);
    for (int64_t t = 0; t < rows_; ++t) std::copy_n(all.data() + t * (columns_ + gap_), columns_, out.row(t));
    return out;
  }

 private:
  int64_t rows_, columns_, gap_;
  std::unique_ptr<DeviceBytes> bytes_;
};

/// A vector on the device.
struct Vector {
  explicit Vector(const std::vector<float>& values)
      : bytes(values), view{bytes.as<uint8_t>(), false, std::ssize(values)} {}
  DeviceBytes bytes;
  WeightVector view;
};
Vector RandomGain(int64_t size, Random& random) {
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = random.Uniform(0.5f, 1.5f);
  return Vector(values);
}

/// All forms of some rows; those that are not wanted must keep their bytes.
class Forms {
 public:
  Forms(int64_t rows, int64_t columns, unsigned wanted)
      : wanted_(wanted),
        fp8_(rows, columns),
        fp4_(rows, columns),
        terms_(cuda::kExactTerms * rows, columns),
        fp8_terms_(cuda::kExactTerms * rows, columns) {}
  cuda::RowForms view() const { return {Values(fp8_, 1), Values(fp4_, 2), Values(terms_, 4), Values(fp8_terms_, 8)}; }
  void ExpectOf(ConstFloatView x) const {
    using cuda::ColumnOrder;
    Expect(fp8_, 1, x, &cuda::QuantiseRows, ColumnOrder::kFp8);
    Expect(fp4_, 2, x, &cuda::QuantiseRows, ColumnOrder::kFp4);
    Expect(terms_, 4, x, &cuda::SplitRows, ColumnOrder::kPlain);
    Expect(fp8_terms_, 8, x, &cuda::SplitRows, ColumnOrder::kFp8);
  }

 private:
  uint16_t* Values(const DeviceRows& rows, unsigned bit) const {
    return (wanted_ & bit) != 0 ? rows.From(0).values : nullptr;
  }
  template <typename Function>
  void Expect(const DeviceRows& actual, unsigned bit, ConstFloatView x, Function* make, cuda::ColumnOrder order) const {
    const DeviceRows expected(std::ssize(actual.Get()) / x.columns, x.columns);
    if ((wanted_ & bit) != 0) make(nullptr, x, order, expected.From(0));
    EXPECT_EQ(actual.Get(), expected.Get()) << "form " << bit;
  }
  unsigned wanted_;
  DeviceRows fp8_, fp4_, terms_, fp8_terms_;
};

constexpr unsigned kAll = 15;
constexpr unsigned kWanted[] = {kAll, 0, 1, 2, 4, 8};

/// run(out, forms) writes rows of `columns`.
template <typename Run>
void ExpectForms(int64_t rows, int64_t columns, int64_t gap, const Run& run) {
  const Rows expected(rows, columns, gap);
  run(expected.view(), cuda::RowForms());
  for (const unsigned wanted : kWanted) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << ", gap " << gap << ", forms " << wanted);
    const Rows actual(rows, columns, gap);
    const Forms forms(rows, columns, wanted);
    run(actual.view(), forms.view());
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_TRUE(SameBits(actual.Get(), expected.Get()));
    forms.ExpectOf(actual.view());
  }
}

/// Random rows with a group of zeros, and one of very small and one of very large numbers where there is room.
Tensor Numbers(int64_t rows, int64_t columns, Random& random) {
  Tensor x = RandomTensor(rows, columns, random);
  for (int64_t t = 0; t < rows; ++t) {
    std::fill_n(x.row(t), 32, t % 2 == 0 ? 0.0f : -0.0f);
    for (int64_t c = 32; c < std::min<int64_t>(columns, 64); ++c) x.row(t)[c] *= 1e-20f;
    for (int64_t c = 64; c < std::min<int64_t>(columns, 96); ++c) x.row(t)[c] *= 1e12f;
  }
  return x;
}

// Blocks of fewer columns than a warp has, and rows of more than eight columns a thread.
constexpr int64_t kWidths[] = {32, 96, 512, 5120, 8192 + 32, 16384 + 96};

TEST(CudaForms, OfNorms) {
  Random random(1);
  for (const int64_t width : kWidths) {
    for (const int64_t rows : {1, 3}) {
      const Vector gain = RandomGain(width, random);
      const Tensor numbers = Numbers(rows, width, random);
      const Rows pre(RandomTensor(rows, 24, random));
      const Rows streams(Numbers(rows, 4 * width, random));
      for (const int64_t gap : {0, 2}) {
        const Rows x(numbers, gap);
        ExpectForms(rows, width, gap, [&](FloatView out, const cuda::RowForms& forms) {
          cuda::RmsNorm(nullptr, x.view(), gain.view, kEps, out, forms);
        });
        ExpectForms(rows, width, gap, [&](FloatView out, const cuda::RowForms& forms) {
          cuda::CollapseNorm(nullptr, streams.view(), 4, pre.view(), gain.view, kEps, out, FloatView(), forms);
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CudaForms, OfSwiGluAndJoinedTerms) {
  Random random(2);
  for (const int64_t width : {32, 96, 256, 2304, 8192}) {
    for (const int64_t rows : {1, 5, 64}) {
      const Rows gate(Numbers(rows, width, random)), up(RandomTensor(rows, width, random));
      const Rows terms(RandomTensor(cuda::kExactTerms * rows, width, random));
      ExpectForms(rows, width, 2, [&](FloatView out, const cuda::RowForms& forms) {
        cuda::SwiGlu(nullptr, gate.view(), up.view(), 10, out, forms);
      });
      ExpectForms(rows, width, 2, [&](FloatView out, const cuda::RowForms& forms) {
        cuda::JoinTerms(nullptr, terms.view(), out, forms);
      });
      if (testing::Test::HasFailure()) return;
    }
  }
}

struct Heads {
  int count;
  int64_t width, rotated;
};

TEST(CudaForms, OfRotatedRows) {
  Random random(3);
  for (const Heads& heads : {Heads{1, 32, 4}, {2, 48, 16}, {16, 128, 64}, {64, 512, 64}, {8, 64, 64}}) {
    for (const int64_t rows : {1, 3}) {
      for (const bool inverse : {false, true}) {
        const Tensor before = Numbers(rows, heads.count * heads.width, random);
        const Rows table(RandomTensor(rows, heads.rotated, random)), expected(before);
        cuda::Rope(nullptr, expected.view(), heads.count, table.view(), inverse);
        ASSERT_TRUE(cuda::RopeWithFormsFits(expected.view(), heads.count, table.view()));
        for (const unsigned wanted : kWanted) {
          SCOPED_TRACE(testing::Message()
                       << rows << " rows of " << heads.count << " x " << heads.width << " forms " << wanted);
          const Rows actual(before);
          const Forms forms(rows, before.columns(), wanted);
          cuda::RopeWithForms(nullptr, actual.view(), heads.count, table.view(), inverse, forms.view());
          ASSERT_EQ(cudaGetLastError(), cudaSuccess);
          ASSERT_TRUE(SameBits(actual.Get(), expected.Get()));
          forms.ExpectOf(actual.view());
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// Places of `rows` packed rows on the device, whose bytes Get() gives.
class Packed {
 public:
  Packed(RowFormat format, int32_t channels, int64_t rows)
      : bytes_(PackedRowBytes(format, channels)),
        size_(static_cast<size_t>(rows * bytes_.total())),
        memory_(std::vector<uint8_t>(size_, 0xee)) {
    std::vector<cuda::RowPlace> places;
    uint8_t* const first = memory_.as<uint8_t>();
    for (int64_t t = rows - 1; t >= 0; --t) {  // in any order
      places.push_back({first + t * bytes_.values, first + rows * bytes_.values + t * bytes_.scales});
    }
    places_ = std::make_unique<DeviceBytes>(places);
  }
  const cuda::RowPlace* places() const { return places_->as<cuda::RowPlace>(); }
  std::vector<uint8_t> Get() const {
    Check(cudaDeviceSynchronize());
    std::vector<uint8_t> all(size_);
    Check(cudaMemcpy(all.data(), memory_.as<uint8_t>(), size_, cudaMemcpyDeviceToHost));
    return all;
  }

 private:
  RowBytes bytes_;
  size_t size_;
  DeviceBytes memory_;
  std::unique_ptr<DeviceBytes> places_;
};

TEST(CudaForms, QueriesAndKeysAsByFourOps) {
  Random random(4);
  for (const Heads& heads : {Heads{1, 32, 2}, {3, 48, 6}, {16, 128, 64}, {64, 512, 64}, {8, 64, 64}, {2, 4096, 64}}) {
    for (const RowFormat format : {RowFormat::kWindowFp8, RowFormat::kCompressedFp4}) {
      if (format == RowFormat::kWindowFp8 && heads.width % 32 != 0) continue;
      for (const int64_t rows : {1, 3, 70}) {
        for (const int64_t gap : {0, 2}) {
          SCOPED_TRACE(testing::Message()
                       << rows << " rows of " << heads.count << " x " << heads.width << " gap " << gap);
          const Tensor queries = RandomTensor(rows, heads.count * heads.width, random);
          const Tensor kv = Numbers(rows, heads.width, random);
          const Rows table(RandomTensor(rows, heads.rotated, random));
          const Vector gain = RandomGain(heads.width, random);
          const Rows expected_queries(queries), expected_kv(kv, gap), actual_queries(queries), actual_kv(kv, gap);
          const Packed expected(format, static_cast<int32_t>(heads.width), rows),
              actual(format, static_cast<int32_t>(heads.width), rows);
          cuda::Rope(nullptr, expected_queries.view(), heads.count, table.view(), false);
          cuda::RmsNorm(nullptr, expected_kv.view(), gain.view, kEps, expected_kv.view(), {});
          cuda::Rope(nullptr, expected_kv.view(), 1, table.view(), false);
          cuda::StoreRows(nullptr, expected_kv.view(), format, expected.places());
          cuda::FinishQueriesAndKeys(nullptr, actual_queries.view(), heads.count, actual_kv.view(), gain.view, kEps,
                                     table.view(), format, actual.places());
          ASSERT_EQ(cudaGetLastError(), cudaSuccess);
          ASSERT_TRUE(SameBits(actual_queries.Get(), expected_queries.Get()));
          ASSERT_TRUE(SameBits(actual_kv.Get(), expected_kv.Get()));
          ASSERT_EQ(actual.Get(), expected.Get());
        }
      }
    }
  }
}

TEST(CudaForms, SumOfSlotsEndsTheSublayer) {
  constexpr int kPerToken = 6;
  Random random(6);
  for (const int64_t width : {32, 200, 5120}) {
    for (const int64_t rows : {1, 3}) {
      for (const int n : {1, 4, 7, 8}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << width << ", streams " << n);
        const Rows parts(RandomTensor(rows * kPerToken, width, random));
        std::vector<int32_t> places;
        for (int64_t i = 0; i < rows * kPerToken; ++i) places.push_back(static_cast<int32_t>(rows * kPerToken - 1 - i));
        const DeviceBytes device_places(places);
        const Rows shared(RandomTensor(rows, width, random), 2), mix(RandomTensor(rows, (2 + n) * n, random), 1);
        const Tensor before = RandomTensor(rows, n * width, random);
        for (const int32_t* list : {static_cast<const int32_t*>(nullptr), device_places.as<const int32_t>()}) {
          const Rows expected(before, 2), actual(before, 2), sum(rows, width), out(rows, width);
          cuda::SumSlots(nullptr, parts.view(), list, kPerToken, sum.view());
          cuda::Add(nullptr, shared.view(), sum.view());
          cuda::SpreadStreams(nullptr, sum.view(), mix.view(), n, expected.view());
          cuda::SumSlots(nullptr, parts.view(), list, kPerToken, out.view(),
                         {shared.view(), mix.view(), n, actual.view()});
          ASSERT_EQ(cudaGetLastError(), cudaSuccess);
          ASSERT_TRUE(SameBits(out.Get(), sum.Get()));
          ASSERT_TRUE(SameBits(actual.Get(), expected.Get()));
        }
      }
    }
  }
}

std::unique_ptr<Ops> MakeOps(bool device_memory) {
  CudaOptions options;
  options.device_memory = device_memory;
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

/// Rows in memory of Allocate().
class OpsRows {
 public:
  OpsRows(Ops& ops, int64_t rows, int64_t columns) : ops_(ops), rows_(rows), columns_(columns) {
    Result<DeviceMemory> memory = ops.Allocate(rows * columns * static_cast<int64_t>(sizeof(float)));
    EXPECT_TRUE(memory.ok());
    memory_ = std::move(memory).value();
  }
  FloatView view(int64_t rows) const { return {reinterpret_cast<float*>(memory_.data()), rows, columns_, columns_}; }
  void Set(const Tensor& from) {
    for (int64_t t = 0; t < from.rows(); ++t) ops_.CopyIn(from.row(t), view(rows_).row(t), columns_ * 4);
  }
  Tensor Get(int64_t rows) {
    Tensor out(rows, columns_);
    for (int64_t t = 0; t < rows; ++t) ops_.CopyOut(view(rows_).row(t), out.row(t), columns_ * 4);
    return out;
  }

 private:
  Ops& ops_;
  int64_t rows_, columns_;
  DeviceMemory memory_;
};

// The second time an op knows what its rows are read as, and writes it: results stay those of ops that copy each time.
// Rows that are written by somebody else in between are read as they are then.
TEST(CudaForms, WhatIsReadFollowsWhatIsWritten) {
  constexpr int64_t kWidth = 512, kInner = 256, kMost = 65;
  Random random(5);
  const auto device = MakeOps(true), host = MakeOps(false);
  const OwnedVector gain = RandomVector(kWidth, true, random, 1, 0.3f);
  const OwnedWeight fp8 = RandomWeight(WeightFormat::kF8Block32, kInner, kWidth, random);
  const OwnedWeight down = RandomWeight(WeightFormat::kF8Block32, kWidth, kInner, random);
  const OwnedWeight bf16 = RandomWeight(WeightFormat::kBF16, 64, kWidth, random);
  OpsRows x(*device, kMost, kWidth), normed(*device, kMost, kWidth), gate(*device, kMost, kInner),
      back(*device, kMost, kWidth), table(*device, kMost, 64), small(*device, kMost, 64);
  for (const int64_t rows : {1, 1, 3, 1, 64, 3, 65, 1}) {
    SCOPED_TRACE(rows);
    const Tensor input = RandomTensor(rows, kWidth, random), cos_sin = RandomTensor(rows, 64, random);
    x.Set(input);
    table.Set(cos_sin);
    Tensor h_normed(rows, kWidth), h_gate(rows, kInner), h_back(rows, kWidth), h_small(rows, 64);
    const auto run = [&](Ops& ops, ConstFloatView in, ConstFloatView rope, FloatView n, FloatView g, FloatView b,
                         FloatView s) {
      ops.RmsNorm(in, gain, kEps, n);
      ops.Linear(n, fp8, ActivationFormat::kFp8Groups32, 1, g);
      ops.Linear(n, bf16, ActivationFormat::kExact, 1, s);
      ops.SwiGlu(g, g, 10, g);
      ops.Linear(g, down, ActivationFormat::kFp8Groups32, 1, b);
      ops.Rope(b, 4, rope, true);
      ops.Linear(b, fp8, ActivationFormat::kExact, 1, g);
      ops.Linear(g, down, ActivationFormat::kFp8Groups32, 1, b);
      ops.Add(n, n);  // what was prepared is no more
      ops.Linear(n, fp8, ActivationFormat::kFp8Groups32, 1, g);
    };
    run(*host, input, cos_sin, h_normed, h_gate, h_back, h_small);
    run(*device, x.view(rows), table.view(rows), normed.view(rows), gate.view(rows), back.view(rows), small.view(rows));
    ASSERT_TRUE(device->Finish().ok());
    ASSERT_TRUE(SameBits(normed.Get(rows), h_normed));
    ASSERT_TRUE(SameBits(small.Get(rows), h_small));
    ASSERT_TRUE(SameBits(back.Get(rows), h_back));
    ASSERT_TRUE(SameBits(gate.Get(rows), h_gate));
  }
}

}  // namespace
}  // namespace deepinfer::test
