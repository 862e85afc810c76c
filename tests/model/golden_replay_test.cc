// Bounded replay and prefix hits against recorded outputs of the PyTorch reference (spec c.12): the last row of the
// prompt, and the choices of the greedy continuation where they are clear.
//
// DEEPINFER_SHARED=FOLDER also runs every prompt of FOLDER/golden that has such outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/aligned_buffer.h"
#include "golden_check.h"
#include "golden_file.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

/// A sequence on memory of its own, so that two can share blocks.
class LentSequence {
 public:
  LentSequence(LoadedModel& model, int64_t tokens, const AlignedBuffer<uint8_t>& blocks)
      : layout_(model.model().layout()) {
    EXPECT_TRUE(piece_.Allocate(layout_->PieceBytes()));
    Result<std::unique_ptr<SequenceState>> state =
        SequenceState::CreateLent(layout_, tokens, piece_.data(), model.ops());
    EXPECT_TRUE(state.ok()) << state.status().message();
    state_ = std::move(*state);
    for (int64_t i = 0; (i + 1) * layout_->BlockBytes() <= blocks.size(); ++i) {
      state_->AttachBlock(blocks.data() + i * layout_->BlockBytes());
    }
  }
  SequenceState& state() { return *state_; }

 private:
  std::shared_ptr<const SequenceLayout> layout_;
  AlignedBuffer<uint8_t> piece_;
  std::unique_ptr<SequenceState> state_;
};

double Distance(std::span<const float> a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

/// KL(softmax(a), softmax(b)) in nats.
double Divergence(const std::vector<float>& a, const std::vector<float>& b) {
  const auto log_total = [](const std::vector<float>& row) {
    const double largest = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const float value : row) total += std::exp(value - largest);
    return std::log(total) + largest;
  };
  const double total_a = log_total(a);
  const double total_b = log_total(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_a = a[i] - total_a;
    sum += std::exp(log_a) * (log_a - (b[i] - total_b));
  }
  return sum;
}

int64_t Best(const std::vector<float>& row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

class ReplayCheck {
 public:
  ReplayCheck(LoadedModel& model, const GoldenFile& golden, const GoldenLimits& limits)
      : model_(model), golden_(golden), limits_(limits), ids_(golden.ints("ids")) {}

  void Run(int64_t hit_block) {
    const auto length = std::ssize(ids_);
    const int64_t window = model_.config().sliding_window;
    {
      AlignedBuffer<uint8_t> blocks = Blocks();
      LentSequence sequence(model_, Tokens(), blocks);
      exact_ = Continue(sequence.state(), ids_);
    }
    for (const auto& [name, rows] : {std::pair<std::string, int64_t>{"bounded140", 140}, {"boundedW", window}}) {
      if (!golden_.has(name + "_logits")) continue;
      AlignedBuffer<uint8_t> blocks = Blocks();
      LentSequence sequence(model_, Tokens(), blocks);
      sequence.state().Resume({}, 0, 0, length - rows);
      Compare(name, sequence.state(), ids_);
    }
    const int64_t hit = (length - 1) / hit_block * hit_block;
    for (const auto& [name, decoder_rows] :
         {std::pair<std::string, int64_t>{"hit", length}, {"hit_boundedW", window}}) {
      if (!golden_.has(name + "_logits")) continue;
      AlignedBuffer<uint8_t> blocks = Blocks();
      LentSequence before(model_, Tokens(), blocks);
      Feed(before.state(), std::span(ids_).first(static_cast<size_t>(hit)), LogitsRows::kNone);
      const std::vector<uint8_t> cached(blocks.data(), blocks.data() + hit / 64 * Layout().BlockBytes());

      LentSequence after(model_, Tokens(), blocks);
      const auto start = static_cast<size_t>((hit - window) / 2 * 2);
      after.state().Resume(std::span(ids_).first(start), hit, static_cast<int64_t>(start),
                           std::max(static_cast<int64_t>(start), length - decoder_rows));
      Compare(name, after.state(), std::span(ids_).subspan(start));
      EXPECT_TRUE(std::equal(cached.begin(), cached.end(), blocks.data()))
          << name << ": cached rows were written again";
    }
  }

 private:
  SequenceLayout Layout() const { return *model_->layout(); }
  int64_t Tokens() const { return std::ssize(ids_) + 64; }
  AlignedBuffer<uint8_t> Blocks() const {
    AlignedBuffer<uint8_t> blocks;
    EXPECT_TRUE(blocks.Allocate((Tokens() + 63) / 64 * Layout().BlockBytes()));
    return blocks;
  }

  std::vector<std::vector<float>> Feed(SequenceState& sequence, std::span<const int32_t> ids, LogitsRows logits) {
    const BatchItem item{&sequence, ids, logits};
    const Result<ForwardResult> result = model_->Forward({{&item, 1}});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? CopyRows(result->logits) : std::vector<std::vector<float>>();
  }

  /// Logits of the last of `ids` and of the greedy continuation, fed to the sequence.
  std::vector<std::vector<float>> Continue(SequenceState& sequence, std::span<const int32_t> ids) {
    const std::vector<int32_t>& greedy = golden_.ints("greedy_ids");
    std::vector<std::vector<float>> rows = Feed(sequence, ids, LogitsRows::kLast);
    for (std::vector<float>& row : Feed(sequence, std::span(greedy).first(greedy.size() - 1), LogitsRows::kAll)) {
      rows.push_back(std::move(row));
    }
    return rows;
  }

  void Compare(const std::string& name, SequenceState& sequence, std::span<const int32_t> ids) {
    SCOPED_TRACE(name);
    const std::vector<int32_t>& greedy = golden_.ints("greedy_ids");
    const std::vector<std::vector<float>> rows = Continue(sequence, ids);
    ASSERT_EQ(rows.size(), greedy.size());
    const double distance = Distance(rows[0], golden_.floats(name + "_logits"));
    EXPECT_LT(distance, limits_.worst);
    const std::vector<int32_t>& expected = golden_.ints(name + "_top1");
    const std::vector<float>& margins = golden_.floats("greedy_margin");
    int compared = 0;
    for (size_t step = 0; step < expected.size(); ++step) {
      // The recorded margin is that of the exact run: twice the limit leaves room for this run's, which is not
      // recorded. Where that run chose otherwise, nothing is clear.
      if (margins[step] < 2 * limits_.greedy_margin || expected[step] != greedy[step]) continue;
      EXPECT_EQ(Best(rows[step]), expected[step]) << "step " << step;
      ++compared;
    }
    // Against the exact run of this model: what replay costs, rounding noise included.
    double divergence = 0;
    double recorded = 0;
    int agreed = 0;
    const auto steps = static_cast<double>(rows.size());
    for (size_t step = 0; step < rows.size(); ++step) {
      divergence += Divergence(exact_[step], rows[step]) / steps;
      recorded += golden_.floats(name + "_kl")[step] / steps;
      if (Best(exact_[step]) == Best(rows[step])) ++agreed;
    }
    EXPECT_LT(divergence, 3 * recorded + limits_.mean) << "mean KL";
    std::printf(
        "  %-13s last row %.1e from the reference, %d steps compared; KL to exact %.1e (reference %.1e), "
        "top-1 %.1f %%\n",
        name.c_str(), distance, compared, divergence, recorded, 100 * agreed / steps);
  }

  LoadedModel& model_;
  const GoldenFile& golden_;
  GoldenLimits limits_;
  const std::vector<int32_t>& ids_;
  std::vector<std::vector<float>> exact_;
};

void RunFile(const std::filesystem::path& model_folder, const std::filesystem::path& file, const std::string& model) {
  const std::string name = file.filename().string();
  const std::string mode = name.find(".fp8act.") != std::string::npos ? "fp8act" : "f32act";
  Result<GoldenFile> golden = GoldenFile::Open(file);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  if (!golden->has("boundedW_logits")) return;
  std::printf("%s %s\n", model.c_str(), name.c_str());
  ModelOptions options;
  options.activation = mode == "fp8act" ? ActivationFormat::kFp8Groups32 : ActivationFormat::kExact;
  options.max_rows_per_step = 3072;
  LoadedModel loaded(model_folder, MakeCpuOps(2), options);
  ReplayCheck(loaded, *golden, LimitsFor(model, mode)).Run(model == "nano" ? 256 : 64);
}

TEST(GoldenReplay, InRepository) {
  const auto folder = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "golden";
  RunFile(ModelFolder("tiny2"), folder / "tiny2" / "len200.f32act.safetensors", "tiny2");
  RunFile(ModelFolder("nano"), folder / "nano" / "prose-1500.fp8act.safetensors", "nano");
}

TEST(GoldenReplay, Shared) {
  const char* shared = std::getenv("DEEPINFER_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "DEEPINFER_SHARED is not set";
  const std::filesystem::path folder = shared;
  for (const std::string model : {"tiny", "tiny2", "nano"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / "golden" / model)) {
      if (entry.path().extension() == ".safetensors") RunFile(folder / "models" / model, entry.path(), model);
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
