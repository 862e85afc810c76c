#include "model/engram.h"

#include <algorithm>
#include <string>

namespace deepinfer {
namespace {

// What the table gives for the rows of the step, [T, (n+1)*D].
FloatView MemoryRows(const StepContext& context) {
  const EngramBuffers& buffers = context.workspace.engram;
  return context.Rows(EngramIsEarly(context) ? buffers.early_kv : buffers.kv);
}

}  // namespace

Result<Engram> Engram::Create(const ModelConfig& config, std::span<const int32_t> token_map) {
  Engram engram;
  if (config.engram_layer_ids.empty()) return engram;
  if (std::ssize(token_map) != config.vocab_size) {
    return Status::InvalidArgument("the Engram token map has " + std::to_string(token_map.size()) +
                                   " ids, but vocab_size is " + std::to_string(config.vocab_size) +
                                   ": use the tokenizer.json that belongs to this config.json");
  }
  std::vector<bool> seen(static_cast<size_t>(config.engram_compressed_vocab_size));
  int64_t distinct = 0;
  for (const int32_t id : token_map) {
    if (id < 0 || id >= config.engram_compressed_vocab_size) {
      return Status::InvalidArgument("the Engram token map holds id " + std::to_string(id) +
                                     ", expected 0 to engram_compressed_vocab_size - 1 = " +
                                     std::to_string(config.engram_compressed_vocab_size - 1) +
                                     ": use the tokenizer.json that belongs to this config.json");
    }
    if (!seen[static_cast<size_t>(id)]) ++distinct;
    seen[static_cast<size_t>(id)] = true;
  }
  if (distinct != config.engram_compressed_vocab_size) {
    return Status::InvalidArgument("the Engram token map has " + std::to_string(distinct) +
                                   " distinct ids, but engram_compressed_vocab_size is " +
                                   std::to_string(config.engram_compressed_vocab_size) +
                                   ": use the tokenizer.json that belongs to this config.json");
  }
  engram.token_map_.assign(token_map.begin(), token_map.end());
  engram.hashes_ = config.engram_hashes;
  engram.orders_ = config.engram_max_ngram_size;
  engram.heads_ = config.engram_n_heads;
  engram.pad_ = engram.token_map_[static_cast<size_t>(config.engram_pad_token_id)];
  return engram;
}

void Engram::HashRows(int slot, std::span<const int32_t> history, std::span<int64_t> rows) const {
  const EngramHash& hash = hashes_[static_cast<size_t>(slot)];
  int64_t mixed = 0;
  for (int64_t back = 0; back < orders_; ++back) {
    const int64_t at = std::ssize(history) - 1 - back;
    const int64_t id = at >= 0 ? token_map_[static_cast<size_t>(history[static_cast<size_t>(at)])] : pad_;
    mixed ^= id * hash.multipliers[static_cast<size_t>(back)];
    if (back == 0) continue;
    for (int64_t head = 0; head < heads_; ++head) {
      const auto column = static_cast<size_t>((back - 1) * heads_ + head);
      rows[column] = mixed % hash.primes[column] + hash.offsets[column];
    }
  }
}

void Engram::HashStep(StepContext& context) const {
  for (const StepItem& item : context.step.items()) {
    const std::span<const int32_t> ids = item.sequence->ids();
    for (int64_t row = 0; row < item.row_count; ++row) {
      const int64_t end = item.first_position + row + 1;
      const int64_t begin = std::max<int64_t>(0, end - orders_);
      const auto history = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      for (size_t slot = 0; slot < hashes_.size(); ++slot) {
        const TensorView<int64_t>& rows = context.workspace.step.hashes[slot];
        HashRows(static_cast<int>(slot), history, {rows.row(item.first_row + row), static_cast<size_t>(rows.columns)});
      }
    }
  }
}

bool EngramIsEarly(const StepContext& context) { return context.rows() <= context.workspace.engram.early_kv.rows; }

void StartEngram(StepContext& context, int slot, const EngramWeights& weights) {
  const FloatView kv = MemoryRows(context);
  const EngramBuffers& buffers = context.workspace.engram;
  const FloatView embeddings = context.Rows(EngramIsEarly(context) ? buffers.early_embeddings : buffers.embeddings);
  context.ops.BeginBeside(context.rows());
  context.ops.GatherRows(weights.embed, context.Rows(context.workspace.step.hashes[static_cast<size_t>(slot)]),
                         embeddings);
  context.ops.Linear(embeddings, weights.wkv, context.activation, 1, kv);
  context.ops.EndBeside();
}

void InjectEngram(StepContext& context, const EngramWeights& weights) {
  context.ops.EngramInject(MemoryRows(context), weights.q_weight, weights.k_weight,
                           static_cast<int>(context.config.hc_mult), context.rms_eps(),
                           context.Rows(context.workspace.step.streams));
}

}  // namespace deepinfer
