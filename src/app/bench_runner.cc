#include "app/bench_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "app/interrupt.h"
#include "base/clock.h"
#include "checkpoint/parameter_summary.h"
#include "checkpoint/synthetic_spec.h"
#include "model/step_cost.h"

namespace deepinfer {
namespace {

/// Counts the experts that the rows of a step pick.
class ExpertCounter final : public ForwardProbe {
 public:
  explicit ExpertCounter(Ops& ops) : ops_(ops) {}

  double mean() const { return layers_ > 0 ? static_cast<double>(distinct_) / layers_ : 0; }

  void OnLayer(int, ConstFloatView) override {}
  void OnSelection(int, const SelectedRows&) override {}
  void OnExperts(int, TensorView<const int32_t> picks, ConstFloatView) override {
    std::vector<int32_t> row(static_cast<size_t>(picks.columns));
    std::set<int32_t> seen;
    for (int64_t t = 0; t < picks.rows; ++t) {
      ops_.CopyOut(picks.row(t), row.data(), picks.columns * static_cast<int64_t>(sizeof(int32_t)));
      seen.insert(row.begin(), row.end());
    }
    distinct_ += std::ssize(seen);
    ++layers_;
  }

 private:
  Ops& ops_;
  int64_t distinct_ = 0;
  int layers_ = 0;
};

/// A decode step whose layers touch `distinct_experts` experts each.
StepCost BatchCost(const ModelConfig& config, const BenchCase& test, int64_t position, double distinct_experts) {
  const std::vector<int64_t> positions(static_cast<size_t>(test.batch), position);
  StepCost cost = DecodeCost(config, test.batch, positions);
  if (distinct_experts > 0 && config.n_routed_experts > 0) {
    const auto all = static_cast<double>(config.n_routed_experts);
    const double expected = all * (1 - std::pow(1 - static_cast<double>(config.num_experts_per_tok) / all,
                                                static_cast<double>(test.batch)));
    const auto bytes = static_cast<double>(SummariseParameters(config).part(ModelPart::kRoutedExperts).bytes);
    cost.bytes += bytes * (distinct_experts - expected) / all;
  }
  return cost;
}

}  // namespace

std::string BenchCase::name() const {
  std::string name = fmt::format("{}{}", prefill ? "pp" : "tg", tokens);
  if (batch > 1) name += fmt::format(" b{}", batch);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

Result<BenchRunner> BenchRunner::Create(ModelSession& session, int64_t repetitions, bool fill_depth) {
  BenchRunner runner(session, repetitions);
  if (fill_depth) {
    const ModelConfig& config = session.model().config();
    DEEPINFER_ASSIGN_OR_RETURN(runner.filler_,
                               ContextFiller::Create(std::max(config.head_dim, config.index_head_dim), session.ops()));
  }
  return runner;
}

Result<BenchRow> BenchRunner::Run(const BenchCase& test) {
  BenchRow row;
  row.test = test;
  const ModelConfig& config = session_->model().config();
  double sum = 0;
  double squares = 0;
  for (int64_t repetition = 0; repetition < repetitions_; ++repetition) {
    double experts = 0;
    DEEPINFER_ASSIGN_OR_RETURN(const double seconds, RunOnce(test, true, test.prefill ? nullptr : &experts));
    const double speed = static_cast<double>(test.tokens * test.batch) / seconds;
    sum += speed;
    squares += speed * speed;
    row.distinct_experts += experts / static_cast<double>(repetitions_);
  }
  const auto count = static_cast<double>(repetitions_);
  row.tokens_per_second = sum / count;
  row.deviation = count > 1 ? std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1))) : 0;
  const auto tokens = static_cast<double>(test.tokens * test.batch);
  if (test.prefill) {
    const StepCost cost = PrefillCost(config, test.depth, test.tokens);
    row.flops_per_token = cost.flops / tokens;
    row.bytes_per_token = cost.bytes / tokens;
    return row;
  }
  for (int64_t i = 0; i < test.tokens; ++i) {
    const StepCost cost = BatchCost(config, test, test.depth + i, row.distinct_experts);
    row.flops_per_token += cost.flops / tokens;
    row.bytes_per_token += cost.bytes / tokens;
  }
  return row;
}

Status BenchRunner::AddRelease(BenchRow* row) {
  DEEPINFER_ASSIGN_OR_RETURN(const SyntheticSpec release, ParseSyntheticSpec("v41-flash:40"));
  const BenchCase& test = row->test;
  if (!test.prefill) {
    double without_head = 0;
    for (int64_t repetition = 0; repetition < repetitions_; ++repetition) {
      DEEPINFER_ASSIGN_OR_RETURN(const double seconds, RunOnce(test, false, nullptr));
      without_head += 1e3 * seconds / static_cast<double>(test.tokens * repetitions_);
    }
    row->head_ms = std::max(0.0, row->step_ms() - without_head);
    const StepCost cost = BatchCost(release.config, test, test.depth + test.tokens / 2, row->distinct_experts);
    row->release_floor_ms = 1e3 * cost.bytes / row->limits.read_bytes_per_second;
  }
  row->layer_ms = (row->step_ms() - row->head_ms) / static_cast<double>(session_->model().config().num_hidden_layers);
  row->release_ms = row->head_ms + row->layer_ms * static_cast<double>(release.config.num_hidden_layers);
  return Status::Ok();
}

Status BenchRunner::WarmUp() {
  const ModelOptions& options = session_->model().options();
  const int64_t tokens = std::min<int64_t>(options.max_rows_per_step, options.max_context - 8);
  DEEPINFER_ASSIGN_OR_RETURN(const double prompt, RunOnce({.prefill = true, .tokens = tokens}, true, nullptr));
  DEEPINFER_ASSIGN_OR_RETURN(const double answer, RunOnce({.tokens = 4}, true, nullptr));
  (void)prompt;
  (void)answer;
  return Status::Ok();
}

Result<double> BenchRunner::RunOnce(const BenchCase& test, bool logits, double* experts) {
  Model& model = session_->model();
  const int64_t chunk = model.options().max_rows_per_step;
  Sequences sequences(static_cast<size_t>(test.batch));
  for (std::unique_ptr<SequenceState>& sequence : sequences) {
    DEEPINFER_ASSIGN_OR_RETURN(sequence, model.NewSequence(test.depth + test.tokens));
    if (filler_.has_value() && test.depth > 0) filler_->Fill(RandomIds(test.depth), sequence.get());
  }
  if (!filler_.has_value()) DEEPINFER_RETURN_IF_ERROR(Feed(sequences, test.depth, chunk, false));
  if (experts != nullptr) {
    ExpertCounter counter(session_->ops());
    model.SetProbe(&counter);
    const Status status = Feed(sequences, 1, 1, logits);
    model.SetProbe(nullptr);
    DEEPINFER_RETURN_IF_ERROR(status);
    *experts = counter.mean();
    for (const auto& sequence : sequences) DEEPINFER_RETURN_IF_ERROR(model.Truncate(*sequence, test.depth));
  }
  DEEPINFER_RETURN_IF_ERROR(session_->ops().Finish());
  const double start = NowSeconds();
  DEEPINFER_RETURN_IF_ERROR(Feed(sequences, test.tokens, test.prefill ? chunk : 1, logits));
  return NowSeconds() - start;
}

/// A step that makes one token is waited for, as the next one needs its choice.
Status BenchRunner::Feed(const Sequences& sequences, int64_t count, int64_t chunk, bool logits) {
  const std::vector<int32_t> ids = RandomIds(count * std::ssize(sequences));
  std::vector<BatchItem> items(sequences.size());
  // More rows than a step has: the sequences one after the other.
  const bool together = chunk == 1;
  for (size_t group = 0; group < (together ? 1 : sequences.size()); ++group) {
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t length = std::min(chunk, count - begin);
      const bool last = begin + length == count || chunk == 1;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const int64_t first = static_cast<int64_t>(i) * count + begin;
        items[i] = {
            .sequence = sequences[i].get(),
            .ids = std::span<const int32_t>(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(length)),
            .logits = last && logits ? LogitsRows::kLast : LogitsRows::kNone};
      }
      if (Interrupt::flag()) return Status::Cancelled("interrupted");
      const std::span<const BatchItem> batch =
          together ? std::span<const BatchItem>(items) : std::span(&items[group], 1);
      DEEPINFER_ASSIGN_OR_RETURN(const ForwardResult result, session_->model().Forward({batch}));
      (void)result;
      if (chunk == 1) DEEPINFER_RETURN_IF_ERROR(session_->ops().Finish());
    }
  }
  return session_->ops().Finish();
}

std::vector<int32_t> BenchRunner::RandomIds(int64_t count) {
  const auto vocabulary = static_cast<uint64_t>(session_->model().config().vocab_size);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(next_token_++ * 2654435761u % vocabulary);
  return ids;
}

}  // namespace deepinfer
