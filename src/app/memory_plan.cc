#include "app/memory_plan.h"

#include <fmt/format.h>

#include "base/machine.h"
#include "checkpoint/parameter_summary.h"
#include "model/sequence_state.h"

namespace deepinfer {

MemoryPlan PlanMemory(ModelSession& session) {
  MemoryPlan plan;
  for (const SafetensorsFile& file : session.checkpoint().files()) {
    plan.mapped_bytes += static_cast<int64_t>(file.file_bytes());
  }
  plan.engram_table_bytes = SummariseParameters(session.config()).part(ModelPart::kEngramTables).bytes;

  const auto layout = SequenceLayout::FromConfig(session.config());
  const int64_t context = session.context();
  const int64_t window_row = PackedRowBytes(RowFormat::kWindowFp8, layout->head_dim).total();
  const int64_t ring = layout->ring_slots * window_row;
  const int64_t rings = layout->layers * ring;
  const int64_t draft_rings = layout->stages * ring;
  int64_t rows = 0;
  for (const KvSource& source : layout->sources) {
    const int64_t row = PackedRowBytes(RowFormat::kCompressedFp4, layout->head_dim).total() +
                        PackedRowBytes(RowFormat::kIndexFp4, layout->index_head_dim).total();
    rows += (context + source.ratio - 1) / source.ratio * row;
    plan.kv_bytes_per_token += static_cast<double>(row) / source.ratio;
  }
  const int64_t sequence = session.model().sequence_bytes(context);

  plan.allocations = {
      {"workspace",
       fmt::format("activations and scratch of a step of {} tokens", session.model().options().max_rows_per_step),
       session.model().workspace_bytes()},
      {"window_rings",
       fmt::format("window rings: {} layers x {} rows of {} bytes", layout->layers, layout->ring_slots, window_row),
       rings},
      {"draft_rings",
       fmt::format("draft rings: {} stages x {} rows of {} bytes", layout->stages, layout->ring_slots, window_row),
       draft_rings},
      {"compressed_kv",
       fmt::format("compressed rows and index keys: {} tokens x {:g} bytes", context, plan.kv_bytes_per_token), rows},
      {"sequence_tables", "compressor tails, token ids, page tables, padding", sequence - rings - draft_rings - rows},
      {"token_map", "Engram token map", session.config().vocab_size * static_cast<int64_t>(sizeof(int32_t))},
  };
  for (const PlannedAllocation& allocation : plan.allocations) plan.allocated_bytes += allocation.bytes;
  return plan;
}

Status CheckMemory(ModelSession& session) {
  const int64_t needed = PlanMemory(session).allocated_bytes;
  const int64_t free = FindMemory().available;
  if (free <= 0 || needed <= free) return Status::Ok();
  return Status::ResourceExhausted(
      fmt::format("a context of {} tokens needs {} of memory, {} are free; give a smaller --ctx", session.context(),
                  HumanBytes(needed), HumanBytes(free)));
}

}  // namespace deepinfer
