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
  if (options.max_draft_sequences < 1 || options.max_draft_sequences > ModelOptions::kMostRowsPerStep) {
    return Status::InvalidArgument("max_draft_sequences is " + std::to_string(options.max_draft_sequences) +
                                   ", expected 1 to " + std::to_string(ModelOptions::kMostRowsPerStep));
  }
  const WorkspaceLimits limits{model->options_.max_rows_per_step, model->options_.max_logits_rows,
                               model->options_.max_draft_sequences};
  DEEPINFER_RETURN_IF_ERROR(model->workspace_.Allocate(config, limits, ops));
  DEEPINFER_RETURN_IF_ERROR(ops.Reserve(ScratchLimitsFor(config, limits, options.max_context)));
  model->step_.Reserve(std::max(limits.rows, limits.draft_sequences * config.dspark_block_size));
  model->drafts_.Reserve(limits.draft_sequences, config.dspark_block_size);
  model->item_rows_.reserve(static_cast<size_t>(limits.rows));
  model->wanted_.reserve(static_cast<size_t>(limits.rows));
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
  return SequenceState::Create(layout_, max_tokens, ops_);
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
    const int64_t wanted = item.logits == LogitsRows::kAll    ? std::ssize(item.ids)
                           : item.logits == LogitsRows::kLast ? 1
                                                              : 0;
    logits_rows += wanted;
    const int64_t length = item.sequence->length() + std::ssize(item.ids);
    if (wanted > 0 && (item.encoder_only || length - wanted < item.sequence->decoder_start())) {
      return Status::InvalidArgument(name() +
                                     " asks for logits of rows that do not pass the decoder (they stand before " +
                                     std::to_string(item.sequence->decoder_start()) + ")");
    }
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
  wanted_.clear();
  for (const BatchItem& item : batch.items) {
    step_.Add(*item.sequence, item.sequence->length(), item.ids, item.encoder_only);
    wanted_.push_back(item.logits);
    item.sequence->Append(item.ids);
  }
  counts_.encoder += step_.rows();
  StepContext context = Context(probe_);
  BuildTables(context);
  if (!layout_->sources.empty() && step_.rows() > 0) {
    ops_.RopeTable(step_.pair_positions(), compressed_frequencies_,
                   workspace_.step.pair_rope.RowRange(0, std::ssize(step_.pair_positions())));
  }

  FloatView pre;
  if (step_.rows() > 0) pre = EmbedStreams(context, weights_.embed);
  bool engram_started = false;
  for (int layer = 0; layer < layout_->layers && step_.rows() > 0; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    if (weights.engram.has_value()) {
      if (!engram_started) StartEngram(context, config_.EngramSlot(layer), *weights.engram);
      InjectEngram(context, *weights.engram);
    }
    const int tap = config_.TapSlot(layer);
    if (tap >= 0) TapStreams(context, tap);
    const bool cut = layer == layout_->first_decoder_layer;
    if (cut) {
      PublishLayer(context, layer, weights, pre);
      DropEncoderRows(context, pre);
      if (step_.rows() == 0) break;
    }
    engram_started = StartEngramOf(context, layer + 1);
    pre = RunLayer(context, layer, weights, context.Rows(pre), !cut);
    if (probe_ != nullptr) probe_->OnLayer(layer, context.Rows(workspace_.step.streams));
  }

  logits_rows_.clear();
  item_rows_.clear();
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const StepItem& item = step_.items()[i];
    item_rows_.push_back({item.first_row, item.row_count, static_cast<int32_t>(logits_rows_.size())});
    const int32_t end_row = item.first_row + item.row_count;
    int32_t row = wanted_[i] == LogitsRows::kAll    ? item.first_row
                  : wanted_[i] == LogitsRows::kLast ? end_row - 1
                                                    : end_row;
    for (; row < end_row; ++row) logits_rows_.push_back(row);
  }
  counts_.decoder += step_.rows();
  counts_.logits += std::ssize(logits_rows_);
  const FloatView logits = logits_rows_.empty() ? workspace_.result.logits.RowRange(0, 0)
                                                : ComputeLogits(context, weights_, context.Rows(pre), logits_rows_);
  return ForwardResult{logits, context.Rows(workspace_.result.taps), item_rows_};
}

bool TextModel::StartEngramOf(StepContext& context, int layer) {
  if (layer >= layout_->layers || !EngramIsEarly(context)) return false;
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  if (!weights.engram.has_value()) return false;
  StartEngram(context, config_.EngramSlot(layer), *weights.engram);
  return true;
}

void TextModel::BuildTables(StepContext& context) {
  ops_.RopeTable(step_.positions(), plain_frequencies_, context.Rows(workspace_.step.plain_rope));
  if (!layout_->sources.empty()) {
    ops_.RopeTable(step_.positions(), compressed_frequencies_, context.Rows(workspace_.step.compressed_rope));
  }
  engram_.HashStep(context);
}

void TextModel::DropEncoderRows(StepContext& context, FloatView pre) {
  const int64_t before = step_.rows();
  const std::span<const int32_t> kept = step_.KeepDecoderRows();
  if (step_.rows() == before || step_.rows() == 0) return;
  ops_.KeepRows(kept, workspace_.step.streams.RowRange(0, before));
  ops_.KeepRows(kept, pre);
  ops_.KeepRows(kept, workspace_.result.taps.RowRange(0, before));
  BuildTables(context);
}

Status TextModel::Truncate(SequenceState& sequence, int64_t length) const {
  DEEPINFER_RETURN_IF_ERROR(CheckOwner(sequence));
  return sequence.Truncate(length);
}

Status TextModel::CheckDrafts() const {
  if (layout_->stages > 0) return Status::Ok();
  return Status::Unsupported("this checkpoint has no DSpark stages (num_nextn_predict_layers)");
}

Status TextModel::ExtendDrafts(ConstFloatView taps, std::span<const DraftContext> items) {
  DEEPINFER_RETURN_IF_ERROR(CheckDrafts());
  int64_t rows = 0;
  for (const DraftContext& item : items) {
    DEEPINFER_RETURN_IF_ERROR(CheckOwner(*item.sequence));
    rows += item.row_count;
    if (taps.columns != workspace_.result.taps.columns || item.row_count < 1 || item.first_tap < 0 ||
        item.first_tap + item.row_count > taps.rows || rows > options_.max_rows_per_step) {
      return Status::InvalidArgument("taps are [" + std::to_string(taps.rows) + ", " + std::to_string(taps.columns) +
                                     "], rows " + std::to_string(item.first_tap) + " to " +
                                     std::to_string(item.first_tap + item.row_count - 1) +
                                     " asked for; expected [1 to " + std::to_string(options_.max_rows_per_step) + ", " +
                                     std::to_string(workspace_.result.taps.columns) + "] and rows within");
    }
    if (item.first_position < 0 || item.first_position + item.row_count > item.sequence->length()) {
      return Status::InvalidArgument("taps of positions " + std::to_string(item.first_position) + " to " +
                                     std::to_string(item.first_position + item.row_count - 1) +
                                     ", but the sequence has " + std::to_string(item.sequence->length()) + " tokens");
    }
  }
  if (rows == 0) return Status::Ok();
  StepContext context = Context(nullptr);
  ExtendDraftRings(context, weights_.mtp, plain_frequencies_, taps, items);
  return Status::Ok();
}

Result<DraftResult> TextModel::DraftBlocks(std::span<const DraftItem> items, int64_t length) {
  DEEPINFER_RETURN_IF_ERROR(CheckDrafts());
  if (length < 1 || length > config_.dspark_block_size) {
    return Status::InvalidArgument("draft length is " + std::to_string(length) +
                                   ", expected 1 to dspark_block_size = " + std::to_string(config_.dspark_block_size));
  }
  if (std::ssize(items) > options_.max_draft_sequences) {
    return Status::ResourceExhausted("drafts for " + std::to_string(items.size()) +
                                     " sequences, max_draft_sequences is " +
                                     std::to_string(options_.max_draft_sequences));
  }
  for (const DraftItem& item : items) {
    DEEPINFER_RETURN_IF_ERROR(CheckOwner(*item.sequence));
    DEEPINFER_RETURN_IF_ERROR(CheckToken(item.token));
    if (item.sequence->draft_end() == 0) {
      return Status::InvalidArgument("the draft rings are empty; call ExtendDrafts() with the taps of Forward() first");
    }
  }
  if (items.empty()) return DraftResult{};
  counts_.drafts += std::ssize(items) * config_.dspark_block_size;
  StepContext context = Context(nullptr);
  return RunDraftBlocks(context, weights_, plain_frequencies_, items, length, &drafts_);
}

}  // namespace deepinfer
