#include "ops_test_util.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/dtype.h"
#include "hwy/highway.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/linear_kernels.h"
#include "ops/cuda/cuda_ops.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kGap = 5;
constexpr float kSentinel = -77.125f;

ScratchLimits Limits() {
  ScratchLimits limits;
  limits.rows = 300;
  limits.columns = 8 * 1152;
  limits.outputs = 1024;
  limits.experts_per_token = 8;
  limits.experts = 64;
  limits.heads = 64;
  limits.head_width = 512;
  limits.attended_rows = 1024;
  limits.index_rows = 4096;
  limits.candidate_blocks = 200;
  return limits;
}

}  // namespace

#ifdef DEEPINFER_TEST_CUDA
std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  for (const CudaProducts products : {CudaProducts::kCanonical, CudaProducts::kTensorCores}) {
    const auto make = [products]() -> std::unique_ptr<Ops> {
      CudaOptions options;
      options.products = products;
      options.keep_weights = false;  // tests reuse addresses
      Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
      EXPECT_TRUE(ops.ok()) << ops.status().message();
      return std::move(ops).value();
    };
    backends.push_back({products == CudaProducts::kCanonical ? "CudaCanonical" : "CudaTensor", 0, true, make, make});
  }
  return backends;
}
#else
std::vector<Backend> Backends() {
  std::vector<Backend> backends;
  backends.push_back({"Reference", 0, true, MakeReferenceOps, MakeReferenceOps});
  const auto add_cpu = [&](const std::string& name, int threads, int64_t target, bool bf16_pairs) {
    backends.push_back(
        {name, target, bf16_pairs, [threads] { return MakeCpuOps(threads); }, [] { return MakeCpuOps(1); }});
  };
  for (const int threads : {1, 2, 3}) add_cpu("Cpu" + std::to_string(threads), threads, 0, true);
  if (cpu::HasBf16Pairs()) add_cpu("CpuWithoutBf16Pairs", 1, 0, false);
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();  // best first
  for (size_t i = 1; i < targets.size(); ++i) {
    add_cpu(std::string("Cpu_") + hwy::TargetName(targets[i]), 1, targets[i], false);
  }
  return backends;
}

#endif

bool HasFusedProducts(const Ops& ops) {
  if (ops.name() == "reference") return true;
  if (ops.name().starts_with("cuda")) return ops.name().find("canonical") != std::string_view::npos;
  const int64_t targets = hwy::SupportedTargets();
  const int64_t best = targets & -targets;
  return (best & (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_SSE4)) == 0;
}

Tensor::Tensor(int64_t rows, int64_t columns)
    : rows_(rows),
      columns_(columns),
      stride_(columns + kGap),
      storage_(static_cast<size_t>(rows == 0 ? 0 : (rows - 1) * stride_ + columns), kSentinel) {}

void Tensor::Fill(float value) {
  for (int64_t t = 0; t < rows_; ++t) std::fill_n(row(t), columns_, value);
}

Tensor Tensor::Gather(const std::vector<int64_t>& indices) const {
  Tensor out(static_cast<int64_t>(indices.size()), columns_);
  for (size_t i = 0; i < indices.size(); ++i) std::copy_n(row(indices[i]), columns_, out.row(static_cast<int64_t>(i)));
  return out;
}

bool Tensor::GapsUntouched() const {
  for (int64_t t = 0; t + 1 < rows_; ++t) {
    for (int64_t c = columns_; c < stride_; ++c) {
      if (row(t)[c] != kSentinel) return false;
    }
  }
  return true;
}

Tensor RandomTensor(int64_t rows, int64_t columns, Random& random) {
  Tensor out(rows, columns);
  for (int64_t t = 0; t < rows; ++t) {
    float magnitude = 1;
    for (int64_t c = 0; c < columns; ++c) {
      if (c % 32 == 0) magnitude = std::ldexp(1.0f, static_cast<int>(random.Below(9)) - 4);
      out.row(t)[c] = random.Normal() * magnitude;
    }
  }
  return out;
}

OwnedWeight::OwnedWeight(WeightFormat format, int64_t rows, int64_t columns) {
  view_.format = format;
  view_.rows = rows;
  view_.columns = columns;
  const int64_t scale_rows = format == WeightFormat::kF8Block32 ? (rows + 31) / 32 : rows;
  data_.resize(static_cast<size_t>(rows * view_.row_bytes() + 1));
  scale_.resize(static_cast<size_t>(scale_rows * view_.scale_row_bytes() + 1), 127);
  view_.data = data();
  view_.scale = view_.scale_row_bytes() == 0 ? nullptr : scale();
}

void OwnedWeight::Set(int64_t row, int64_t column, float value) {
  uint8_t* bytes = data() + row * view_.row_bytes();
  if (view_.scale != nullptr) value /= E8m0ToFloat(view_.scale_row(row)[column / 32]);
  switch (view_.format) {
    case WeightFormat::kF32:
      std::memcpy(bytes + column * 4, &value, 4);
      break;
    case WeightFormat::kBF16: {
      const uint16_t bits = FloatToBf16(value);
      std::memcpy(bytes + column * 2, &bits, 2);
      break;
    }
    case WeightFormat::kF8Block32:
    case WeightFormat::kF8Row32:
      bytes[column] = FloatToE4m3(value);
      break;
    case WeightFormat::kF4Row32: {
      uint8_t& byte = bytes[column / 2];
      const uint8_t nibble = FloatToE2m1(value);
      byte = static_cast<uint8_t>(column % 2 == 0 ? (byte & 0xf0) | nibble : (byte & 0x0f) | nibble << 4);
      break;
    }
  }
}

OwnedWeight ZeroWeight(WeightFormat format, int64_t rows, int64_t columns) { return {format, rows, columns}; }

OwnedWeight RandomWeight(WeightFormat format, int64_t rows, int64_t columns, Random& random) {
  OwnedWeight weight(format, rows, columns);
  const int64_t bytes = rows * weight.view().row_bytes();
  if (format == WeightFormat::kF32 || format == WeightFormat::kBF16) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) weight.Set(r, c, random.Normal());
    }
    return weight;
  }
  for (int64_t i = 0; i < bytes; ++i) {
    uint8_t byte = random.Byte();
    if (format != WeightFormat::kF4Row32 && (byte & 0x7f) == 0x7f) byte ^= 1;  // E4M3 NaN
    weight.data()[i] = byte;
  }
  const int64_t scales = weight.view().total_bytes() - bytes;
  for (int64_t i = 0; i < scales; ++i) weight.scale()[i] = static_cast<uint8_t>(118 + random.Below(12));
  return weight;
}

OwnedVector::OwnedVector(const std::vector<float>& values, bool as_bf16) {
  const size_t width = as_bf16 ? 2 : 4;
  data_.resize(values.size() * width + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = FloatToBf16(values[i]);
    const void* source = as_bf16 ? static_cast<const void*>(&bits) : static_cast<const void*>(&values[i]);
    std::memcpy(data_.data() + 1 + i * width, source, width);
  }
  view_.data = data_.data() + 1;
  view_.is_bf16 = as_bf16;
  view_.size = static_cast<int64_t>(values.size());
}

OwnedVector RandomVector(int64_t size, bool as_bf16, Random& random, float mean, float spread) {
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = mean + spread * random.Normal();
  return {values, as_bf16};
}

OwnedRows::OwnedRows(RowFormat format, int32_t channels, int64_t rows, int32_t rows_per_page) {
  const int64_t page_bytes = rows_per_page * PackedRowBytes(format, channels).total();
  pages_.resize(static_cast<size_t>((rows + rows_per_page - 1) / rows_per_page));
  for (std::vector<uint8_t>& page : pages_) {
    page.assign(static_cast<size_t>(kOffset + page_bytes), 0xff);
    pointers_.push_back(page.data());
  }
  view_.pages = pointers_.data();
  view_.rows_per_page = rows_per_page;
  view_.format = format;
  view_.channels = channels;
  view_.offset = kOffset;
}

::testing::AssertionResult SameBits(ConstFloatView actual, ConstFloatView expected) {
  if (actual.rows != expected.rows || actual.columns != expected.columns) {
    return ::testing::AssertionFailure() << "shapes differ";
  }
  for (int64_t t = 0; t < expected.rows; ++t) {
    for (int64_t c = 0; c < expected.columns; ++c) {
      const float a = actual.row(t)[c];
      const float e = expected.row(t)[c];
      if (std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(e)) {
        return ::testing::AssertionFailure() << "row " << t << " column " << c << ": " << a << ", expected the bits of "
                                             << e << " (difference " << a - e << ")";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Near(ConstFloatView actual, ConstFloatView expected, float tolerance) {
  if (actual.rows != expected.rows || actual.columns != expected.columns) {
    return ::testing::AssertionFailure() << "shapes differ";
  }
  for (int64_t t = 0; t < expected.rows; ++t) {
    float largest = 1e-30f;
    for (int64_t c = 0; c < expected.columns; ++c) largest = std::max(largest, std::fabs(expected.row(t)[c]));
    for (int64_t c = 0; c < expected.columns; ++c) {
      const float a = actual.row(t)[c];
      const float e = expected.row(t)[c];
      if (!(std::fabs(a - e) <= tolerance * largest)) {
        return ::testing::AssertionFailure() << "row " << t << " column " << c << ": " << a << ", expected " << e
                                             << " within " << tolerance << " of " << largest;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

void ExpectRowIndependence(Ops& ops, Ops& peer, int64_t rows, const RunRows& run) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  const Tensor whole = run(ops, all);
  ASSERT_TRUE(whole.GapsUntouched());

  for (const int64_t t : all) {
    const Tensor alone = run(peer, {t});
    ASSERT_TRUE(SameBits(alone, whole.view().RowRange(t, t + 1))) << "row " << t << " alone";
  }
  std::vector<int64_t> reversed(all.rbegin(), all.rend());
  ASSERT_TRUE(SameBits(run(ops, reversed), whole.Gather(reversed))) << "reversed";
  for (const size_t chunk : {size_t{3}, size_t{7}}) {
    for (size_t begin = 0; begin < all.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, all.size());
      const std::vector<int64_t> part(all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(end));
      ASSERT_TRUE(SameBits(run(ops, part), whole.Gather(part))) << "chunk of " << chunk << " at " << begin;
    }
  }
}

void OpsTest::SetUp() {
  if (GetParam().target != 0) hwy::SetSupportedTargetsForTest(GetParam().target);
  cpu::UseBf16Pairs(GetParam().bf16_pairs ? cpu::Bf16Pairs::kAlways : cpu::Bf16Pairs::kNever);
  ops_ = GetParam().make();
  peer_ = GetParam().make_peer();
  reference_ = MakeReferenceOps();
  for (Ops* each : {ops_.get(), peer_.get(), reference_.get()}) {
    const Status status = each->Reserve(Limits());
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

void OpsTest::TearDown() {
  hwy::SetSupportedTargetsForTest(0);
  cpu::UseBf16Pairs(cpu::Bf16Pairs::kWhereFast);
}

}  // namespace deepinfer::test
