#include "model/text_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "model/dspark.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/rope_frequencies.h"

namespace deepinfer {

Result<std::unique_ptr<Model>> Model::Create(const Checkpoint& checkpoint, std::span<const int32_t> token_map, Ops& ops,
                                             const ModelOptions& options) {
  return TextModel::Create(checkpoint, token_map, ops, options);
}

Result<std::unique_ptr<Model>> TextModel::Create(const Checkpoint& checkpoint, std::span<const int32_t> token_map,
                                                 Ops& ops, const ModelOptions& options) {
  const ModelConfig& config = checkpoint.config();
  if (options.max_rows_per_step < 1 || options.max_rows_per_step > ModelOptions::kMostRowsPerStep) {
    return Status::InvalidArgument("max_rows_per_step is " + std::to_string(options.max_rows_per_step) +
                                   ", expected 1 to " + std::to_string(ModelOptions::kMostRowsPerStep));
  }
  if (options.max_context < 1 || options.max_context > config.max_position_embeddings) {
    return Status::InvalidArgument(
        "max_context is " + std::to_string(options.max_context) +
        ", expected 1 to max_position_embeddings = " + std::to_string(config.max_position_embeddings));
  }
  if (options.max_logits_rows < 0) {
    return Status::InvalidArgument("max_logits_rows is " + std::to_string(options.max_logits_rows) +
                                   ", expected 0 (as many as max_rows_per_step) or more");
  }

  std::unique_ptr<TextModel> model(new TextModel(checkpoint, ops, options));
  DEEPINFER_ASSIGN_OR_RETURN(model->engram_, Engram::Create(config, token_map));
  const WorkspaceLimits limits{model->options_.max_rows_per_step, model->options_.max_logits_rows};
  DEEPINFER_RETURN_IF_ERROR(model->workspace_.Allocate(config, limits));
  DEEPINFER_RETURN_IF_ERROR(ops.Reserve(ScratchLimitsFor(config, limits, options.max_context)));
  model->step_.Reserve(std::max(limits.rows, config.dspark_block_size));
  model->seen_.reserve(static_cast<size_t>(limits.rows));
  model->logits_rows_.reserve(static_cast<size_t>(limits.rows));
  return std::unique_ptr<Model>(std::move(model));
}

TextModel::TextModel(const Checkpoint& checkpoint, Ops& ops, const ModelOptions& options)
    : config_(checkpoint.config()),
      weights_(checkpoint.weights()),
      ops_(ops),
      options_(options),
      layout_(SequenceLayout::FromConfig(config_)),
      plain_frequencies_(RopeFrequencies(config_, false)),
      compressed_frequencies_(RopeFrequencies(config_, true)) {
  if (options_.max_logits_rows == 0 || options_.max_logits_rows > options_.max_rows_per_step) {
    options_.max_logits_rows = options_.max_rows_per_step;
  }
}

Result<std::unique_ptr<SequenceState>> TextModel::NewSequence(int64_t max_tokens) const {
  if (max_tokens > options_.max_context) {
    return Status::InvalidArgument("a sequence of " + std::to_string(max_tokens) +
                                   " tokens is longer than max_context = " + std::to_string(options_.max_context));
  }
  return SequenceState::Create(layout_, max_tokens);
}

StepContext TextModel::Context(ForwardProbe* probe) {
  return {config_, ops_, workspace_, step_, options_.activation, probe};
}

Status TextModel::CheckToken(int32_t id) const {
  if (id >= 0 && id < config_.vocab_size) return Status::Ok();
  return Status::InvalidArgument("token id " + std::to_string(id) + " is outside the vocabulary, expected 0 to " +
                                 std::to_string(config_.vocab_size - 1));
}

Status TextModel::CheckOwner(const SequenceState& sequence) const {
  if (&sequence.layout() == layout_.get()) return Status::Ok();
  return Status::InvalidArgument("the sequence was made by another model; make it with NewSequence() of this one");
}

Status TextModel::CheckBatch(const Batch& batch) {
  int64_t rows = 0;
  int64_t logits_rows = 0;
  seen_.clear();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    const auto name = [i] { return "batch item " + std::to_string(i); };
    if (item.sequence == nullptr) return Status::InvalidArgument(name() + " has no sequence");
    if (item.ids.empty()) return Status::InvalidArgument(name() + " has no tokens, expected at least 1");
    DEEPINFER_RETURN_IF_ERROR(CheckOwner(*item.sequence));
    for (const int32_t id : item.ids) DEEPINFER_RETURN_IF_ERROR(CheckToken(id));
    rows += std::ssize(item.ids);
    if (rows > options_.max_rows_per_step) {
      return Status::ResourceExhausted(
          "a step of more than max_rows_per_step = " + std::to_string(options_.max_rows_per_step) +
          " tokens; feed the rest in further steps");
    }
    logits_rows += item.logits == LogitsRows::kAll ? std::ssize(item.ids) : item.logits == LogitsRows::kLast ? 1 : 0;
    const int64_t length = item.sequence->length() + std::ssize(item.ids);
    if (length > item.sequence->capacity()) {
      return Status::ResourceExhausted(name() + " would grow its sequence to " + std::to_string(length) +
                                       " tokens, its capacity is " + std::to_string(item.sequence->capacity()));
    }
    seen_.push_back(item.sequence);
  }
  if (logits_rows > options_.max_logits_rows) {
    return Status::ResourceExhausted("logits of " + std::to_string(logits_rows) +
                                     " rows asked for, max_logits_rows is " + std::to_string(options_.max_logits_rows));
  }
  std::sort(seen_.begin(), seen_.end(), std::less<>());
  if (std::adjacent_find(seen_.begin(), seen_.end()) != seen_.end()) {
    return Status::InvalidArgument("a sequence appears twice in a batch; join its tokens in one item");
  }
  return Status::Ok();
}

Result<ForwardResult> TextModel::Forward(const Batch& batch) {
  DEEPINFER_RETURN_IF_ERROR(CheckBatch(batch));

  // From here on nothing fails.
  step_.Clear();
  logits_rows_.clear();
  for (const BatchItem& item : batch.items) {
    const auto first_row = static_cast<int32_t>(step_.rows());
    step_.Add(*item.sequence, item.sequence->length(), item.ids);
    item.sequence->Append(item.ids);
    const auto end_row = static_cast<int32_t>(step_.rows());
    int32_t row = item.logits == LogitsRows::kAll    ? first_row
                  : item.logits == LogitsRows::kLast ? end_row - 1
                                                     : end_row;
    for (; row < end_row; ++row) logits_rows_.push_back(row);
  }
  StepContext context = Context(probe_);
  const FloatView taps = context.Rows(workspace_.result.taps);
  if (step_.rows() == 0) return ForwardResult{workspace_.result.logits.RowRange(0, 0), taps};

  const StepBuffers& buffers = workspace_.step;
  ops_.RopeTable(step_.positions(), plain_frequencies_, context.Rows(buffers.plain_rope));
  if (!layout_->sources.empty()) {
    ops_.RopeTable(step_.positions(), compressed_frequencies_, context.Rows(buffers.compressed_rope));
    ops_.RopeTable(step_.pair_positions(), compressed_frequencies_,
                   buffers.pair_rope.RowRange(0, std::ssize(step_.pair_positions())));
  }
  engram_.HashStep(context);

  ConstFloatView pre = EmbedStreams(context, weights_.embed);
  for (int layer = 0; layer < layout_->layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    if (weights.engram.has_value()) InjectEngram(context, config_.EngramSlot(layer), *weights.engram);
    const int tap = config_.TapSlot(layer);
    if (tap >= 0) TapStreams(context, tap);
    pre = RunLayer(context, layer, weights, pre);
    if (probe_ != nullptr) probe_->OnLayer(layer, context.Rows(buffers.streams));
  }
  return ForwardResult{ComputeLogits(context, weights_, pre, logits_rows_), taps};
}

Status TextModel::Truncate(SequenceState& sequence, int64_t length) const {
  DEEPINFER_RETURN_IF_ERROR(CheckOwner(sequence));
  return sequence.Truncate(length);
}

Status TextModel::ExtendDraft(SequenceState& sequence, ConstFloatView taps, int64_t first_position) {
  DEEPINFER_RETURN_IF_ERROR(CheckOwner(sequence));
  if (layout_->stages == 0)
    return Status::Unsupported("this checkpoint has no DSpark stages (num_nextn_predict_layers)");
  if (taps.columns != workspace_.result.taps.columns || taps.rows < 1 || taps.rows > options_.max_rows_per_step) {
    return Status::InvalidArgument("taps are [" + std::to_string(taps.rows) + ", " + std::to_string(taps.columns) +
                                   "], expected [1 to " + std::to_string(options_.max_rows_per_step) + ", " +
                                   std::to_string(workspace_.result.taps.columns) + "]");
  }
  if (first_position < 0 || first_position + taps.rows > sequence.length()) {
    return Status::InvalidArgument("taps of positions " + std::to_string(first_position) + " to " +
                                   std::to_string(first_position + taps.rows - 1) + ", but the sequence has " +
                                   std::to_string(sequence.length()) + " tokens");
  }
  StepContext context = Context(nullptr);
  ExtendDraftRings(context, weights_.mtp, plain_frequencies_, sequence, taps, first_position);
  return Status::Ok();
}

Result<Draft> TextModel::DraftBlock(SequenceState& sequence, int32_t token) {
  DEEPINFER_RETURN_IF_ERROR(CheckOwner(sequence));
  if (layout_->stages == 0)
    return Status::Unsupported("this checkpoint has no DSpark stages (num_nextn_predict_layers)");
  DEEPINFER_RETURN_IF_ERROR(CheckToken(token));
  if (sequence.draft_end() == 0) {
    return Status::InvalidArgument("the draft rings are empty; call ExtendDraft() with the taps of Forward() first");
  }
  Draft draft;
  StepContext context = Context(nullptr);
  RunDraftBlock(context, weights_, plain_frequencies_, sequence, token, &draft);
  return draft;
}

}  // namespace deepinfer
