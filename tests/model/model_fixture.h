// What the model's tests share: where checkpoints lie, an opened model, and short ways to feed it.
#ifndef DEEPINFER_TESTS_MODEL_MODEL_FIXTURE_H_
#define DEEPINFER_TESTS_MODEL_MODEL_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace deepinfer::test {

/// The checkpoint folder of "nano" or "tiny2" in this repository.
std::filesystem::path ModelFolder(const std::string& name);

/// Compressed ids of the tokenizer that the test checkpoints share.
std::vector<int32_t> TestTokenMap();

/// A whole block of greedy drafts.
struct Draft {
  std::vector<int32_t> ids;       // [b]
  std::vector<float> confidence;  // [b]
  std::vector<float> logits;      // [b * V]
};

/// A checkpoint, ops and a model on them. The test ends when something cannot be opened.
class LoadedModel {
 public:
  LoadedModel(const std::filesystem::path& folder, std::unique_ptr<Ops> ops, const ModelOptions& options);

  Model& model() { return *model_; }
  Ops& ops() { return *ops_; }
  const ModelConfig& config() const { return model_->config(); }
  Model* operator->() { return model_.get(); }

  std::unique_ptr<SequenceState> NewSequence(int64_t tokens);

  /// Appends ids to a sequence; logits of all their rows.
  std::vector<std::vector<float>> Feed(SequenceState& sequence, std::span<const int32_t> ids);
  std::vector<std::vector<float>> Feed(SequenceState& sequence, std::initializer_list<int32_t> ids) {
    return Feed(sequence, std::span(ids.begin(), ids.size()));
  }

  /// Feeds taps [rows, .] of positions first_position, ... to a sequence's draft rings.
  Status ExtendDraft(SequenceState& sequence, ConstFloatView taps, int64_t first_position);
  Result<Draft> DraftBlock(SequenceState& sequence, int32_t token);

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

/// The rows of a view.
std::vector<std::vector<float>> CopyRows(ConstFloatView view);

/// `count` ids below `vocabulary`, always the same for a seed.
std::vector<int32_t> RandomIds(int64_t count, int64_t vocabulary, uint32_t seed);

/// Every byte of the state that the sequence's length makes meaningful: window rings, compressed rows, index keys,
/// compressor tails, draft rings.
std::vector<uint8_t> StateBytes(const SequenceState& sequence);

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_MODEL_MODEL_FIXTURE_H_
