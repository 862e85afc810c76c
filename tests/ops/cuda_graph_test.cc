// CommandList's graphs: the results of single launches, branches that are waited for where they have to be, and graphs
// that are launched again without being recorded.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch_order.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kColumns = 1 << 20;

class CudaGraph : public testing::Test {
 protected:
  void SetUp() override {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    commands_ = std::make_unique<cuda::CommandList>(stream_);
    ASSERT_TRUE(commands_->Create().ok());
  }
  void TearDown() override {
    commands_.reset();
    Check(cudaStreamDestroy(stream_));
  }
  static DeviceBytes Row(float value) { return DeviceBytes(std::vector<float>(kColumns, value)); }
  static FloatView View(const DeviceBytes& row) { return {row.as<float>(), 1, kColumns, kColumns}; }
  /// The value that all columns have; NaN when they differ.
  static float ValueOf(const DeviceBytes& row) {
    std::vector<float> values(kColumns);
    Check(cudaMemcpy(values.data(), row.as<float>(), values.size() * 4, cudaMemcpyDeviceToHost));
    const bool same = std::ranges::all_of(values, [&](float value) { return value == values[0]; });
    return same ? values[0] : std::numeric_limits<float>::quiet_NaN();
  }
  void Scale(float factor, const DeviceBytes& row) {
    commands_->WillRead(row.as<float>(), kColumns * 4);
    commands_->WillWrite(row.as<float>(), kColumns * 4);
    commands_->Add(&cuda::Scale, factor, View(row));
  }
  void Add(const DeviceBytes& from, const DeviceBytes& to) {
    commands_->WillRead(from.as<float>(), kColumns * 4);
    commands_->WillRead(to.as<float>(), kColumns * 4);
    commands_->WillWrite(to.as<float>(), kColumns * 4);
    commands_->Add(&cuda::Add, ConstFloatView(View(from)), View(to));
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<cuda::CommandList> commands_;
};

TEST_F(CudaGraph, EqualArgumentsAreNotRecordedAgain) {
  const DeviceBytes row = Row(1);
  const auto run = [&](float factor, int count) {
    for (int i = 0; i < count; ++i) Scale(factor, row);
    ASSERT_TRUE(commands_->Wait().ok());
  };
  run(2, 10);
  EXPECT_EQ(ValueOf(row), 1024);
  EXPECT_EQ(commands_->graphs().made(), 1);
  EXPECT_EQ(commands_->graphs().same(), 0);
  run(2, 10);
  EXPECT_EQ(ValueOf(row), 1048576);
  EXPECT_EQ(commands_->graphs().same(), 1);
  run(0.5f, 10);  // other arguments: recorded, and brought into the graph that is there
  EXPECT_EQ(ValueOf(row), 1024);
  run(0.5f, 12);  // another shape
  EXPECT_EQ(ValueOf(row), 0.25f);
  run(0.5f, 2);  // too few for a graph
  EXPECT_EQ(ValueOf(row), 0.0625f);
  EXPECT_EQ(commands_->graphs().made(), 2);
  EXPECT_EQ(commands_->graphs().same(), 1);
  EXPECT_EQ(commands_->fallbacks(), 0);
}

TEST_F(CudaGraph, SegmentsKeepTheOrder) {
  const DeviceBytes row = Row(1), other = Row(0);
  // Longer than the first segments; every command hangs on the one before.
  for (int round = 0; round < 100; ++round) {
    Scale(2, row);
    Add(row, other);
    Scale(0.5f, row);
  }
  ASSERT_TRUE(commands_->Wait().ok());
  EXPECT_EQ(ValueOf(row), 1);
  EXPECT_EQ(ValueOf(other), 200);
  EXPECT_GE(commands_->graphs().made(), 3);
}

TEST_F(CudaGraph, ABranchIsWaitedForByWhoeverNeedsIt) {
  for (int round = 0; round < 20; ++round) {
    const DeviceBytes slow = Row(1), input = Row(3), trunk = Row(1), sum = Row(0);
    Scale(1, input);
    commands_->BeginBeside();
    for (int i = 0; i < 10; ++i) Scale(2, slow);
    Add(input, slow);  // 1027
    commands_->EndBeside();
    Scale(5, trunk);   // need not wait
    Add(slow, sum);    // reads what the branch writes
    Scale(10, trunk);  // 50
    commands_->BeginBeside();
    for (int i = 0; i < 10; ++i) Scale(0.5f, slow);
    Add(input, slow);
    commands_->EndBeside();
    Scale(7, input);  // writes what the branch reads
    ASSERT_TRUE(commands_->Wait().ok());
    EXPECT_EQ(ValueOf(sum), 1027);
    EXPECT_EQ(ValueOf(slow), 1027.0f / 1024 + 3);
    EXPECT_EQ(ValueOf(input), 21);
    EXPECT_EQ(ValueOf(trunk), 50);
  }
  EXPECT_GE(commands_->graphs().made(), 1);
}

TEST_F(CudaGraph, ABranchGoesOnInTheNextSegment) {
  const DeviceBytes slow = Row(1), own = Row(1), trunk = Row(1), sum = Row(0);
  commands_->BeginBeside();
  for (int i = 0; i < 16; ++i) Scale(i % 2 == 0 ? 2.0f : 0.5f, slow);
  // The first command of the second segment: what it says of itself outlives the flush.
  Scale(3, own);
  for (int i = 0; i < 16; ++i) Scale(i % 2 == 0 ? 2.0f : 0.5f, slow);
  commands_->EndBeside();
  Scale(5, trunk);
  Add(own, sum);
  for (int i = 0; i < 10; ++i) Scale(1, trunk);
  ASSERT_TRUE(commands_->Wait().ok());
  EXPECT_EQ(ValueOf(sum), 3);
  EXPECT_EQ(ValueOf(slow), 1);
  EXPECT_EQ(ValueOf(trunk), 5);
  EXPECT_EQ(commands_->fallbacks(), 0);
}

TEST_F(CudaGraph, CopiesBelongToAGraph) {
  const DeviceBytes from = Row(1), to = Row(7), sum = Row(0);
  for (int i = 0; i < 6; ++i) Scale(2, from);
  commands_->WillRead(from.as<float>(), kColumns * 4);
  commands_->WillWrite(to.as<float>(), kColumns * 4);
  commands_->Add(&cuda::CopyBytes, static_cast<const void*>(from.as<float>()), static_cast<void*>(to.as<float>()),
                 kColumns * 4);
  Scale(0.5f, to);
  Scale(0.25f, from);
  Add(to, sum);
  ASSERT_TRUE(commands_->Wait().ok());
  EXPECT_EQ(ValueOf(to), 32);
  EXPECT_EQ(ValueOf(from), 16);
  EXPECT_EQ(ValueOf(sum), 32);
  EXPECT_EQ(commands_->fallbacks(), 0);
  EXPECT_EQ(commands_->graphs().made(), 1);
}

bool Fails(cudaStream_t, int) { return false; }

TEST_F(CudaGraph, ACommandThatFailsIsTheListsError) {
  const DeviceBytes row = Row(1);
  for (int i = 0; i < 8; ++i) Scale(2, row);
  commands_->BeginBeside();
  commands_->Add(&Fails, 1);
  commands_->EndBeside();
  EXPECT_FALSE(commands_->Wait().ok());
  EXPECT_EQ(commands_->fallbacks(), 1);
  // The stream is not left in the middle of a recording.
  cuda::CommandList after(stream_);
  ASSERT_TRUE(after.Create().ok());
  const DeviceBytes other = Row(1);
  for (int i = 0; i < 10; ++i) after.Add(&cuda::Scale, 2.0f, View(other));
  ASSERT_TRUE(after.Wait().ok()) << after.status().message();
  EXPECT_EQ(ValueOf(other), 1024);
  EXPECT_EQ(after.graphs().made(), 1);
}

TEST(CudaLaunchOrder, AWishIsTakenOnceByItsStream) {
  auto* const first = reinterpret_cast<cudaStream_t>(0x10);
  auto* const second = reinterpret_cast<cudaStream_t>(0x20);
  EXPECT_FALSE(cuda::TakeLaunchInOrder(first));
  cuda::LaunchNextInOrder(first);
  cuda::LaunchNextInOrder(first);
  cuda::LaunchNextInOrder(second);
  EXPECT_TRUE(cuda::TakeLaunchInOrder(second));
  EXPECT_FALSE(cuda::TakeLaunchInOrder(second));
  EXPECT_TRUE(cuda::TakeLaunchInOrder(first));
  cuda::LaunchNextInOrder(first);
  cuda::ForgetLaunchOrder();
  EXPECT_FALSE(cuda::TakeLaunchInOrder(first));
}

}  // namespace
}  // namespace deepinfer::test
