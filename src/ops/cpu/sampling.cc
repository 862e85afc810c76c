#include "ops/cpu/sampling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/cpu/sampling_kernels.h"
#include "ops/sampling_order.h"

namespace deepinfer::cpu {
namespace {

// Below this many logits (some ten microseconds), waking the other threads costs more than they save.
constexpr int64_t kSharedLogits = 1 << 16;

struct RankMemory {
  uint64_t* keys;   // [V]
  uint64_t* spare;  // [V]
};

// One worker's buffers, [V] each.
struct Buffers {
  float* target_row;
  float* draft_row;
  double* p;
  double* q;
  RankMemory ranks;  // in the place of p and q
};

Buffers BuffersOf(const SamplingScratch& scratch, int worker) {
  const int64_t v = scratch.vocabulary;
  float* rows = scratch.rows.data() + worker * 2 * v;
  double* numbers = scratch.numbers.data() + worker * 2 * v;
  uint64_t* keys = reinterpret_cast<uint64_t*>(numbers);
  return {rows, rows + v, numbers, numbers + v, {keys, keys + v}};
}

// Sorts many keys by stable passes over 11 bits each. `spare` is as long.
void SortMany(std::span<uint64_t> keys, uint64_t* spare) {
  constexpr size_t kDigits = 1 << 11;
  uint64_t* from = keys.data();
  uint64_t* to = spare;
  for (const int shift : {0, 11, 22, 32, 43, 54}) {  // 22 and 32 overlap: no id needs more than 31 bits
    std::array<uint32_t, kDigits> places{};
    const auto digit = [&](uint64_t key) { return key >> shift & (kDigits - 1); };
    for (size_t i = 0; i < keys.size(); ++i) ++places[digit(from[i])];
    if (places[digit(from[0])] == keys.size()) continue;
    uint32_t place = 0;
    for (uint32_t& each : places) each = std::exchange(place, place + each);
    for (size_t i = 0; i < keys.size(); ++i) to[places[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != keys.data()) std::copy_n(from, keys.size(), keys.data());
}

// The ids of a row by rank, found as far as they are asked for.
class RankedIds {
 public:
  RankedIds(const SamplingKernels& kernels, const RowLaw& law, const RankMemory& memory)
      : kernels_(kernels), law_(law), keys_(memory.keys), spare_(memory.spare) {}

  /// Whether there is a rank `index` that is not barred; key(0..index) may then be read.
  bool Has(int64_t index) {
    while (index >= sorted_) {
      while (sorted_ == collected_) {
        if (low_ == std::numeric_limits<float>::lowest()) return false;
        CollectBand();
      }
      SortMore(index + 1);
    }
    return true;
  }
  uint64_t key(int64_t index) const { return keys_[index]; }

 private:
  static constexpr int64_t kFirstPiece = 64;
  static constexpr int64_t kManyKeys = 2048;

  // Ever larger pieces of a band, until they are so large that the rest may as well be sorted.
  void SortMore(int64_t wanted) {
    int64_t more = std::min(collected_, std::max({wanted, kFirstPiece, 4 * sorted_}));
    if (more - sorted_ >= kManyKeys) {
      more = collected_;
      SortMany({keys_ + sorted_, static_cast<size_t>(more - sorted_)}, spare_);
    } else {
      if (more < collected_) std::nth_element(keys_ + sorted_, keys_ + more - 1, keys_ + collected_);
      std::sort(keys_ + sorted_, keys_ + more);
    }
    sorted_ = more;
  }

  // The first band holds what is within e^2 of the most likely id; each next one reaches half as deep again.
  void CollectBand() {
    const float high = low_;
    while (low_ == high) {
      low_ = std::max(law_.largest - depth_, std::numeric_limits<float>::lowest());
      depth_ *= 1.5f;
    }
    collected_ += kernels_.collect_band(law_.logits, law_.vocabulary, low_, high, keys_ + collected_);
  }

  const SamplingKernels& kernels_;
  const RowLaw& law_;
  uint64_t* keys_;   // [V]
  uint64_t* spare_;  // [V]
  float depth_ = 2;
  float low_ = std::numeric_limits<float>::infinity();  // everything from here up is collected
  int64_t collected_ = 0;                               // keys
  int64_t sorted_ = 0;                                  // of them in their final places
};

double WeightOf(const RowLaw& law, float logit) {
  return sampling::ExpNonPositive((static_cast<double>(logit) - law.largest) / law.temperature);
}

// The smallest logit that min-p keeps.
float LeastLogit(const RowLaw& law, double min_p) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const double least = std::log(min_p);
  const auto kept = [&](float logit) { return (static_cast<double>(logit) - law.largest) / law.temperature >= least; };
  float logit = sampling::FiniteFloat(law.largest + law.temperature * least);
  while (logit > kLowest && kept(std::nextafter(logit, kLowest))) logit = std::nextafter(logit, kLowest);
  while (!kept(logit)) logit = std::nextafter(logit, law.largest);
  return logit;
}

// Step 5 of ops/sampling.h: narrows law.cut.
void Filter(const SamplingKernels& kernels, const TokenRule& rule, const RankMemory& memory, RowLaw& law) {
  RankedIds ranks(kernels, law, memory);
  const auto cut_after = [&](int64_t index) { law.cut = {LogitOfKey(ranks.key(index)), IdOfKey(ranks.key(index))}; };
  const bool top_k = rule.top_k > 0 && rule.top_k < law.vocabulary;
  if (top_k && ranks.Has(rule.top_k - 1)) cut_after(rule.top_k - 1);
  if (rule.top_p < 1) {
    const double enough = rule.top_p * kernels.sum_weights(law);
    const int64_t most = top_k ? rule.top_k : law.vocabulary;
    double reached = 0;
    int64_t count = 0;
    while (count < most && (count == 0 || reached < enough) && ranks.Has(count)) {
      reached += WeightOf(law, LogitOfKey(ranks.key(count++)));
    }
    cut_after(count - 1);
  }
  if (rule.min_p > 0) {
    const float least = LeastLogit(law, rule.min_p);
    if (least > law.cut.value) law.cut = {least, std::numeric_limits<int32_t>::max()};
  }
}

// A row after steps 1 to 3.
struct ChangedRow {
  const float* logits = nullptr;
  int32_t likeliest = -1;
};
ChangedRow Change(const SamplingKernels& kernels, const float* logits, int64_t vocabulary, const TokenRule& rule,
                  float* scratch) {
  if (rule.allowed != nullptr || !sampling::ChangesNothing(rule)) {
    if (!kernels.copy_allowed(logits, vocabulary, rule.allowed, scratch)) return {};
    sampling::ApplyRule(rule, scratch, vocabulary);
    logits = scratch;
  }
  return {logits, kernels.likeliest(logits, vocabulary)};
}

RowLaw LawOf(const SamplingKernels& kernels, const ChangedRow& row, int64_t vocabulary, const TokenRule& rule,
             const RankMemory& memory) {
  RowLaw law{row.logits, vocabulary, row.logits[row.likeliest], rule.temperature, {}};
  Filter(kernels, rule, memory, law);
  return law;
}

int32_t Draw(const SamplingKernels& kernels, const float* logits, int64_t vocabulary, const TokenRule& rule,
             const Buffers& buffers) {
  const ChangedRow row = Change(kernels, logits, vocabulary, rule, buffers.target_row);
  if (row.likeliest < 0 || rule.temperature == 0) return row.likeliest;
  return kernels.draw(LawOf(kernels, row, vocabulary, rule, buffers.ranks), row.likeliest, rule);
}

// `likeliest`: of the row as the model gave it.
void AddLogprobs(const SamplingKernels& kernels, const float* logits, int64_t vocabulary, int32_t likeliest,
                 const TokenRule& rule, const RankMemory& memory, TokenChoice& choice) {
  const float largest = logits[likeliest];
  const RowLaw law{logits, vocabulary, largest, 1, {}};
  const double log_total = std::log(kernels.sum_weights(law)) + largest;
  choice.logprob = logits[choice.id] - log_total;
  const int64_t count = std::min<int64_t>(rule.top_logprobs, vocabulary);
  choice.top_count = static_cast<int32_t>(count);
  RankedIds ranks(kernels, law, memory);
  int64_t i = 0;
  for (; i < count && ranks.Has(i); ++i) {
    const int32_t id = IdOfKey(ranks.key(i));
    choice.top[static_cast<size_t>(i)] = {id, logits[id] - log_total};
  }
  for (int32_t id = 0; i < count; ++id) {  // barred ids rank last
    if (logits[id] == -std::numeric_limits<float>::infinity()) {
      choice.top[static_cast<size_t>(i++)] = {id, logits[id] - log_total};
    }
  }
}

void Choose(const SamplingKernels& kernels, const float* logits, int64_t vocabulary, const TokenRule& rule,
            const Buffers& buffers, TokenChoice& choice) {
  choice = {.top = choice.top};
  const bool known = rule.known_id >= 0;
  const int32_t id = known ? rule.known_id : Draw(kernels, logits, vocabulary, rule, buffers);
  if (id < 0) return;
  if (!known && rule.top_logprobs < 0) {
    choice.id = id;
    return;
  }
  const int32_t likeliest = kernels.likeliest(logits, vocabulary);
  if (likeliest < 0) return;
  choice.id = id;
  if (rule.top_logprobs >= 0) AddLogprobs(kernels, logits, vocabulary, likeliest, rule, buffers.ranks, choice);
}

// p or q of a draft.
class DraftLaw {
 public:
  /// One-hot.
  explicit DraftLaw(int32_t certain) : certain_(certain) {}
  DraftLaw(const SamplingKernels& kernels, const RowLaw& law) : law_(law), total_(kernels.sum_weights(law)) {}

  double ProbabilityOf(int32_t id) const {
    if (law_.logits == nullptr) return id == certain_ ? 1 : 0;
    const float logit = law_.logits[id];
    return law_.cut.Keeps(logit, id) ? WeightOf(law_, logit) / total_ : 0;
  }
  void Fill(const SamplingKernels& kernels, int64_t vocabulary, double* probabilities) const {
    if (law_.logits != nullptr) return kernels.fill_probabilities(law_, total_, probabilities);
    std::fill_n(probabilities, vocabulary, 0.0);
    probabilities[certain_] = 1;
  }

 private:
  int32_t certain_ = 0;
  RowLaw law_;  // no logits: one-hot
  double total_ = 1;
};

// The law that ops/sampling.h gives to a row; `broken` when there is none.
DraftLaw MakeDraftLaw(const SamplingKernels& kernels, const float* logits, int64_t vocabulary, const TokenRule& rule,
                      float* changed, const RankMemory& memory, bool& broken) {
  const ChangedRow row = Change(kernels, logits, vocabulary, rule, changed);
  broken = row.likeliest < 0;
  if (broken || rule.temperature == 0) return DraftLaw(std::max(row.likeliest, 0));
  return {kernels, LawOf(kernels, row, vocabulary, rule, memory)};
}

// Draws from max(p - q, 0); -1 when there is nothing. p and q are overwritten.
int32_t DrawResidual(const SamplingKernels& kernels, double* p, const double* q, int64_t vocabulary,
                     const TokenRule& rule) {
  const double total = kernels.subtract(p, q, vocabulary);
  if (!(total > sampling::kLeastResidual)) return -1;
  const double target =
      total * OpenUnit(CounterBits(rule.seed, static_cast<uint64_t>(rule.position), 0, RandomPurpose::kResidual));
  int64_t choice = -1;
  double reached = 0;
  for (int64_t id = 0; id < vocabulary && reached < target; ++id) {
    if (p[id] > 0) choice = id;
    reached += p[id];
  }
  return static_cast<int32_t>(choice);
}

DraftVerdict Check(const SamplingKernels& kernels, const DraftCheck& check, const Buffers& buffers) {
  const int64_t vocabulary = check.target_logits.columns;
  const int32_t count = static_cast<int32_t>(check.drafts.size());
  DraftVerdict verdict;
  for (; verdict.accepted < count; ++verdict.accepted) {
    const size_t k = static_cast<size_t>(verdict.accepted);
    const float* target_logits = check.target_logits.row(verdict.accepted);
    const int32_t draft = check.drafts[k];
    assert(draft >= 0 && draft < vocabulary);
    const TokenRule& rule = check.target_rules[k];
    const TokenRule& draft_rule = check.draft_rules[k];
    bool broken = false;
    const DraftLaw p =
        MakeDraftLaw(kernels, target_logits, vocabulary, rule, buffers.target_row, buffers.ranks, broken);
    if (broken) return verdict;
    const DraftLaw q = draft_rule.temperature == 0
                           ? DraftLaw(draft)
                           : MakeDraftLaw(kernels, check.draft_logits.row(verdict.accepted), vocabulary, draft_rule,
                                          buffers.draft_row, buffers.ranks, broken);
    if (broken) return verdict;
    const double u = OpenUnit(CounterBits(rule.seed, static_cast<uint64_t>(rule.position), 0, RandomPurpose::kAccept));
    const double stands = p.ProbabilityOf(draft);
    if (stands > 0 && u * q.ProbabilityOf(draft) <= stands) continue;
    p.Fill(kernels, vocabulary, buffers.p);
    q.Fill(kernels, vocabulary, buffers.q);
    verdict.token = DrawResidual(kernels, buffers.p, buffers.q, vocabulary, rule);
    if (verdict.token < 0) verdict.token = Draw(kernels, target_logits, vocabulary, rule, buffers);
    return verdict;
  }
  verdict.token = Draw(kernels, check.target_logits.row(count), vocabulary,
                       check.target_rules[static_cast<size_t>(count)], buffers);
  return verdict;
}

// Calls body(index, buffers) for 0..count-1, `logits` values in all.
template <typename Body>
void ForItems(ThreadPool& pool, const SamplingScratch& scratch, int64_t count, int64_t logits, const Body& body) {
  const auto run = [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<size_t>(i), BuffersOf(scratch, worker));
  };
  if (count <= 1 || logits < kSharedLogits) return run(0, count, 0);
  pool.Run([&](int worker) {
    const StaticRange range = SplitRange(count, worker, pool.workers());
    run(range.begin, range.end, worker);
  });
}

}  // namespace

Status SamplingScratch::Reserve(const ScratchLimits& limits, int workers) {
  constexpr int64_t kLine = 16;
  vocabulary = (limits.vocabulary + kLine - 1) / kLine * kLine;
  if (!rows.Allocate(workers * 2 * vocabulary) || !numbers.Allocate(workers * 2 * vocabulary)) {
    return Status::ResourceExhausted("no memory for the choice of tokens");
  }
  return Status::Ok();
}

void ChooseTokens(ThreadPool& pool, SamplingScratch& scratch, ConstFloatView logits, std::span<const TokenRule> rules,
                  std::span<TokenChoice> choices) {
  assert(logits.rows == static_cast<int64_t>(rules.size()) && rules.size() == choices.size());
  assert(logits.rows == 0 || logits.columns <= scratch.vocabulary);
  const SamplingKernels& kernels = GetSamplingKernels();
  ForItems(pool, scratch, logits.rows, logits.rows * logits.columns, [&](size_t t, const Buffers& buffers) {
    Choose(kernels, logits.row(static_cast<int64_t>(t)), logits.columns, rules[t], buffers, choices[t]);
  });
}

void AcceptDrafts(ThreadPool& pool, SamplingScratch& scratch, std::span<const DraftCheck> checks,
                  std::span<DraftVerdict> verdicts) {
  assert(checks.size() == verdicts.size());
  const SamplingKernels& kernels = GetSamplingKernels();
  int64_t logits = 0;
  for (const DraftCheck& check : checks) {
    assert(check.target_logits.columns <= scratch.vocabulary);
    assert(check.target_rules.size() == check.drafts.size() + 1 && check.draft_rules.size() == check.drafts.size());
    logits += check.target_logits.rows * check.target_logits.columns;
  }
  ForItems(pool, scratch, static_cast<int64_t>(checks.size()), logits,
           [&](size_t i, const Buffers& buffers) { verdicts[i] = Check(kernels, checks[i], buffers); });
}

}  // namespace deepinfer::cpu
