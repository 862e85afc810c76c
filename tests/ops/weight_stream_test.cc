// Weights on their way to a device, with a carrier that stands for one: what is cut how, that every byte arrives, that
// no buffer is written while it is under way, that errors end the run. And what a list of weights takes.
#include "ops/weight_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>

namespace deepinfer {
namespace {

constexpr int64_t kBuffer = 1024;

/// Copies as late as it may: in Wait(), so that bytes are wrong when a buffer was written again before.
class LateCarrier final : public WeightCarrier {
 public:
  explicit LateCarrier(std::array<uint8_t*, WeightStream::kBuffers> buffers) : buffers_(buffers) {}

  Status Send(int buffer, std::span<const WeightPiece> pieces) override {
    const auto at = static_cast<size_t>(buffer);
    EXPECT_TRUE(under_way_[at].empty()) << "sent twice without a wait";
    if (++sent_ == fail_at_) return Status::Internal("the bus is gone");
    for (const WeightPiece& piece : pieces) {
      if (piece.load.to_host) {
        EXPECT_EQ(std::memcmp(piece.load.to, piece.load.from, static_cast<size_t>(piece.load.bytes)), 0);
        in_host_memory_ += piece.load.bytes;
      } else {
        under_way_[at].push_back(piece);
      }
    }
    order_.push_back(buffer);
    return Status::Ok();
  }
  Status Wait(int buffer) override {
    const auto at = static_cast<size_t>(buffer);
    for (const WeightPiece& piece : under_way_[at]) {
      std::memcpy(piece.load.to, buffers_[at] + piece.offset, static_cast<size_t>(piece.load.bytes));
    }
    under_way_[at].clear();
    return Status::Ok();
  }

  int sent_ = 0;
  int fail_at_ = 0;
  int64_t in_host_memory_ = 0;  // bytes of pieces
  std::vector<int> order_;

 private:
  std::array<uint8_t*, WeightStream::kBuffers> buffers_;
  std::array<std::vector<WeightPiece>, WeightStream::kBuffers> under_way_;
};

/// A file of counted bytes, places for loads of it, and a stream between them.
struct Scene {
  explicit Scene(const std::vector<int64_t>& sizes) {
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    file.resize(static_cast<size_t>(total));
    for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<uint8_t>(i * 37 + i / 251);
    places.resize(file.size(), 0);
    int64_t at = 0;
    for (const int64_t size : sizes) {
      loads.push_back({file.data() + at, places.data() + at, size, false});
      at += size;
    }
  }

  std::vector<uint8_t> memory = std::vector<uint8_t>(2 * kBuffer);
  std::array<uint8_t*, WeightStream::kBuffers> buffers{memory.data(), memory.data() + kBuffer};
  std::vector<uint8_t> file, places;
  std::vector<WeightLoad> loads;
  LateCarrier carrier{buffers};
};

TEST(WeightStream, CutsWhereABufferIsFull) {
  const Scene scene({100, 1, 2000, 1024});
  const std::vector<WeightBatch> batches = CutIntoBatches(scene.loads, kBuffer);
  ASSERT_EQ(batches.size(), 4);
  // 100 bytes take 128, one byte takes 64, so 832 of the third load follow.
  ASSERT_EQ(batches[0].size(), 3);
  EXPECT_EQ(batches[0][1].offset, 128);
  EXPECT_EQ(batches[0][2].offset, 192);
  EXPECT_EQ(batches[0][2].load.bytes, 832);
  ASSERT_EQ(batches[1].size(), 1);
  EXPECT_EQ(batches[1][0].load.bytes, 1024);
  EXPECT_EQ(batches[1][0].load.from, scene.loads[2].from + 832);
  EXPECT_EQ(batches[1][0].load.to, scene.loads[2].to + 832);
  ASSERT_EQ(batches[2].size(), 2);
  EXPECT_EQ(batches[2][0].load.bytes, 144);
  EXPECT_EQ(batches[2][1].offset, 192);
  EXPECT_EQ(batches[3][0].load.bytes, 192);
  EXPECT_TRUE(CutIntoBatches({}, kBuffer).empty());
}

// Codes of one word stay together, whatever the buffer's size.
TEST(WeightStream, CutsAtMultiplesOf64BytesOfALoad) {
  Scene scene({100, 2000, 64});
  scene.loads[1].kind = WeightBytes::kFp4Codes;
  const std::vector<WeightBatch> batches = CutIntoBatches(scene.loads, 1003);
  ASSERT_EQ(batches.size(), 3);
  for (const WeightBatch& batch : batches) {
    for (const WeightPiece& piece : batch) {
      EXPECT_EQ(piece.offset % 64, 0);
      EXPECT_LE(piece.offset + piece.load.bytes, 960);
      if (piece.load.kind != WeightBytes::kFp4Codes) continue;
      EXPECT_EQ((piece.load.from - scene.loads[1].from) % 64, 0);
    }
  }
  ASSERT_EQ(batches[0].size(), 2);
  EXPECT_EQ(batches[0][1].load.bytes, 960 - 128);
  EXPECT_EQ(batches[0][1].load.kind, WeightBytes::kFp4Codes);
  EXPECT_EQ(batches[0][0].load.kind, WeightBytes::kPlain);
}

TEST(WeightStream, EveryByteArrivesWhateverTheSizesAndThreads) {
  for (const int threads : {1, 3}) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {}, {1}, {1024}, {1025}, {5000, 3, 64, 1, 7000, 12}, std::vector<int64_t>(300, 33)}) {
      Scene scene(sizes);
      std::vector<int64_t> progress;
      WeightStream stream(scene.buffers, kBuffer, threads);
      const auto tell = [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, std::ssize(scene.file));
        progress.push_back(done);
      };
      ASSERT_TRUE(stream.Run(scene.loads, scene.carrier, tell).ok());
      EXPECT_TRUE(scene.places == scene.file) << sizes.size() << " loads, " << threads << " threads";
      EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
      EXPECT_EQ(progress.empty() ? 0 : progress.back(), std::ssize(scene.file));
      for (size_t i = 0; i < scene.carrier.order_.size(); ++i) {
        EXPECT_EQ(scene.carrier.order_[i], static_cast<int>(i % 2));
      }
    }
  }
}

// The carrier does not copy it, but may change it in place.
TEST(WeightStream, WhatStaysInHostMemoryIsThereWhenItsBufferIsSent) {
  Scene scene({600, 3000, 10});
  scene.loads[1].to_host = true;
  WeightStream stream(scene.buffers, kBuffer, 2);
  ASSERT_TRUE(stream.Run(scene.loads, scene.carrier, {}).ok());
  EXPECT_TRUE(scene.places == scene.file);
  EXPECT_EQ(scene.carrier.in_host_memory_, 3000);
}

TEST(WeightStream, AnErrorOfTheCarrierEndsTheRun) {
  for (const int at : {1, 2, 5}) {
    Scene scene({20'000});
    scene.carrier.fail_at_ = at;
    int64_t told = 0;
    WeightStream stream(scene.buffers, kBuffer, 2);
    const Status status = stream.Run(scene.loads, scene.carrier, [&](int64_t, int64_t) { ++told; });
    EXPECT_EQ(status.message(), "the bus is gone");
    EXPECT_EQ(scene.carrier.sent_, at);
    EXPECT_EQ(told, at - 1);
  }
}

TEST(WeightList, TotalsCountAlignmentAndTheLargestLayerThatPasses) {
  const uint8_t bytes[1] = {};
  const WeightList list = {{bytes, 1, true, -1},    {bytes, 257, true, 0}, {bytes, 300, false, 1},
                           {bytes, 1000, false, 2}, {bytes, 10, false, 1}, {bytes, 24, false, 2}};
  const WeightTotals totals = TotalsOf(list);
  EXPECT_EQ(totals.resident, 256 + 512);
  EXPECT_EQ(totals.passing, 512 + 1024 + 256 + 256);
  EXPECT_EQ(totals.window, 1024 + 256);
  EXPECT_EQ(totals.on_device(), 768 + 1280);
  EXPECT_EQ(TotalsOf({}).on_device(), 0);
}

}  // namespace
}  // namespace deepinfer
