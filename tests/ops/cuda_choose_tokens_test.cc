// TokenChooser and the row copies on device memory, against the reference. SamplingTest covers every rule on small
// vocabularies; here are the released one and rows whose nucleus takes many bands.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "ops/cuda/choose_tokens.h"
#include "ops/cuda/kernels.h"
#include "ops_test_util.h"
#include "sampling_test_util.h"

namespace deepinfer::test {
namespace {

/// The elements from the first row to the end of the last.
std::vector<float> Elements(ConstFloatView x) { return {x.data, x.data + (x.rows - 1) * x.stride + x.columns}; }

TEST(CudaChooseTokens, LikeReferenceOnLargeVocabularies) {
  Random random(1);
  const auto reference = MakeReferenceOps();
  cuda::DeviceArena arena;
  cuda::TokenChooser chooser;
  for (const int64_t vocabulary : {129280, 131072, 4097}) {
    std::vector<uint32_t> allowed(static_cast<size_t>(vocabulary + 31) / 32);
    for (uint32_t& word : allowed) word = static_cast<uint32_t>(random.Below(int64_t{1} << 32));
    std::vector<SeenToken> seen;
    for (int32_t id = 3; id < vocabulary; id += 37) seen.push_back({id, id % 3, id % 2 == 0});
    std::vector<LogitBias> bias;  // ids repeat
    for (int32_t i = 0; i < 300; ++i) bias.push_back({i * 7 % 200, static_cast<float>(i % 11) - 5});
    const std::vector<int32_t> barred = {0, 1, static_cast<int32_t>(vocabulary) - 1};

    std::vector<TokenRule> rules;
    for (const double temperature : {0.0, 1.0, 0.3}) {
      const auto add = [&](int64_t top_k, double top_p, double min_p, int32_t top_logprobs) -> TokenRule& {
        TokenRule& rule = rules.emplace_back(At(temperature, 77, std::ssize(rules) + (int64_t{1} << 33)));
        rule.top_k = top_k;
        rule.top_p = top_p;
        rule.min_p = min_p;
        rule.top_logprobs = top_logprobs;
        return rule;
      };
      add(0, 1, 0, -1);
      add(0, 0.95, 0, 20);
      add(0, 0.999999, 0, 0);
      add(50, 1, 0, -1);
      add(4000, 0.5, 0, -1);
      add(0, 1, 0.05, 3);
      add(0, 0.5, 0, 1000).known_id = 5;
      TokenRule& changed = add(100, 0.9, 1e-4, 20);
      changed.allowed = allowed.data();
      changed.seen = seen;
      changed.bias = bias;
      changed.barred = barred;
      changed.repetition_penalty = 1.3;
      changed.frequency_penalty = 0.25;
      changed.presence_penalty = -0.5;
    }
    Tensor logits(std::ssize(rules), vocabulary);
    for (int shape = 0; shape < 4; ++shape) {
      SCOPED_TRACE(testing::Message() << "V " << vocabulary << " shape " << shape);
      for (int64_t t = 0; t < logits.rows(); ++t) {
        for (int64_t id = 0; id < vocabulary; ++id) {
          const float z = shape == 3 ? 2 : random.Normal() * (shape == 0 ? 4 : 0.5f);  // steep, flat, tied, one value
          logits.row(t)[id] = shape == 2 ? std::round(z * 8) / 8 : z;
        }
      }
      const Choices expected = Choose(*reference, logits, rules);
      Choices actual = expected;
      for (size_t t = 0; t < rules.size(); ++t) {
        for (TokenLogprob& each : actual.top[t]) each = {};
        actual.choices[t] = {.id = -2, .top = actual.top[t]};
      }
      const std::vector<float> elements = Elements(logits);
      cuda::Staging staging(nullptr, arena, nullptr);
      const ConstFloatView device(staging.Array(std::span<const float>(elements)), logits.rows(), vocabulary,
                                  logits.view().stride);
      ASSERT_TRUE(chooser.Choose(staging, device, rules, actual.choices).ok());
      for (size_t t = 0; t < rules.size(); ++t) {
        const TokenChoice &a = actual.choices[t], &e = expected.choices[t];
        ASSERT_EQ(a.id, e.id) << t;
        ASSERT_EQ(std::bit_cast<uint64_t>(a.logprob), std::bit_cast<uint64_t>(e.logprob)) << t;
        ASSERT_EQ(a.top_count, e.top_count) << t;
        for (size_t i = 0; i < static_cast<size_t>(a.top_count); ++i) {
          ASSERT_EQ(actual.top[t][i].id, expected.top[t][i].id) << t << " " << i;
          ASSERT_EQ(std::bit_cast<uint64_t>(actual.top[t][i].logprob),
                    std::bit_cast<uint64_t>(expected.top[t][i].logprob));
        }
      }
    }
  }
}

TEST(CudaRowCopies, KeepRowsInPlace) {
  Random random(2);
  cuda::DeviceArena arena;
  for (const int64_t columns : {1, 33, 64, 260}) {
    for (const int64_t stride : {columns, columns + 4}) {
      for (const int64_t count : {1, 7, 8, 9, 40}) {
        std::vector<float> x(static_cast<size_t>(97 * stride));
        for (float& each : x) each = random.Normal();
        std::vector<int32_t> rows;
        for (int32_t row = static_cast<int32_t>(count % 2); std::ssize(rows) < count; row += 1 + row % 3) {
          rows.push_back(row);
        }
        std::vector<float> expected = x;
        MakeReferenceOps()->KeepRows(rows, {expected.data(), 97, columns, stride});
        cuda::Staging staging(nullptr, arena, nullptr);
        float* device = staging.Array(std::span<const float>(x));
        cuda::KeepRows(nullptr, staging.Array(std::span<const int32_t>(rows)), count, {device, 97, columns, stride});
        staging.CopyBack(x.data(), device, std::ssize(x) * 4);
        ASSERT_TRUE(staging.Finish().ok());
        ASSERT_EQ(x, expected) << columns << " " << stride << " " << count;
      }
    }
  }
}

TEST(CudaRowCopies, CopyRowsOfManySequences) {
  Random random(3);
  cuda::DeviceArena arena;
  for (const RowFormat format : {RowFormat::kWindowFp8, RowFormat::kCompressedFp4, RowFormat::kIndexFp4}) {
    for (const int32_t channels : {32, 96, 512}) {
      std::vector<OwnedRows> from, to, expected;
      std::vector<std::vector<int64_t>> sources, destinations;
      for (int job = 0; job < 5; ++job) {
        from.emplace_back(format, channels, 13, 4);
        for (uint8_t* page : std::span(from.back().view().pages, 4)) {
          for (int64_t i = 0; i < 4 * PackedRowBytes(format, channels).total(); ++i) page[i] = random.Byte();
        }
        to.emplace_back(format, channels, 40, 3 + job);
        expected.emplace_back(format, channels, 40, 3 + job);
        sources.emplace_back();
        destinations.emplace_back();
        for (int i = 0; i < 8 * job - job % 3; ++i) {
          sources.back().push_back(random.Below(13));
          destinations.back().push_back((i * 7 + job) % 40);
        }
        MakeReferenceOps()->CopyRows(from.back(), sources.back(), expected.back(), destinations.back());
      }
      cuda::Staging staging(nullptr, arena, nullptr);
      std::vector<std::vector<uint8_t*>> lists;  // until Finish()
      const auto upload = [&](const OwnedRows& rows, bool back) {
        std::vector<uint8_t*>& list = lists.emplace_back();
        for (const std::vector<uint8_t>& page : rows.pages()) {
          list.push_back(staging.Array(std::span<const uint8_t>(page)));
          if (back) staging.CopyBack(const_cast<uint8_t*>(page.data()), list.back(), std::ssize(page));
        }
        PackedRows device = rows;
        device.pages = staging.Array(std::span<uint8_t* const>(list));
        return device;
      };
      std::vector<cuda::RowCopies> jobs;
      for (size_t job = 0; job < from.size(); ++job) {
        jobs.push_back({upload(from[job], false), upload(to[job], true),
                        staging.Array(std::span<const int64_t>(sources[job])),
                        staging.Array(std::span<const int64_t>(destinations[job])), std::ssize(sources[job])});
      }
      cuda::CopyRows(nullptr, staging.Array(std::span<const cuda::RowCopies>(jobs)), std::ssize(jobs), 40);
      ASSERT_TRUE(staging.Finish().ok());
      for (size_t job = 0; job < from.size(); ++job) ASSERT_EQ(to[job].pages(), expected[job].pages()) << job;
    }
  }
}

TEST(CudaRowCopies, PoolPairsLikeReference) {
  Random random(4);
  cuda::DeviceArena arena;
  for (const int64_t width : {1, 75, 512}) {
    const Tensor raw = RandomTensor(22, 2 * width, random);
    const std::vector<float> elements = Elements(raw);
    cuda::Staging staging(nullptr, arena, nullptr);
    const float* device = staging.Array(std::span<const float>(elements));
    std::array<std::vector<const float*>, 2> host_rows, device_rows;
    for (const int64_t pair : {3, 0, 10, 7}) {
      for (int64_t i = 0; i < 2; ++i) {
        host_rows[static_cast<size_t>(i)].push_back(raw.row(2 * pair + i));
        device_rows[static_cast<size_t>(i)].push_back(device + (2 * pair + i) * raw.view().stride);
      }
    }
    Tensor expected(4, width), actual(4, width);
    MakeReferenceOps()->PoolPairs(host_rows[0], host_rows[1], expected);
    std::vector<float> out(static_cast<size_t>(4 * width));
    cuda::PoolPairs(nullptr, staging.Array(std::span<const float* const>(device_rows[0])),
                    staging.Array(std::span<const float* const>(device_rows[1])),
                    {staging.OutArray(out.data(), std::ssize(out)), 4, width});
    ASSERT_TRUE(staging.Finish().ok());
    for (int64_t i = 0; i < std::ssize(out); ++i) actual.row(i / width)[i % width] = out[static_cast<size_t>(i)];
    ASSERT_TRUE(Near(actual, expected, 2e-6f));
  }
}

}  // namespace
}  // namespace deepinfer::test
