// TextModel: the Model on any Ops. Runs the layers in order over one ragged step (spec c.2).
//
// Thread-safety and ownership: as Model.
#ifndef DEEPINFER_MODEL_TEXT_MODEL_H_
#define DEEPINFER_MODEL_TEXT_MODEL_H_

#include <memory>
#include <vector>

#include "model/dspark.h"
#include "model/engram.h"
#include "model/model.h"
#include "model/step.h"
#include "model/workspace.h"

namespace deepinfer {

class TextModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> Create(const Checkpoint& checkpoint, std::span<const int32_t> token_map,
                                               Ops& ops, const ModelOptions& options);

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int64_t workspace_bytes() const override { return workspace_.bytes() + ops_.scratch_bytes(); }
  int64_t sequence_bytes(int64_t tokens) const override { return layout_->PlannedBytes(tokens); }
  std::shared_ptr<const SequenceLayout> layout() const override { return layout_; }
  Result<std::unique_ptr<SequenceState>> NewSequence(int64_t max_tokens) const override;
  Result<ForwardResult> Forward(const Batch& batch) override;
  Status Truncate(SequenceState& sequence, int64_t length) const override;
  Status ExtendDrafts(ConstFloatView taps, std::span<const DraftContext> items) override;
  Result<DraftResult> DraftBlocks(std::span<const DraftItem> items, int64_t length) override;
  RowCounts row_counts() const override { return counts_; }
  void SetProbe(ForwardProbe* probe) override { probe_ = probe; }

 private:
  TextModel(const Checkpoint& checkpoint, Ops& ops, const ModelOptions& options);

  Status CheckToken(int32_t id) const;
  Status CheckOwner(const SequenceState& sequence) const;
  Status CheckBatch(const Batch& batch);
  StepContext Context(ForwardProbe* probe);
  Status CheckDrafts() const;
  void BuildTables(StepContext& context);
  // Whether `layer` has Engram that the layer before it may compute beside itself; then it has begun.
  bool StartEngramOf(StepContext& context, int layer);
  /// Goes on with the rows that pass the decoder. `pre` follows its rows.
  void DropEncoderRows(StepContext& context, FloatView pre);

  const ModelConfig& config_;
  const Weights& weights_;
  Ops& ops_;
  ModelOptions options_;
  std::shared_ptr<const SequenceLayout> layout_;
  Engram engram_;
  std::vector<float> plain_frequencies_;
  std::vector<float> compressed_frequencies_;
  Workspace workspace_;
  Step step_;
  std::vector<const SequenceState*> seen_;  // of the batch being checked
  std::vector<int32_t> logits_rows_;
  std::vector<ItemRows> item_rows_;
  std::vector<LogitsRows> wanted_;  // per item
  RowCounts counts_;
  DraftScratch drafts_;
  ForwardProbe* probe_ = nullptr;
};

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_TEXT_MODEL_H_
