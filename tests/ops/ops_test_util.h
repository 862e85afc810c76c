// What the op suites share: the list of backends, random tensors and weights in every stored format, packed rows, and
// comparisons.
//
// Buffers are as tight as the contracts allow: the last row of a tensor ends its allocation, weights start at odd
// addresses and end their allocation, unused packed bytes are 0xff (NaN as value and as scale), and the gap between the
// rows of a tensor holds a sentinel. So a wrong row shows as NaN, a wrong column as a changed sentinel, and reads past
// the end under AddressSanitizer.
//
// Thread-safety: none needed. Ownership: every class owns its bytes.
#ifndef DEEPINFER_TESTS_OPS_OPS_TEST_UTIL_H_
#define DEEPINFER_TESTS_OPS_OPS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace deepinfer::test {

/// One implementation under test: the reference, and the CPU backend with 1, 2 and 3 threads, on every instruction set
/// that it is compiled for and this machine has, and without its BF16 pair products.
struct Backend {
  std::string name;
  int64_t target = 0;      ///< the only Highway target allowed; 0 for the best one
  bool bf16_pairs = true;  ///< whether the BF16 pair kernels may run
  std::function<std::unique_ptr<Ops>()> make;
  std::function<std::unique_ptr<Ops>()> make_peer;  ///< a backend whose bits must be the same: the one-thread sibling
};
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

std::vector<Backend> Backends();

/// Whether products of this backend follow ops/dot_order.h to the bit: instruction sets without fused multiply-add
/// round differently.
bool HasFusedProducts(const Ops& ops);

/// Deterministic random numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t bound) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound)); }
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f; }
  float Normal() { return normal_(engine_); }
  uint8_t Byte() { return static_cast<uint8_t>(engine_()); }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

/// F32 rows with a gap between them.
class Tensor {
 public:
  Tensor(int64_t rows, int64_t columns);
  FloatView view() { return {data(), rows_, columns_, stride_}; }
  ConstFloatView view() const { return {data(), rows_, columns_, stride_}; }
  operator FloatView() { return view(); }             // NOLINT: implicit on purpose
  operator ConstFloatView() const { return view(); }  // NOLINT: implicit on purpose
  float* row(int64_t t) { return data() + t * stride_; }
  const float* row(int64_t t) const { return data() + t * stride_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  void Fill(float value);
  /// The rows with these indices, in this order.
  Tensor Gather(const std::vector<int64_t>& indices) const;
  /// No op has written between the rows.
  bool GapsUntouched() const;

 private:
  float* data() { return storage_.data(); }
  const float* data() const { return storage_.data(); }
  int64_t rows_;
  int64_t columns_;
  int64_t stride_;
  std::vector<float> storage_;
};

/// Normal values; every group of 32 columns has its own magnitude 2^-4 .. 2^4 so that scales differ.
Tensor RandomTensor(int64_t rows, int64_t columns, Random& random);

/// A weight that owns its bytes.
class OwnedWeight {
 public:
  OwnedWeight(WeightFormat format, int64_t rows, int64_t columns);
  const WeightMatrix& view() const { return view_; }
  operator const WeightMatrix&() const { return view_; }  // NOLINT: implicit on purpose
  uint8_t* data() { return data_.data() + 1; }
  uint8_t* scale() { return scale_.data() + 1; }
  /// Stores one value; exact when the format (with the scale that is there) can hold it.
  void Set(int64_t row, int64_t column, float value);
  OwnedWeight(OwnedWeight&&) = default;
  OwnedWeight& operator=(OwnedWeight&&) = default;

 private:
  std::vector<uint8_t> data_;
  std::vector<uint8_t> scale_;
  WeightMatrix view_;
};

/// Zero values, scales 1.
OwnedWeight ZeroWeight(WeightFormat format, int64_t rows, int64_t columns);

/// Random codes and scales 2^-9 .. 2^2.
OwnedWeight RandomWeight(WeightFormat format, int64_t rows, int64_t columns, Random& random);

/// A stored vector that owns its bytes.
class OwnedVector {
 public:
  OwnedVector(const std::vector<float>& values, bool as_bf16);
  operator const WeightVector&() const { return view_; }  // NOLINT: implicit on purpose
  OwnedVector(OwnedVector&&) = default;

 private:
  std::vector<uint8_t> data_;
  WeightVector view_;
};
OwnedVector RandomVector(int64_t size, bool as_bf16, Random& random, float mean = 0, float spread = 1);

/// Pages of packed rows that own their bytes; the rows begin behind kOffset bytes of each page.
class OwnedRows {
 public:
  static constexpr int64_t kOffset = 16;
  OwnedRows(RowFormat format, int32_t channels, int64_t rows, int32_t rows_per_page);
  const PackedRows& view() const { return view_; }
  operator const PackedRows&() const { return view_; }  // NOLINT: implicit on purpose
  const std::vector<std::vector<uint8_t>>& pages() const { return pages_; }
  OwnedRows(OwnedRows&&) = default;

 private:
  std::vector<std::vector<uint8_t>> pages_;
  std::vector<uint8_t*> pointers_;
  PackedRows view_;
};

/// Every element has the same bits.
::testing::AssertionResult SameBits(ConstFloatView actual, ConstFloatView expected);

/// |actual - expected| <= tolerance * max(largest |expected| of the row, 1e-30).
::testing::AssertionResult Near(ConstFloatView actual, ConstFloatView expected, float tolerance);

/// Promise 1: the rows of run(ops, indices) are the same bits when computed all at once, one at a time by the peer
/// backend, in reverse order and cut into chunks. `run` returns one output row per index.
using RunRows = std::function<Tensor(Ops& ops, const std::vector<int64_t>& indices)>;
void ExpectRowIndependence(Ops& ops, Ops& peer, int64_t rows, const RunRows& run);

/// A fixture with the backend under test, its peer and the reference, all with reserved scratch.
class OpsTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;
  void TearDown() override;
  Ops& ops() { return *ops_; }
  Ops& peer() { return *peer_; }
  Ops& reference() { return *reference_; }
  bool fused() const { return HasFusedProducts(*ops_); }

 private:
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Ops> peer_;
  std::unique_ptr<Ops> reference_;
};

#define DEEPINFER_INSTANTIATE_BACKENDS(Suite)                              \
  INSTANTIATE_TEST_SUITE_P(                                                \
      Backends, Suite, ::testing::ValuesIn(::deepinfer::test::Backends()), \
      [](const ::testing::TestParamInfo<::deepinfer::test::Backend>& info) { return info.param.name; })

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_OPS_OPS_TEST_UTIL_H_
