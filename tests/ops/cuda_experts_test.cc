// The experts op from device routing (ops/cuda/experts.h): slots as the host sorts them, layers as the reference, rows
// with the same bits in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/routing.h"

namespace deepinfer::test {
namespace {

using Picks = std::vector<int32_t>;  // [T, K]

/// Kernels start early in a stream of its own, which waits for copies in the default stream.
cudaStream_t Stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    Check(cudaStreamCreate(&made));
    return made;
  }();
  return stream;
}

template <typename T>
std::vector<T> Download(const T* device, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  Check(cudaDeviceSynchronize());
  Check(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

/// Picks on the device with a gap between rows.
class DevicePicks {
 public:
  DevicePicks(const Picks& picks, int64_t per_token)
      : rows_(std::ssize(picks) / per_token), per_token_(per_token), bytes_(Spread(picks)) {}
  TensorView<int32_t> view() const { return {bytes_.as<int32_t>(), rows_, per_token_, per_token_ + 3}; }

 private:
  Picks Spread(const Picks& picks) const {
    Picks all(static_cast<size_t>(rows_ * (per_token_ + 3)), -5);
    for (int64_t i = 0; i < std::ssize(picks); ++i) {
      all[static_cast<size_t>(i / per_token_ * (per_token_ + 3) + i % per_token_)] = picks[static_cast<size_t>(i)];
    }
    return all;
  }
  int64_t rows_, per_token_;
  DeviceBytes bytes_;
};

/// Memory for a routing, all of it garbage, with a guard behind.
class RoutingMemory {
 public:
  RoutingMemory(int64_t rows, int per_token, int64_t experts)
      : size_(cuda::RoutingBytes(rows, per_token, experts)),
        bytes_(std::vector<uint8_t>(static_cast<size_t>(size_ + kGuard), 0xee)),
        routing_(cuda::PlaceRouting(bytes_.as<void>(), rows, per_token, experts)) {}
  const cuda::DeviceRouting& routing() const { return routing_; }
  void ExpectGuard() const {
    const std::vector<uint8_t> guard = Download(bytes_.as<uint8_t>() + size_, kGuard);
    EXPECT_EQ(std::count(guard.begin(), guard.end(), 0xee), kGuard);
  }

 private:
  static constexpr int64_t kGuard = 4096;
  int64_t size_;
  DeviceBytes bytes_;
  cuda::DeviceRouting routing_;
};

void ExpectRouting(const cuda::DeviceRouting& actual, const cuda::Routing& expected) {
  const int64_t slots = actual.slots();
  ASSERT_EQ(Download(actual.offsets, actual.experts + 1), expected.offsets);
  ASSERT_EQ(Download(actual.order, slots), expected.order);
  ASSERT_EQ(Download(actual.weights, slots), expected.weights);
  std::vector<int32_t> active = expected.active;
  ASSERT_LE(std::ssize(active), actual.active_count);
  active.resize(static_cast<size_t>(actual.active_count), -1);
  ASSERT_EQ(Download(actual.active, actual.active_count), active);
  const std::vector<int32_t> places = Download(actual.places, slots);
  const std::vector<float> placed = Download(actual.placed_weights, slots);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto slot = static_cast<size_t>(expected.order[i]);
    ASSERT_EQ(places[slot], static_cast<int32_t>(i));
    ASSERT_EQ(placed[i], expected.weights[slot]);
  }
  const std::vector<cuda::ExpertTile> tiles = Download(actual.tiles, actual.tile_count);
  size_t at = 0;
  for (const int32_t e : expected.active) {
    const int32_t count = expected.offsets[static_cast<size_t>(e) + 1] - expected.offsets[static_cast<size_t>(e)];
    for (int32_t first = 0; first < count; first += cuda::kWideTileRows, ++at) {
      ASSERT_LT(at, tiles.size());
      ASSERT_EQ(tiles[at].expert, e);
      ASSERT_EQ(tiles[at].first, first);
    }
  }
  for (; at < tiles.size(); ++at) ASSERT_EQ(tiles[at].expert, -1);
}

cuda::Routing HostRouting(const Picks& picks, const Tensor& weights, int64_t experts) {
  return cuda::SortByExpert(TensorView<const int32_t>(picks.data(), weights.rows(), weights.columns()), weights,
                            experts);
}

struct RoutingShape {
  int64_t rows;
  int per_token;
  int64_t experts;
};

TEST(CudaRouting, SortedAsTheHostSorts) {
  Random random(31);
  for (const RoutingShape& shape :
       {RoutingShape{1, 6, 384}, RoutingShape{1, 1, 1}, RoutingShape{2, 3, 12}, RoutingShape{5, 8, 512},
        RoutingShape{32, 6, 384}, RoutingShape{64, 6, 384}, RoutingShape{64, 8, 512}, RoutingShape{65, 3, 128},
        RoutingShape{128, 8, 8}, RoutingShape{129, 8, 511}, RoutingShape{777, 7, 33}, RoutingShape{4099, 6, 384},
        RoutingShape{8192, 6, 384}, RoutingShape{8192, 8, 512}, RoutingShape{8192, 8, 1}}) {
    // Of all experts; of every 7th, so that most are empty; all of one.
    for (const int64_t step : {int64_t{1}, int64_t{7}, shape.experts}) {
      SCOPED_TRACE(testing::Message() << "T " << shape.rows << " K " << shape.per_token << " E " << shape.experts
                                      << " step " << step);
      Picks picks;
      Tensor weights(shape.rows, shape.per_token);
      for (int64_t t = 0; t < shape.rows; ++t) {
        for (int k = 0; k < shape.per_token; ++k) {
          picks.push_back(static_cast<int32_t>(random.Below((shape.experts + step - 1) / step) * step));
          weights.row(t)[k] = random.Uniform(0.1f, 1);
        }
      }
      const DevicePicks device_picks(picks, shape.per_token);
      const DeviceFloats device_weights(weights);
      const RoutingMemory memory(shape.rows, shape.per_token, shape.experts);
      cuda::SortByExpert(Stream(), device_picks.view(), device_weights.view(), memory.routing());
      ASSERT_EQ(cudaGetLastError(), cudaSuccess);
      ExpectRouting(memory.routing(), HostRouting(picks, weights, shape.experts));
      memory.ExpectGuard();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

enum class Layer { kSkinny, kBulk, kDirect, kWide };  // kSkinny: by threads; kBulk, kDirect: with those feeds

// Experts of small release-like shapes: D 512, I 768.
class CudaExpertsLayer : public testing::Test {
 protected:
  static constexpr int64_t kWidth = 512, kInner = 768, kExperts = 12;
  static constexpr int kPerToken = 3;

  CudaExpertsLayer() {
    std::vector<cuda::DeviceExpert> table;
    const auto upload = [&](int64_t rows, int64_t columns) -> const WeightMatrix& {
      host_.push_back(RandomWeight(WeightFormat::kF4Row32, rows, columns, random_));
      return device_.emplace_back(host_.back().view()).view;
    };
    for (int64_t e = 0; e < kExperts; ++e) {
      const WeightMatrix w1 = upload(kInner, kWidth), w2 = upload(kWidth, kInner), w3 = upload(kInner, kWidth);
      table.push_back({w1.data, w1.scale, w3.data, w3.scale, w2.data, w2.scale});
    }
    for (size_t i = 0; i < host_.size(); i += 3) experts_.push_back({host_[i], host_[i + 1], host_[i + 2]});
    table_.emplace_back(table);
  }
  bool Has(Layer layer) const {
    return layer != Layer::kWide ? cuda::SkinnyExpertsFit(host_[0], host_[1]) : cuda::WideFits(host_[0], 1);
  }

  /// Rows of the pool with picks and weights that depend on the row alone.
  struct Step {
    Tensor x;
    Picks picks;
    Tensor weights;
  };
  Step Make(const std::vector<int64_t>& rows, bool crowded) const {
    Step step{pool_.Gather(rows), {}, Tensor(std::ssize(rows), kPerToken)};
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t k = 0; k < kPerToken; ++k) {
        step.picks.push_back(static_cast<int32_t>(crowded ? 2 * k : k * 4 + (rows[i] * (k + 1)) % 4));
        step.weights.row(static_cast<int64_t>(i))[k] = 0.25f + 0.125f * static_cast<float>((rows[i] + k) % 7);
      }
    }
    return step;
  }

  /// What a step needs on the device. Enqueue may be called again and again.
  struct DeviceStep {
    explicit DeviceStep(const Step& step)
        : x(step.x), picks(step.picks, kPerToken), weights(step.weights), out(step.x.rows(), kWidth) {}
    DeviceFloats x;
    DevicePicks picks;
    DeviceFloats weights, out;
  };
  struct Scratch {
    explicit Scratch(int64_t rows)
        : routing(static_cast<size_t>(cuda::RoutingBytes(rows, kPerToken, kExperts))),
          layer(static_cast<size_t>(std::max(cuda::SkinnyExpertsScratchBytes(rows, kPerToken, kWidth, kInner),
                                             cuda::WideExpertsScratchBytes(rows, kPerToken, kWidth, kInner)))),
          routing_bytes(std::vector<uint8_t>(routing, 0xff)),
          layer_bytes(std::vector<uint8_t>(layer, 0xff)),
          x(rows, kWidth) {}
    size_t routing, layer;
    DeviceBytes routing_bytes, layer_bytes;
    DeviceRows x;
  };
  void Enqueue(Layer layer, const DeviceStep& step, const Scratch& scratch, int most_rows) const {
    const ConstFloatView x = step.x.view();
    const cuda::DeviceRouting routing =
        cuda::PlaceRouting(scratch.routing_bytes.as<void>(), x.rows, kPerToken, kExperts);
    cuda::SortByExpert(Stream(), step.picks.view(), step.weights.view(), routing);
    cuda::ExpertsPlan plan = cuda::PlanOf(routing, table_[0].as<cuda::DeviceExpert>(), kWidth, kInner, 10);
    if (most_rows > 0) plan.most_rows = most_rows;
    if (layer != Layer::kWide) {
      cuda::UseSkinnyFeed(layer == Layer::kBulk     ? cuda::SkinnyFeed::kBulk
                          : layer == Layer::kDirect ? cuda::SkinnyFeed::kDirect
                                                    : cuda::SkinnyFeed::kThreads);
      cuda::QuantiseRows(Stream(), x, cuda::ColumnOrder::kFp4, scratch.x.From(0));
      void* const memory = scratch.layer_bytes.as<void>();
      cuda::SkinnyExpertsProducts(Stream(), scratch.x.From(0), x.rows, plan, memory);
      cuda::SumSlots(Stream(), cuda::SkinnyExpertsParts(plan, x.rows, memory), nullptr, kPerToken, step.out.view());
      cuda::UseSkinnyFeed(cuda::SkinnyFeed::kAuto);
    } else {
      void* const memory = scratch.layer_bytes.as<void>();
      EXPECT_TRUE(cuda::WideExpertsProducts(Stream(), x, routing, plan, memory));
      cuda::SumSlots(Stream(), cuda::WideExpertsParts(plan, x.rows, memory), routing.places, kPerToken,
                     step.out.view());
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  Tensor Run(Layer layer, const std::vector<int64_t>& rows, bool crowded, int most_rows = 0) const {
    const DeviceStep step(Make(rows, crowded));
    const Scratch scratch(std::ssize(rows));
    Enqueue(layer, step, scratch, most_rows);
    return step.out.Get();
  }
  Tensor Reference(const std::vector<int64_t>& rows, bool crowded) const {
    const Step step = Make(rows, crowded);
    Tensor out(std::ssize(rows), kWidth);
    MakeReferenceOps()->Experts(step.x, TensorView<const int32_t>(step.picks.data(), out.rows(), kPerToken),
                                step.weights, experts_, 10, ActivationFormat::kFp8Groups32, out);
    return out;
  }
  static std::vector<int64_t> Range(int64_t first, int64_t count) {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), first);
    return rows;
  }

  Random random_{33};
  Tensor pool_ = RandomTensor(300, kWidth, random_);
  std::vector<OwnedWeight> host_;  // w1, w2, w3 of each
  std::vector<DeviceWeight> device_;
  std::vector<DeviceBytes> table_;
  std::vector<ExpertWeights> experts_;
};

TEST_F(CudaExpertsLayer, LikeReference) {
  for (const Layer layer : {Layer::kSkinny, Layer::kBulk, Layer::kDirect, Layer::kWide}) {
    if (!Has(layer)) continue;
    for (const bool crowded : {false, true}) {
      for (const int64_t rows : {1, 2, 8, 9, 31, 33, 50, 130}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(layer) << " crowded " << crowded << " rows " << rows);
        // An ulp of a hidden value can be one step of E4M3 (moe_test.cc).
        ASSERT_TRUE(Near(Run(layer, Range(3, rows), crowded), Reference(Range(3, rows), crowded), 2e-2f));
      }
    }
  }
}

// Promise 1: of the rows beside it, and of the kernels that a number of rows takes.
TEST_F(CudaExpertsLayer, RowsAreIndependent) {
  for (const Layer layer : {Layer::kSkinny, Layer::kBulk, Layer::kDirect, Layer::kWide}) {
    if (!Has(layer)) continue;
    for (const bool crowded : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(layer) << " crowded " << crowded);
      const Tensor all = Run(Layer::kSkinny, Range(0, 300), crowded);
      std::vector<int64_t> backwards = Range(100, 77);
      std::reverse(backwards.begin(), backwards.end());
      for (const std::vector<int64_t>& rows : {Range(0, 300), Range(0, 1), Range(299, 1), Range(5, 2), Range(41, 9),
                                               Range(30, 17), Range(7, 33), Range(0, 65), Range(120, 129), backwards}) {
        ASSERT_TRUE(SameBits(Run(layer, rows, crowded).view(), all.Gather(rows).view()))
            << rows.size() << " rows from " << rows[0];
      }
    }
  }
}

TEST_F(CudaExpertsLayer, ExpectedRowsDoNotShowInBits) {
  if (!Has(Layer::kSkinny)) GTEST_SKIP() << "no experts on tensor cores";
  const Tensor once = Run(Layer::kSkinny, Range(0, 70), true, 32);
  for (const int most_rows : {1, 16, 32}) {
    for (const Layer layer : {Layer::kSkinny, Layer::kBulk, Layer::kDirect}) {
      ASSERT_TRUE(SameBits(Run(layer, Range(0, 70), true, most_rows).view(), once.view()));
    }
  }
}

// Steps that follow each other at once in the same memory: no kernel may see the routing of the step before.
TEST_F(CudaExpertsLayer, StepsInARow) {
  for (const Layer layer : {Layer::kSkinny, Layer::kBulk, Layer::kDirect, Layer::kWide}) {
    if (!Has(layer)) continue;
    const Scratch scratch(64);
    std::vector<DeviceStep> steps;
    std::vector<Tensor> expected;
    steps.reserve(6);
    for (const int64_t count : {1, 64, 1, 5, 33, 2}) {
      const std::vector<int64_t> rows = Range(17 * std::ssize(steps), count);
      steps.emplace_back(Make(rows, false));
      expected.push_back(Run(layer, rows, false));
    }
    for (int round = 0; round < 20; ++round) {
      for (const DeviceStep& step : steps) Enqueue(layer, step, scratch, 0);
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_TRUE(SameBits(steps[i].out.Get().view(), expected[i].view())) << i;
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
