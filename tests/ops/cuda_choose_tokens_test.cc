// TokenChooser and the kernels for rows on device memory, against the reference. SamplingTest covers every rule on
// small vocabularies; here are the released one and rows whose nucleus takes many bands.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "ops/cuda/choose_tokens.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/kernels.h"
#include "ops_test_util.h"
#include "sampling_test_util.h"

namespace deepinfer::test {
namespace {

class CudaSampling : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(commands_.Create().ok()); }
  cuda::Staging Begin() { return cuda::Staging(commands_, arena_, nullptr, prepared_, ranges_); }

  Random random_{1};
  std::unique_ptr<Ops> reference_ = MakeReferenceOps();

 private:
  cuda::CommandList commands_{nullptr};
  cuda::DeviceArena arena_;
  cuda::PreparedRows prepared_;
  cuda::DeviceRanges ranges_;
};

TEST_F(CudaSampling, ChoosesLikeReferenceOnLargeVocabularies) {
  cuda::TokenChooser chooser;
  for (const int64_t vocabulary : {129280, 131072, 4097}) {
    std::vector<uint32_t> allowed(static_cast<size_t>(vocabulary + 31) / 32);
    for (uint32_t& word : allowed) word = static_cast<uint32_t>(random_.Below(int64_t{1} << 32));
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
          const float z = shape == 3 ? 2 : random_.Normal() * (shape == 0 ? 4 : 0.5f);  // steep, flat, tied, one value
          logits.row(t)[id] = shape == 2 ? std::round(z * 8) / 8 : z;
        }
      }
      const Choices expected = Choose(*reference_, logits, rules);
      Choices actual = expected;
      for (size_t t = 0; t < rules.size(); ++t) {
        for (TokenLogprob& each : actual.top[t]) each = {};
        actual.choices[t] = {.id = -2, .top = actual.top[t]};
      }
      cuda::Staging staging = Begin();
      ASSERT_TRUE(chooser.Choose(staging, staging.In(logits), rules, actual.choices).ok());
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

TEST_F(CudaSampling, KeepsRowsInPlace) {
  for (const int64_t columns : {1, 33, 260}) {
    for (const int64_t count : {1, 7, 8, 9, 40}) {
      Tensor x = RandomTensor(97, columns, random_);
      std::vector<int32_t> rows;
      for (int32_t row = static_cast<int32_t>(count % 2); std::ssize(rows) < count; row += 1 + row % 3) {
        rows.push_back(row);
      }
      Tensor expected = x;
      reference_->KeepRows(rows, expected);
      cuda::Staging staging = Begin();
      staging.Launch(&cuda::KeepRows, staging.Array(std::span<const int32_t>(rows)), count, staging.InOut(x));
      ASSERT_TRUE(staging.Finish().ok());
      ASSERT_TRUE(SameBits(x, expected)) << columns << " " << count;
    }
  }
}

TEST_F(CudaSampling, CopiesRowsAtAnyAddress) {
  for (const RowBytes bytes : {RowBytes{512, 16}, RowBytes{64, 4}, RowBytes{48, 6}, RowBytes{96, 3}}) {
    constexpr int64_t kRows = 40;
    std::vector<uint8_t> from(static_cast<size_t>(kRows * bytes.total())), to(from.size());
    for (uint8_t& each : from) each = random_.Byte();
    cuda::Staging staging = Begin();
    uint8_t* device_from = staging.InOutArray(from.data(), std::ssize(from));
    uint8_t* device_to = staging.InOutArray(to.data(), std::ssize(to));
    std::vector<cuda::RowPlace> sources, targets;
    std::vector<uint8_t> expected = to;
    for (int64_t i = 0; i < kRows; i += 1 + i % 2) {
      const int64_t source = i * 7 % kRows;
      sources.push_back(
          {device_from + source * bytes.values, device_from + kRows * bytes.values + source * bytes.scales});
      targets.push_back({device_to + i * bytes.values, device_to + kRows * bytes.values + i * bytes.scales});
      std::copy_n(from.begin() + source * bytes.values, bytes.values, expected.begin() + i * bytes.values);
      std::copy_n(from.begin() + kRows * bytes.values + source * bytes.scales, bytes.scales,
                  expected.begin() + kRows * bytes.values + i * bytes.scales);
    }
    staging.Launch(&cuda::CopyRows, staging.Array(std::span<const cuda::RowPlace>(sources)),
                   staging.Array(std::span<const cuda::RowPlace>(targets)), std::ssize(sources), bytes);
    ASSERT_TRUE(staging.Finish().ok());
    ASSERT_EQ(to, expected) << bytes.values;
  }
}

TEST_F(CudaSampling, PoolsPairsLikeReference) {
  for (const int64_t width : {1, 75, 512}) {
    const Tensor raw = RandomTensor(22, 2 * width, random_);
    cuda::Staging staging = Begin();
    const ConstFloatView device = staging.In(raw);
    std::array<std::vector<const float*>, 2> host_rows, device_rows;
    for (const int64_t pair : {3, 0, 10, 7}) {
      for (size_t i = 0; i < 2; ++i) {
        host_rows[i].push_back(raw.row(2 * pair + static_cast<int64_t>(i)));
        device_rows[i].push_back(device.row(2 * pair + static_cast<int64_t>(i)));
      }
    }
    Tensor expected(4, width), actual(4, width);
    reference_->PoolPairs(host_rows[0], host_rows[1], expected);
    staging.Launch(&cuda::PoolPairs, staging.Array(std::span<const float* const>(device_rows[0])),
                   staging.Array(std::span<const float* const>(device_rows[1])), staging.Out(actual));
    ASSERT_TRUE(staging.Finish().ok());
    ASSERT_TRUE(Near(actual, expected, 2e-6f));
  }
}

}  // namespace
}  // namespace deepinfer::test
