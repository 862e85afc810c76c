// Greedy decoding with DSpark drafts, verification and rollback gives the tokens of plain greedy decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "golden_file.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

int32_t ArgMax(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<int32_t> PlainGreedy(LoadedModel& model, const std::vector<int32_t>& prompt, size_t count) {
  const auto sequence = model.NewSequence(512);
  std::vector<int32_t> tokens = {ArgMax(model.Feed(*sequence, prompt).back())};
  while (tokens.size() < count) tokens.push_back(ArgMax(model.Feed(*sequence, {tokens.back()}).back()));
  return tokens;
}

struct Speculation {
  std::vector<int32_t> tokens;
  std::vector<int32_t> accepted;  // drafts per round
};

Speculation SpeculativeGreedy(LoadedModel& model, const std::vector<int32_t>& prompt, size_t count) {
  const auto sequence = model.NewSequence(512);
  Speculation out;
  const auto forward = [&](const std::vector<int32_t>& ids) {
    const BatchItem item{sequence.get(), ids, LogitsRows::kAll};
    Result<ForwardResult> result = model->Forward({std::span(&item, 1)});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(result).value();
  };
  const ForwardResult prefill = forward(prompt);
  EXPECT_TRUE(model.ExtendDraft(*sequence, prefill.taps, 0).ok());
  out.tokens.push_back(ArgMax(CopyRows(prefill.logits).back()));
  while (out.tokens.size() < count) {
    const int64_t start = sequence->length();
    Result<Draft> draft = model.DraftBlock(*sequence, out.tokens.back());
    EXPECT_TRUE(draft.ok()) << draft.status().message();
    std::vector<int32_t> block = {out.tokens.back()};
    block.insert(block.end(), draft->ids.begin(), draft->ids.end());
    const ForwardResult result = forward(block);
    const std::vector<std::vector<float>> logits = CopyRows(result.logits);
    size_t good = 0;
    while (good < draft->ids.size() && ArgMax(logits[good]) == draft->ids[good]) ++good;
    for (size_t i = 0; i <= good; ++i) out.tokens.push_back(ArgMax(logits[i]));
    out.accepted.push_back(static_cast<int32_t>(good));
    const auto kept = static_cast<int64_t>(good) + 1;
    EXPECT_TRUE(model.ExtendDraft(*sequence, result.taps.RowRange(0, kept), start).ok());
    EXPECT_TRUE(model->Truncate(*sequence, start + kept).ok());
  }
  out.tokens.resize(count);
  return out;
}

TEST(Speculation, GreedyTextIsUnchangedAndDraftsAreAccepted) {
  LoadedModel model(ModelFolder("nano"), MakeCpuOps(1), ModelOptions());
  const auto folder = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "golden" / "nano";
  Result<GoldenFile> golden = GoldenFile::Open(folder / "chat-hello.fp8act.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::vector<int32_t>& prompt = golden->ints("ids");
  const size_t count = golden->ints("greedy_ids").size();

  const std::vector<int32_t> plain = PlainGreedy(model, prompt, count);
  const Speculation speculative = SpeculativeGreedy(model, prompt, count);
  EXPECT_EQ(speculative.tokens, plain);
  // The reference accepts about as many per round; its roundings differ.
  const std::vector<int32_t>& recorded = golden->ints("accepted");
  EXPECT_NEAR(static_cast<double>(speculative.accepted.size()), static_cast<double>(recorded.size()), 6);
  EXPECT_LT(speculative.accepted.size(), count * 3 / 4);
}

}  // namespace
}  // namespace deepinfer::test
