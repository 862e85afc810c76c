// EngineCore::memory_plan: every line of it.
#include <fmt/format.h>

#include "base/machine.h"
#include "engine/engine_core.h"

namespace deepinfer {

std::vector<PlannedMemory> EngineCore::memory_plan() const {
  const EngineOptions& chosen = plan_.options;
  const bool gpu = !ops_->computes_on_host_memory();
  const int64_t temporaries = ops_->device_scratch_bytes();
  // A GPU's Ops leave a few ops to the CPU.
  const int64_t host_scratch = gpu ? ops_->scratch_bytes() - temporaries : 0;
  std::vector<PlannedMemory> lines = {
      {"workspace", fmt::format("activations and scratch of a step of {} rows", model_->options().max_rows_per_step),
       model_->workspace_bytes() - temporaries - host_scratch, true, gpu},
      {"sequences", fmt::format("window rings, draft rings and tails of {} sequences", chosen.max_num_seqs),
       pieces_.bytes(), true, gpu},
      {"kv_pool", fmt::format("KV pool: {} blocks of {} tokens", plan_.kv.blocks, kKvBlockTokens),
       kv_->blocks().bytes(), true, gpu},
      {"snapshots", fmt::format("ring snapshots: {} of {}", plan_.kv.snapshots, HumanBytes(plan_.kv.snapshot_bytes)),
       kv_->snapshots().bytes()},
      {"prefix_tree", "prefix tree", kv_->tree().bytes()},
      {"tables", "page tables, token ids and sampling rules", executor_ == nullptr ? 0 : executor_->bytes()},
      {"token_map", "Engram token map", std::ssize(files_.token_map) * static_cast<int64_t>(sizeof(int32_t))},
      {"kv_tiers", "tiers behind the KV pool: host memory, indices and buffers",
       store_ == nullptr ? 0
                         : store_->memory_bytes() + transfers_->bytes() + (copies_ == nullptr ? 0 : copies_->bytes())},
      {"grammars", fmt::format("grammars of {} answers and those kept for later, at most", chosen.max_num_seqs),
       grammars_->most_bytes(chosen.max_num_seqs, 1 + chosen.draft_length), false},
  };
  const int64_t tables = TablesInHostMemory(*files_.checkpoint, plan_.weights);
  if (tables > 0) lines.push_back({"weights_engram", "Engram tables, read from the disk at the start", tables});
  if (!gpu) return lines;
  const WeightTotals weights = TotalsOf(ListWeights(*files_.checkpoint, plan_.weights));
  lines.insert(lines.begin(), {"weights", "weights that stay on the GPU", weights.resident, true, true});
  if (weights.passing > 0) {
    lines.push_back({"weights_window", "room for one layer of the weights that pass", weights.window, true, true});
    lines.push_back({"weights_passing", "weights that pass: pinned host memory", weights.passing});
  }
  if (host_scratch > 0) lines.push_back({"host_scratch", "scratch of ops that the CPU computes", host_scratch});
  if (temporaries > 0) {
    lines.push_back({"temporaries", "temporaries of the largest step, as measured", temporaries, true, true});
  }
  return lines;
}

}  // namespace deepinfer
