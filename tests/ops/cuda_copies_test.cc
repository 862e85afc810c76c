// Pieces of memory between host and GPU: whole, and in the order of the ops around them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cuda/cuda_ops.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kPieceFloats = 14336;
constexpr int64_t kPieceBytes = kPieceFloats * 4;
constexpr int64_t kPieces = 9;

class CudaCopies : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    CudaOptions options;
    options.device_memory = GetParam();
    Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
    ASSERT_TRUE(ops.ok()) << ops.status().message();
    ops_ = std::move(*ops);
    Result<DeviceMemory> memory = ops_->Allocate(kPieces * kPieceBytes);
    Result<DeviceMemory> staging = ops_->AllocateStaging(kPieces * kPieceBytes);
    ASSERT_TRUE(memory.ok() && staging.ok());
    memory_ = std::move(*memory);
    staging_ = std::move(*staging);
    for (int64_t i = 0; i < kPieces * kPieceFloats; ++i) host(0)[i] = static_cast<float>(i % 9973);
  }

  float* host(int64_t piece) const { return reinterpret_cast<float*>(staging_.data()) + piece * kPieceFloats; }
  float* device(int64_t piece) const { return reinterpret_cast<float*>(memory_.data()) + piece * kPieceFloats; }
  FloatView view(int64_t piece) const { return {device(piece), 1, kPieceFloats, kPieceFloats}; }
  static float Value(int64_t piece, int64_t at) { return static_cast<float>((piece * kPieceFloats + at) % 9973); }

  std::unique_ptr<Ops> ops_;
  DeviceMemory memory_;
  DeviceMemory staging_;
};

TEST_P(CudaCopies, EveryPieceGetsWhereItIsWanted) {
  // Two that touch at both ends, one at an end only, one nowhere.
  const std::vector<int64_t> places = {3, 4, 6, 5, 0};
  std::vector<MemoryPiece> pieces;
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    pieces.push_back({host(i), device(places[static_cast<size_t>(i)]), kPieceBytes});
  }
  ASSERT_TRUE(ops_->CopyPiecesIn(pieces).ok());
  ASSERT_TRUE(ops_->CopyPiecesIn({}).ok());
  std::fill_n(host(0), kPieces * kPieceFloats, -1.0f);
  pieces.clear();
  for (int64_t i = 0; i < kPieces; ++i) pieces.push_back({device(i), host(i), kPieceBytes});
  ASSERT_TRUE(ops_->CopyPiecesOut(pieces).ok());
  for (int64_t i = 0; i < kPieces; ++i) {
    const auto from = std::ranges::find(places, i) - places.begin();
    for (int64_t at = 0; at < kPieceFloats; ++at) {
      ASSERT_EQ(host(i)[at], from < std::ssize(places) ? Value(from, at) : 0.0f) << i << " " << at;
    }
  }
}

TEST_P(CudaCopies, TheyTakeTheirTurnAmongTheOps) {
  const MemoryPiece in[] = {{host(0), device(0), kPieceBytes}, {host(1), device(1), kPieceBytes}};
  ASSERT_TRUE(ops_->CopyPiecesIn(in).ok());
  ops_->Add(view(0), view(1));  // 1 = 0 + 1, which nobody waits for
  const MemoryPiece again[] = {{host(2), device(0), kPieceBytes}};
  ASSERT_TRUE(ops_->CopyPiecesIn(again).ok());
  ops_->Add(view(0), view(1));
  const MemoryPiece out[] = {{device(1), host(3), kPieceBytes}};
  ASSERT_TRUE(ops_->CopyPiecesOut(out).ok());
  for (int64_t at = 0; at < kPieceFloats; ++at) {
    ASSERT_EQ(host(3)[at], Value(2, at) + (Value(0, at) + Value(1, at))) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, CudaCopies, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Device" : "Host"); });

TEST(CudaNumerics, TellApartWhatComputesOtherBits) {
  CudaOptions options;
  Result<std::unique_ptr<Ops>> tensor = MakeCudaOps(options);
  options.products = CudaProducts::kCanonical;
  Result<std::unique_ptr<Ops>> canonical = MakeCudaOps(options);
  ASSERT_TRUE(tensor.ok() && canonical.ok());
  EXPECT_NE((*tensor)->numerics(), (*canonical)->numerics());
  EXPECT_NE((*tensor)->numerics(), MakeCpuOps(1)->numerics());
  EXPECT_NE((*canonical)->numerics(), MakeCpuOps(1)->numerics());
  EXPECT_NE(CudaNumerics(9, 0, CudaProducts::kTensorCores), CudaNumerics(10, 0, CudaProducts::kTensorCores));
}

}  // namespace
}  // namespace deepinfer::test
