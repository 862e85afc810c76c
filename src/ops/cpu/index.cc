#include "ops/cpu/index.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <string>

#include "ops/cpu/attention_split.h"
#include "ops/cpu/index_kernels.h"
#include "ops/cpu/index_top_k.h"

namespace deepinfer::cpu {
namespace {

// Below this many products per token (some ten microseconds), waking the other threads costs more than they save.
constexpr int64_t kSharedTokenWork = 1 << 22;

constexpr int64_t RoundUp(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

// What one token needs.
struct TokenPlan {
  int64_t t = 0;             // batch row
  int64_t visible = 0;       // index rows
  int64_t blocks = 0;        // candidate blocks with a visible row
  bool restricted = false;   // only rows of candidates[t] may be chosen, and they are not all
  bool pick_rows = false;    // more rows than topk: scores decide
  bool pick_blocks = false;  // publishes, and more blocks than topk_blocks

  bool scored() const { return pick_rows || pick_blocks; }
};

// The best row of the candidate block that is being scored.
struct OpenBlock {
  int64_t block = -1;
  float best = 0;
};

// One worker's buffers.
struct Worker {
  uint8_t* panel;
  float* scores;     // [kIndexPanelKeys]
  KeyRow* rows;      // [kIndexPanelKeys]
  int32_t* row_ids;  // [kIndexPanelKeys]
  uint8_t* queries;  // [group, query_bytes]
  uint64_t* spare;
  uint64_t* entries;
  TopKList row_lists[kIndexGroup];
  TopKList block_lists[kIndexGroup];
};

int64_t WorkerBytes(int64_t heads, int64_t width) {
  return RoundUp(sizeof(Worker), 64) + RoundUp(IndexPanelBytes(width), 64) +
         RoundUp(kIndexPanelKeys * (4 + 4 + static_cast<int64_t>(sizeof(KeyRow))), 64) +
         kIndexGroup * RoundUp(IndexQueryBytes(heads, width), 64);
}

class Selection {
 public:
  Selection(IndexScratch& scratch, ConstFloatView q, ConstFloatView head_weights, const IndexSettings& settings,
            const CandidateBlocks& candidates, const SelectedRows& selected)
      : scratch_(scratch),
        q_(q),
        head_weights_(head_weights),
        settings_(settings),
        candidates_(candidates),
        selected_(selected),
        query_bytes_(RoundUp(IndexQueryBytes(settings.heads, settings.head_width), 64)),
        row_capacity_(TopKList::Capacity(std::min<int64_t>(settings.topk, scratch.index_rows))),
        block_capacity_(settings.publish_candidates
                            ? TopKList::Capacity(std::min<int64_t>(settings.topk_blocks, scratch.index_rows))
                            : 0) {
    const int64_t spare = std::max(row_capacity_, block_capacity_);
    group_ = std::min<int64_t>(kIndexGroup, (scratch.entries_per_worker - spare) / (row_capacity_ + block_capacity_));
    assert(group_ >= 1);
  }

  TokenPlan Plan(const IndexSequence& sequence, int32_t row) const {
    TokenPlan plan;
    plan.t = sequence.first_row + row;
    plan.visible = (sequence.first_position + row + 1) / settings_.ratio;
    int64_t allowed = plan.visible;
    if (settings_.publish_candidates || settings_.restrict_to_candidates) {
      plan.blocks = (plan.visible + settings_.block_size - 1) / settings_.block_size;
    }
    if (settings_.publish_candidates) {
      plan.pick_blocks = plan.blocks > settings_.topk_blocks;
    } else if (settings_.restrict_to_candidates && candidates_.counts[plan.t] < plan.blocks) {
      plan.restricted = true;
      allowed = 0;
      for (int32_t i = 0; i < candidates_.counts[plan.t]; ++i)
        allowed += BlockRows(plan, i).end - BlockRows(plan, i).begin;
    }
    plan.pick_rows = allowed > settings_.topk;
    return plan;
  }

  // Keys that a token scores, or 1.
  int64_t Cost(const IndexSequence& sequence, int32_t row) const {
    const TokenPlan plan = Plan(sequence, row);
    if (!plan.scored()) return 1;
    return plan.restricted ? int64_t{candidates_.counts[plan.t]} * settings_.block_size : plan.visible;
  }

  // Lists what needs no scores: everything that may be chosen is.
  void WriteUnscored(const TokenPlan& plan) const {
    if (settings_.publish_candidates && !plan.pick_blocks) {
      int32_t* blocks = candidates_.blocks.row(plan.t);
      std::iota(blocks, blocks + plan.blocks, 0);
      candidates_.counts[plan.t] = static_cast<int32_t>(plan.blocks);
    }
    if (plan.pick_rows) return;
    int32_t* rows = selected_.rows.row(plan.t);
    if (plan.restricted) {
      int32_t* next = rows;
      for (int32_t i = 0; i < candidates_.counts[plan.t]; ++i) {
        const StaticRange range = BlockRows(plan, i);
        for (int64_t row = range.begin; row < range.end; ++row) *next++ = static_cast<int32_t>(row);
      }
      selected_.counts[plan.t] = static_cast<int32_t>(next - rows);
    } else {
      std::iota(rows, rows + plan.visible, 0);
      selected_.counts[plan.t] = static_cast<int32_t>(plan.visible);
    }
  }

  // Reads the next tokens of a sequence that are scored together: one restricted token, or up to group_ others.
  // Returns how many rows were consumed; `count` plans are to be scored.
  int32_t NextGroup(const IndexSequence& sequence, int32_t row, int32_t last, TokenPlan* plans, int* count) const {
    *count = 0;
    int32_t next = row;
    while (next < last && *count < group_) {
      const TokenPlan plan = Plan(sequence, next);
      if (plan.scored() && plan.restricted && *count > 0) break;
      ++next;
      WriteUnscored(plan);
      if (!plan.scored()) continue;
      plans[(*count)++] = plan;
      if (plan.restricted) break;
    }
    return next - row;
  }

  // A worker's buffers, once Prepare has laid them out for this call.
  Worker& Buffers(int index) const {
    return *reinterpret_cast<Worker*>(scratch_.memory.data() + index * scratch_.bytes_per_worker);
  }

  Worker& Prepare(int index) const {
    Worker& worker = Buffers(index);
    uint8_t* memory = reinterpret_cast<uint8_t*>(&worker);
    const auto take = [&](int64_t bytes) {
      memory += RoundUp(bytes, 64);
      return memory - RoundUp(bytes, 64);
    };
    take(sizeof(Worker));
    worker.panel = take(IndexPanelBytes(settings_.head_width));
    worker.rows = reinterpret_cast<KeyRow*>(take(kIndexPanelKeys * static_cast<int64_t>(sizeof(KeyRow))));
    worker.scores = reinterpret_cast<float*>(take(kIndexPanelKeys * 4));
    worker.row_ids = reinterpret_cast<int32_t*>(take(kIndexPanelKeys * 4));
    worker.queries = take(group_ * query_bytes_);
    worker.spare = scratch_.entries.data() + index * scratch_.entries_per_worker;
    worker.entries = worker.spare + std::max(row_capacity_, block_capacity_);
    return worker;
  }

  // Quantises the queries of a group and empties its lists.
  void Begin(Worker& worker, const TokenPlan* plans, int count) const {
    for (int i = 0; i < count; ++i) {
      FillIndexQuery(q_.row(plans[i].t), head_weights_.row(plans[i].t), settings_.heads, settings_.head_width,
                     worker.queries + i * query_bytes_);
      uint64_t* entries = worker.entries + i * (row_capacity_ + block_capacity_);
      worker.row_lists[i].Reset(entries, worker.spare, settings_.topk);
      worker.block_lists[i].Reset(entries + row_capacity_, worker.spare, settings_.topk_blocks);
    }
  }

  // Part `part` of `parts` of a group's scores: a range of rows for unrestricted tokens, of candidate blocks for a
  // restricted one.
  void Score(Worker& worker, const PackedRows& keys, const TokenPlan* plans, int count, int part, int parts) const {
    if (plans[0].restricted) {
      ScoreRestricted(worker, keys, plans[0], SplitRange(candidates_.counts[plans[0].t], part, parts));
      return;
    }
    int64_t visible = 0;
    for (int i = 0; i < count; ++i) visible = std::max(visible, plans[i].visible);
    // Whole candidate blocks for each worker.
    const int64_t grain = settings_.publish_candidates ? RoundUp(64, settings_.block_size) : 64;
    ScoreAll(worker, keys, plans, count, SplitRange(visible, part, parts, grain));
  }

  // Writes what the lists of token i have chosen; worker 0's lists have been merged into.
  void Finish(Worker& lists, uint64_t* spare, const TokenPlan& plan, int i) const {
    if (plan.pick_rows) {
      selected_.counts[plan.t] = static_cast<int32_t>(lists.row_lists[i].Finish(spare, selected_.rows.row(plan.t)));
    }
    if (plan.pick_blocks) {
      candidates_.counts[plan.t] =
          static_cast<int32_t>(lists.block_lists[i].Finish(spare, candidates_.blocks.row(plan.t)));
    }
  }

 private:
  // Visible rows of the i-th candidate block.
  StaticRange BlockRows(const TokenPlan& plan, int64_t i) const {
    const int64_t begin = int64_t{candidates_.blocks.row(plan.t)[i]} * settings_.block_size;
    return {std::min(begin, plan.visible), std::min(begin + settings_.block_size, plan.visible)};
  }

  void ScorePanel(Worker& worker, int64_t count, int i) const {
    ScoreIndexPanel(worker.panel, count, worker.queries + i * query_bytes_, settings_.heads, settings_.head_width,
                    worker.scores);
  }

  void ScoreAll(Worker& worker, const PackedRows& keys, const TokenPlan* plans, int count, StaticRange range) const {
    OpenBlock open[kIndexGroup];
    for (int64_t first = range.begin; first < range.end; first += kIndexPanelKeys) {
      const int64_t in_panel = std::min(kIndexPanelKeys, range.end - first);
      KeyList list(worker.rows);
      list.AppendRun(keys, first, in_panel);
      FillIndexPanel(worker.rows, in_panel, settings_.head_width, worker.panel);
      for (int i = 0; i < count; ++i) {
        const int64_t seen = std::min(in_panel, plans[i].visible - first);
        if (seen <= 0) continue;
        ScorePanel(worker, seen, i);
        if (plans[i].pick_rows) worker.row_lists[i].Push(worker.scores, seen, nullptr, first);
        if (plans[i].pick_blocks) {
          AddToBlocks(worker.scores, seen, first, plans[i], open[i], worker.block_lists[i]);
        }
      }
    }
    for (int i = 0; i < count; ++i) {
      if (plans[i].pick_blocks) CloseBlock(plans[i], open[i], worker.block_lists[i]);
    }
  }

  void ScoreRestricted(Worker& worker, const PackedRows& keys, const TokenPlan& plan, StaticRange blocks) const {
    int64_t in_panel = 0;
    const auto flush = [&] {
      if (in_panel == 0) return;
      KeyList list(worker.rows);
      list.AppendRows(keys, worker.row_ids, in_panel);
      FillIndexPanel(worker.rows, in_panel, settings_.head_width, worker.panel);
      ScorePanel(worker, in_panel, 0);
      worker.row_lists[0].Push(worker.scores, in_panel, worker.row_ids, 0);
      in_panel = 0;
    };
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      const StaticRange range = BlockRows(plan, i);
      for (int64_t row = range.begin; row < range.end; ++row) {
        worker.row_ids[in_panel++] = static_cast<int32_t>(row);
        if (in_panel == kIndexPanelKeys) flush();
      }
    }
    flush();
  }

  void AddToBlocks(const float* scores, int64_t count, int64_t first, const TokenPlan& plan, OpenBlock& open,
                   TopKList& list) const {
    int64_t i = 0;
    while (i < count) {
      const int64_t block = (first + i) / settings_.block_size;
      if (block != open.block) {
        CloseBlock(plan, open, list);
        open = {block, scores[i]};
      }
      const int64_t end = std::min(count, (block + 1) * settings_.block_size - first);
      for (; i < end; ++i) open.best = std::max(open.best, scores[i]);
    }
  }

  void CloseBlock(const TokenPlan& plan, const OpenBlock& open, TopKList& list) const {
    if (open.block < 0) return;
    // The block of the newest visible row is always kept.
    const bool newest = open.block == plan.blocks - 1;
    list.PushOne(newest ? std::numeric_limits<float>::infinity() : open.best, open.block);
  }

  IndexScratch& scratch_;
  ConstFloatView q_;
  ConstFloatView head_weights_;
  const IndexSettings& settings_;
  const CandidateBlocks& candidates_;
  const SelectedRows& selected_;
  int64_t query_bytes_;
  int64_t row_capacity_;
  int64_t block_capacity_;
  int64_t group_;
};

}  // namespace

Status IndexScratch::Reserve(const ScratchLimits& limits, int workers) {
  bytes_per_worker = 0;
  entries_per_worker = 0;
  index_rows = limits.index_rows;
  if (limits.index_rows > 0) {
    bytes_per_worker = WorkerBytes(limits.heads, limits.head_width);
    // A list longer than all rows is never filled: everything is chosen without scores.
    const int64_t rows = TopKList::Capacity(std::min(limits.attended_rows, limits.index_rows));
    const int64_t blocks = TopKList::Capacity(std::min(limits.candidate_blocks, limits.index_rows));
    entries_per_worker = kIndexGroup * (rows + blocks) + std::max(rows, blocks);
  }
  if (!memory.Allocate(bytes_per_worker * workers) || !entries.Allocate(entries_per_worker * workers) ||
      !bounds.Allocate(workers + 1)) {
    return Status::ResourceExhausted(
        "no memory for index scratch: " + std::to_string((bytes_per_worker + entries_per_worker * 8) * workers) +
        " bytes for " + std::to_string(workers) + " threads; use fewer threads");
  }
  return Status::Ok();
}

void SelectRows(ThreadPool& pool, IndexScratch& scratch, ConstFloatView q, ConstFloatView head_weights,
                std::span<const IndexSequence> sequences, const IndexSettings& settings,
                const CandidateBlocks& candidates, const SelectedRows& selected) {
  assert(settings.head_width % 32 == 0);
  const Selection selection(scratch, q, head_weights, settings, candidates, selected);
  const int workers = pool.workers();
  int64_t tokens = 0;
  for (const IndexSequence& sequence : sequences) tokens += sequence.row_count;
  if (tokens == 0) return;
  const int64_t cost =
      SplitByCost(sequences, workers, scratch.bounds.data(),
                  [&](const IndexSequence& sequence, int32_t row) { return selection.Cost(sequence, row); });
  const int64_t work = cost * settings.heads * settings.head_width;

  TokenPlan plans[kIndexGroup];
  if (workers > 1 && tokens < 4 * workers && work / tokens >= kSharedTokenWork) {
    // Few tokens over many keys: all threads on one group after the other.
    ForRows(sequences, 0, tokens, [&](const IndexSequence& sequence, int32_t first, int32_t last) {
      for (int32_t row = first; row < last;) {
        int count = 0;
        row += selection.NextGroup(sequence, row, last, plans, &count);
        if (count == 0) continue;
        pool.Run([&](int worker) {
          Worker& own = selection.Prepare(worker);
          selection.Begin(own, plans, count);
          selection.Score(own, sequence.keys, plans, count, worker, workers);
        });
        pool.Run([&](int worker) {
          Worker& whole = selection.Buffers(0);
          uint64_t* spare = selection.Buffers(worker).spare;
          for (int i = worker; i < count; i += workers) {
            for (int other = 1; other < workers; ++other) {
              whole.row_lists[i].Merge(selection.Buffers(other).row_lists[i], spare);
              whole.block_lists[i].Merge(selection.Buffers(other).block_lists[i], spare);
            }
            selection.Finish(whole, spare, plans[i], i);
          }
        });
      }
    });
    return;
  }

  const auto select = [&](int64_t begin, int64_t end, int index) {
    Worker& worker = selection.Prepare(index);
    TokenPlan own_plans[kIndexGroup];
    ForRows(sequences, begin, end, [&](const IndexSequence& sequence, int32_t first, int32_t last) {
      for (int32_t row = first; row < last;) {
        int count = 0;
        row += selection.NextGroup(sequence, row, last, own_plans, &count);
        if (count == 0) continue;
        selection.Begin(worker, own_plans, count);
        selection.Score(worker, sequence.keys, own_plans, count, 0, 1);
        for (int i = 0; i < count; ++i) selection.Finish(worker, worker.spare, own_plans[i], i);
      }
    });
  };
  if (workers == 1 || work < kSharedTokenWork) {
    select(0, tokens, 0);
  } else {
    pool.Run([&](int worker) {
      const int64_t begin = scratch.bounds[worker];
      const int64_t end = scratch.bounds[worker + 1];
      if (begin < end) select(begin, end, worker);
    });
  }
}

}  // namespace deepinfer::cpu
