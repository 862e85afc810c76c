// Index scores on the tensor cores have the canonical bits, and selection by several blocks is that of the reference.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

/// Index keys of one sequence: normal ones, and some with a group of zeros or groups of far apart sizes.
OwnedRows RandomKeys(int64_t count, int64_t width, Random& random) {
  Tensor keys(count, width);
  std::vector<int64_t> destination;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t kind = random.Below(50);
    for (int64_t c = 0; c < width; ++c) {
      const float size = kind == 0 && c / 32 == 1 ? 0.0f : kind == 1 && c < 32 ? 3e5f : kind == 2 ? 1e-20f : 1.0f;
      keys.row(j)[c] = random.Normal() * size;
    }
    destination.push_back(j);
  }
  OwnedRows rows(RowFormat::kIndexFp4, static_cast<int32_t>(width), count, 64);
  MakeReferenceOps()->StoreRows(keys, rows, destination);
  return rows;
}

/// One sequence's rows first .. first + rows - 1 and everything that a run needs, on both sides.
struct Scene {
  Scene(int heads, int width, int64_t first, int32_t rows, bool ties, uint64_t seed)
      : random(seed), keys(RandomKeys(first + rows, width, random)), q(rows, heads * width), weights(rows, heads) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < q.columns(); ++c) q.row(t)[c] = random.Normal();
      for (int h = 0; h < heads; ++h) {
        weights.row(t)[h] = ties ? static_cast<float>(random.Below(3) - 1) / 2 : random.Normal();
      }
    }
    // The last row's queries are far apart themselves.
    for (int64_t c = 0; c < 32; ++c) q.row(rows - 1)[c] *= 1e6f;
    sequence.row_count = rows;
    sequence.first_position = first;
    sequence.keys = keys;
    settings.heads = heads;
    settings.head_width = width;
    visible = first + rows;
    device_q = {Upload(q), rows, q.columns()};
    device_weights = {Upload(weights), rows, weights.columns()};
    const cuda::DeviceIndexSequence device{0, rows, first, pool.Rows(keys, visible)};
    sequences = pool.Copy(&device, 1);
    owner = pool.Copy(std::vector<int32_t>(static_cast<size_t>(rows), 0));
  }
  float* Upload(const Tensor& x) {
    std::vector<float> dense;
    for (int64_t t = 0; t < x.rows(); ++t) dense.insert(dense.end(), x.row(t), x.row(t) + x.columns());
    return pool.Copy(dense);
  }
  cuda::IndexArguments Arguments() const {
    return {settings.heads,
            settings.head_width,
            settings.ratio,
            settings.topk,
            settings.block_size,
            settings.topk_blocks,
            settings.publish_candidates,
            settings.restrict_to_candidates};
  }
  cuda::DeviceLists Lists(const std::vector<int32_t>& rows, const std::vector<int32_t>& counts, int64_t stride) {
    return {pool.Copy(rows), stride, pool.Copy(counts)};
  }

  Random random;
  OwnedRows keys;
  Tensor q, weights;
  IndexSequence sequence;
  IndexSettings settings;
  int64_t visible;
  DevicePool pool;
  ConstFloatView device_q, device_weights;
  cuda::DeviceIndexSequence* sequences;
  int32_t* owner;
};

template <typename T>
std::vector<T> Download(const T* from, size_t count) {
  std::vector<T> values(count);
  Check(cudaDeviceSynchronize());
  Check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

TEST(CudaIndex, ScoresHaveTheCanonicalBits) {
  for (const int heads : {16, 32}) {
    for (const int64_t first : {0, 60, 1234}) {
      constexpr int32_t kRows = 6;
      Scene scene(heads, 128, first, kRows, false, static_cast<uint64_t>(first) + 1);
      scene.settings.topk = 4;
      const cuda::IndexArguments arguments = scene.Arguments();
      ASSERT_TRUE(cuda::IndexScoresFit(arguments));
      const auto size = static_cast<size_t>(kRows * scene.visible);
      const std::vector<float> nothing(size, -77.125f);
      float* const expected = scene.pool.Copy(nothing);
      float* const actual = scene.pool.Copy(nothing);
      const cuda::DeviceLists selected =
          scene.Lists(std::vector<int32_t>(kRows * 4, -1), std::vector<int32_t>(kRows, -1), 4);
      cuda::SelectRows(nullptr, scene.device_q, scene.device_weights, scene.sequences, scene.owner, 0, kRows, arguments,
                       {}, selected, expected, scene.visible, nullptr);
      cuda::IndexScores(nullptr, scene.device_q, scene.device_weights, scene.sequences, scene.owner, 0, kRows,
                        arguments, {}, actual, scene.visible);
      Check(cudaGetLastError());
      const std::vector<float> a = Download(actual, size), e = Download(expected, size);
      for (size_t i = 0; i < size; ++i) {
        ASSERT_EQ(std::memcmp(&a[i], &e[i], 4), 0)
            << heads << " heads, first " << first << " row " << i / static_cast<size_t>(scene.visible) << " key "
            << i % static_cast<size_t>(scene.visible) << ": " << a[i] << " and " << e[i];
      }
    }
  }
}

struct Selection {
  std::vector<int32_t> rows, counts, blocks, block_counts;
};

Selection RunParts(Scene& scene, const Selection& before) {
  const cuda::IndexArguments arguments = scene.Arguments();
  EXPECT_TRUE(cuda::SelectInPartsFits(arguments));
  const cuda::DeviceLists selected = scene.Lists(before.rows, before.counts, scene.settings.topk);
  const cuda::DeviceLists candidates = scene.Lists(before.blocks, before.block_counts, scene.settings.topk_blocks);
  const auto bytes = static_cast<size_t>(cuda::SelectInPartsScratchBytes(scene.q.rows(), arguments, scene.visible));
  uint8_t* const scratch = scene.pool.Copy(std::vector<uint8_t>(bytes, 0xff));
  cuda::SelectInParts(nullptr, scene.device_q, scene.device_weights, scene.sequences, scene.owner, arguments,
                      candidates, selected, scene.visible, scratch);
  Check(cudaGetLastError());
  return {Download(selected.rows, before.rows.size()), Download(selected.counts, before.counts.size()),
          Download(candidates.rows, before.blocks.size()), Download(candidates.counts, before.block_counts.size())};
}

Selection RunReference(Scene& scene, Selection lists) {
  const int64_t rows = scene.q.rows();
  MakeReferenceOps()->SelectRows(
      scene.q, scene.weights, std::span(&scene.sequence, 1), scene.settings,
      {TensorView<int32_t>(lists.blocks.data(), rows, scene.settings.topk_blocks), lists.block_counts.data()},
      {TensorView<int32_t>(lists.rows.data(), rows, scene.settings.topk), lists.counts.data()});
  return lists;
}

// One part, a whole one, one row more, several; with many ties; more rows than one launch takes.
TEST(CudaIndex, SelectsLikeTheReference) {
  struct Case {
    int heads, width;
    int64_t first;
    int32_t rows;
    int32_t topk, topk_blocks;
    bool ties;
  };
  for (const Case& c : {Case{16, 128, 0, 3, 512, 2048, true}, Case{16, 128, 700, 70, 5, 20, false},
                        Case{16, 128, 8190, 4, 512, 100, true}, Case{32, 128, 20000, 2, 512, 2048, false},
                        Case{3, 64, 17000, 2, 40, 1100, true}}) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads, first " << c.first);
    Scene scene(c.heads, c.width, c.first, c.rows, c.ties, static_cast<uint64_t>(c.first) + 7);
    scene.settings.topk = c.topk;
    scene.settings.block_size = 8;
    scene.settings.topk_blocks = c.topk_blocks;
    const auto rows = static_cast<size_t>(c.rows);
    const Selection nothing{
        std::vector<int32_t>(rows * static_cast<size_t>(c.topk), -1), std::vector<int32_t>(rows, -1),
        std::vector<int32_t>(rows * static_cast<size_t>(c.topk_blocks), -1), std::vector<int32_t>(rows, -1)};
    scene.settings.publish_candidates = true;
    const Selection published = RunReference(scene, nothing);
    const Selection actual = RunParts(scene, nothing);
    ASSERT_EQ(actual.counts, published.counts);
    ASSERT_EQ(actual.rows, published.rows);
    ASSERT_EQ(actual.block_counts, published.block_counts);
    ASSERT_EQ(actual.blocks, published.blocks);

    scene.settings.publish_candidates = false;
    scene.settings.restrict_to_candidates = true;
    Selection restricted = nothing;
    restricted.blocks = published.blocks;
    restricted.block_counts = published.block_counts;
    const Selection expected = RunReference(scene, restricted), again = RunParts(scene, restricted);
    ASSERT_EQ(again.counts, expected.counts);
    ASSERT_EQ(again.rows, expected.rows);

    scene.settings.restrict_to_candidates = false;
    scene.settings.ratio = 2;
    const Selection half = RunReference(scene, nothing), half_parts = RunParts(scene, nothing);
    ASSERT_EQ(half_parts.counts, half.counts);
    ASSERT_EQ(half_parts.rows, half.rows);
  }
}

}  // namespace
}  // namespace deepinfer::test
