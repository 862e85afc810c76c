#include "ops/cuda/choose_tokens.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "ops/sampling_order.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kLeastPartIds = 4096;
constexpr int64_t kBlocksWanted = 512;

// Room on the device whose content Finish() copies into `host`.
template <typename T>
T* OutRoom(Staging& staging, std::vector<T>& host, int64_t count) {
  host.resize(static_cast<size_t>(count));
  T* device = staging.Room<T>(count);
  staging.CopyBack(host.data(), device, count * static_cast<int64_t>(sizeof(T)));
  return device;
}

// `host` stays as it is until Finish().
template <typename T>
const T* Place(Staging& staging, const std::vector<T>& host) {
  const int64_t bytes = std::ssize(host) * static_cast<int64_t>(sizeof(T));
  if (bytes <= CommandList::kUploadBytes / 4) return staging.Array(std::span<const T>(host));
  T* device = staging.Room<T>(std::ssize(host));
  staging.CopyIn(device, host.data(), bytes);
  return device;
}

}  // namespace

DeviceRule TokenChooser::Pack(const TokenRule& rule, int64_t vocabulary) {
  DeviceRule packed;
  packed.known_id = rule.known_id;
  packed.top_logprobs = rule.top_logprobs;
  if (rule.known_id >= 0) return packed;
  packed.temperature = rule.temperature;
  packed.top_p = rule.top_p;
  packed.least_score = rule.min_p > 0 ? std::log(rule.min_p) : -std::numeric_limits<double>::infinity();
  packed.seed = rule.seed;
  packed.position = static_cast<uint64_t>(rule.position);
  packed.purpose = static_cast<uint32_t>(rule.purpose);
  packed.top_k = rule.top_k > 0 && rule.top_k < vocabulary ? static_cast<int32_t>(rule.top_k) : 0;
  packed.filters = rule.temperature != 0 && (packed.top_k > 0 || rule.top_p < 1);
  if (rule.allowed == nullptr && sampling::ChangesNothing(rule)) return packed;

  packed.changed_row = changed_rows_++;
  const auto begin = [&](size_t entries) {
    return WordList{static_cast<uint32_t>(words_.size()), static_cast<int32_t>(entries)};
  };
  packed.repetition = rule.repetition_penalty;
  packed.presence = rule.presence_penalty;
  packed.frequency = rule.frequency_penalty;
  packed.barred = begin(rule.barred.size());
  for (const int32_t id : rule.barred) words_.push_back(static_cast<uint32_t>(id));
  packed.bias = begin(rule.bias.size());
  for (const LogitBias& bias : rule.bias) {
    words_.insert(words_.end(), {static_cast<uint32_t>(bias.id), std::bit_cast<uint32_t>(bias.bias)});
  }
  packed.seen = begin(rule.seen.size());
  for (const SeenToken& seen : rule.seen) {
    words_.insert(words_.end(), {static_cast<uint32_t>(seen.id), static_cast<uint32_t>(seen.output_count)});
  }
  if (rule.allowed != nullptr) {
    const int64_t count = (vocabulary + 31) / 32;
    packed.allowed = begin(static_cast<size_t>(count));
    words_.insert(words_.end(), rule.allowed, rule.allowed + count);
  }
  return packed;
}

Status TokenChooser::Choose(Staging& staging, ConstFloatView logits, std::span<const TokenRule> rules,
                            std::span<TokenChoice> choices) {
  assert(logits.rows == std::ssize(rules) && rules.size() == choices.size());
  for (TokenChoice& choice : choices) choice = {.top = choice.top};
  const int64_t vocabulary = logits.columns;
  if (logits.rows == 0 || vocabulary == 0) return staging.Finish();

  rules_.clear();
  words_.clear();
  changed_rows_ = 0;
  SamplingRows rows;
  rows.logits = logits;
  bool draws = false, filters = false, logprobs = false;
  for (const TokenRule& rule : rules) {
    rules_.push_back(Pack(rule, vocabulary));
    const DeviceRule& packed = rules_.back();
    draws = draws || packed.temperature != 0;
    filters = filters || packed.filters;
    logprobs = logprobs || rule.top_logprobs >= 0;
    assert(rule.top_logprobs <= kMostTopLogprobs);
    rows.most_top = std::max(rows.most_top, rule.top_logprobs);
  }
  rows.most_top = static_cast<int32_t>(std::min<int64_t>({rows.most_top, vocabulary, kMostTopLogprobs}));
  const int64_t most_parts = (vocabulary + kLeastPartIds - 1) / kLeastPartIds;
  const int64_t parts = std::clamp<int64_t>(kBlocksWanted / logits.rows, 1, most_parts);
  const int64_t part_ids = ((vocabulary + parts - 1) / parts + 63) / 64 * 64;
  rows.part_ids = static_cast<int32_t>(part_ids);
  rows.parts = static_cast<int32_t>((vocabulary + part_ids - 1) / part_ids);

  const int64_t all_parts = logits.rows * rows.parts;
  rows.rules = Place(staging, rules_);
  if (!words_.empty()) rows.words = Place(staging, words_);
  if (changed_rows_ > 0) rows.changed = staging.Room<float>(changed_rows_ * vocabulary);
  rows.row_parts = OutRoom(staging, row_parts_, all_parts);
  if (filters) rows.cuts = staging.Room<RankCut>(logits.rows);
  if (draws) rows.drawn = OutRoom(staging, drawn_, all_parts);
  if (logprobs) rows.logprobs = OutRoom(staging, logprobs_, logits.rows);
  if (rows.most_top > 0) rows.top = OutRoom(staging, top_, logits.rows * rows.most_top);
  staging.Launch(&ChangeRows, rows);
  if (filters || logprobs) staging.Launch(&RankRows, rows, filters, logprobs);
  if (draws) staging.Launch(&DrawTokens, rows);
  DEEPINFER_RETURN_IF_ERROR(staging.Finish());
  for (int64_t t = 0; t < logits.rows; ++t) {
    Read(rows, t, rules[static_cast<size_t>(t)], choices[static_cast<size_t>(t)]);
  }
  return Status::Ok();
}

void TokenChooser::Read(const SamplingRows& rows, int64_t t, const TokenRule& rule, TokenChoice& choice) const {
  const auto part = [&](int p) -> const RowPart& { return row_parts_[static_cast<size_t>(t * rows.parts + p)]; };
  LogitAt raw{0, -1}, changed{0, -1};
  float logit = 0;  // the model's, of the choice
  for (int p = 0; p < rows.parts; ++p) {
    if (part(p).numbers == 0) return;
    if (part(p).raw.id >= 0 && (raw.id < 0 || part(p).raw.logit > raw.logit)) raw = part(p).raw;
    if (part(p).changed.id >= 0 && (changed.id < 0 || part(p).changed.logit > changed.logit)) {
      changed = part(p).changed;
      logit = part(p).raw_of_changed;
    }
  }
  int32_t id = changed.id;
  if (rule.known_id >= 0) {
    if (raw.id < 0) return;
    id = rule.known_id;
    if (rule.top_logprobs >= 0) logit = logprobs_[static_cast<size_t>(t)].of_known;
  } else if (id >= 0 && rule.temperature != 0) {
    const auto for_drawn = [&](const auto& body) {
      for (int p = 0; p < rows.parts; ++p) {
        const DrawnPart& drawn = drawn_[static_cast<size_t>(t * rows.parts + p)];
        for (int i = 0; i < drawn.count; ++i) body(drawn, i);
      }
    };
    double highest = -std::numeric_limits<double>::infinity();
    for_drawn([&](const DrawnPart& drawn, int i) { highest = std::max(highest, drawn.noisy[i]); });
    int close = 0;
    for_drawn([&](const DrawnPart& drawn, int i) { close += drawn.noisy[i] >= highest - kNoiseSlack; });
    double best = -std::numeric_limits<double>::infinity();
    for_drawn([&](const DrawnPart& drawn, int i) {
      if (drawn.noisy[i] < highest - kNoiseSlack) return;
      const LogitAt& at = drawn.changed[i];
      double noisy = drawn.noisy[i];
      if (close > 1) {
        noisy = (double{at.logit} - changed.logit) / rule.temperature +
                Gumbel(CounterBits(rule.seed, static_cast<uint64_t>(rule.position), static_cast<uint32_t>(at.id),
                                   rule.purpose));
      }
      if (noisy > best || (noisy == best && at.id < id)) {
        best = noisy;
        id = at.id;
        logit = drawn.raw[i];
      }
    });
  }
  choice.id = id;
  if (id < 0 || rule.top_logprobs < 0) return;
  const double log_total = std::log(logprobs_[static_cast<size_t>(t)].total) + raw.logit;
  choice.logprob = logit - log_total;
  choice.top_count = std::min(rule.top_logprobs, rows.most_top);
  for (int32_t i = 0; i < choice.top_count; ++i) {
    const LogitAt& at = top_[static_cast<size_t>(t * rows.most_top + i)];
    choice.top[static_cast<size_t>(i)] = {at.id, at.logit - log_total};
  }
}

}  // namespace deepinfer::cuda
