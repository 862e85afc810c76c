#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

/// Orders ids by logit, most likely first, equal ones by id.
struct MoreLikely {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    if (logits[a] != logits[b]) return logits[a] > logits[b];
    return a < b;
  }
};

}  // namespace

Result<int32_t> ArgMax(std::span<const float> logits) {
  int32_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] <= largest)) {  // NaN comes in here too
      if (!std::isfinite(logits[id])) {
        return Status::Internal(
            fmt::format("logits: expected finite numbers, found {} for token {}; the weights or the "
                        "forward pass are damaged",
                        logits[id], id));
      }
      largest = logits[id];
      best = static_cast<int32_t>(id);
    }
  }
  if (best < 0) return Status::Internal("logits: every token is barred");
  return best;
}

void Sampler::Filter(std::span<const float> logits, const SamplingParams& params, float largest) {
  const double temperature = params.temperature;
  const auto weight = [&](int32_t id) { return std::exp((double{logits[id]} - largest) / temperature); };

  kept_.resize(logits.size());
  std::iota(kept_.begin(), kept_.end(), 0);
  const MoreLikely more_likely{logits};
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(kept_.size())) {
    std::nth_element(kept_.begin(), kept_.begin() + (params.top_k - 1), kept_.end(), more_likely);
    kept_.resize(params.top_k);
    std::sort(kept_.begin(), kept_.end());
  }

  if (params.top_p < 1) {
    // The total runs by ascending id, the prefix by descending probability; only as much as the prefix needs is sorted.
    double total = 0;
    for (int32_t id : kept_) total += weight(id);
    double reached = 0;
    size_t sorted = 0;
    size_t prefix = 0;
    while (prefix < kept_.size() && !(prefix > 0 && reached >= params.top_p * total)) {
      if (prefix == sorted) {
        sorted = std::min(kept_.size(), std::max<size_t>(64, 4 * sorted));
        std::partial_sort(kept_.begin() + prefix, kept_.begin() + sorted, kept_.end(), more_likely);
      }
      reached += weight(kept_[prefix++]);
    }
    kept_.resize(prefix);
  }

  if (params.min_p > 0) {
    std::erase_if(kept_, [&](int32_t id) { return weight(id) < params.min_p; });
  }
}

Result<int32_t> Sampler::Sample(std::span<const float> logits, const SamplingParams& params, int64_t position) {
  DEEPINFER_ASSIGN_OR_RETURN(const int32_t likeliest, ArgMax(logits));
  if (params.temperature == 0) return likeliest;
  const float largest = logits[likeliest];
  Filter(logits, params, largest);

  double best = -std::numeric_limits<double>::infinity();
  int32_t choice = likeliest;
  for (int32_t id : kept_) {
    const double score = (double{logits[id]} - largest) / params.temperature;
    const uint64_t bits = CounterBits(params.seed, position, id, RandomPurpose::kToken);
    if (score + GumbelBound(bits) < best) continue;  // spares most ids the two logarithms
    const double noisy = score + Gumbel(bits);
    if (noisy > best || (noisy == best && id < choice)) {
      best = noisy;
      choice = id;
    }
  }
  return choice;
}

PositionLogprobs ComputeLogprobs(std::span<const float> logits, int32_t chosen, int top) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(double{logit} - largest);
  const double log_total = std::log(total) + largest;
  const auto logprob = [&](int32_t id) { return TokenLogprob{id, logits[id] - log_total}; };

  PositionLogprobs result{logprob(chosen), {}};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t count = std::min<size_t>(ids.size(), std::max(top, 0));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), MoreLikely{logits});
  for (size_t i = 0; i < count; ++i) result.top.push_back(logprob(ids[i]));
  return result;
}

}  // namespace deepinfer
