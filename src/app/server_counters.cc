#include "app/server_counters.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

namespace deepinfer {
namespace {

struct Sample {
  std::string_view name;    // without the prefix
  std::string_view labels;  // between the braces
  int64_t value = 0;
};

/// False for a comment, a foreign name and what is no sample.
bool ReadSample(std::string_view line, std::string_view prefix, Sample* sample) {
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  const size_t name_end = std::min(line.find_first_of("{ "), line.size());
  sample->name = line.substr(0, name_end);
  line.remove_prefix(name_end);
  sample->labels = {};
  if (line.starts_with('{')) {
    const size_t close = line.rfind('}');
    if (close == std::string_view::npos) return false;
    sample->labels = line.substr(1, close - 1);
    line.remove_prefix(close + 1);
  }
  while (line.starts_with(' ')) line.remove_prefix(1);
  double value = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), value).ec != std::errc()) return false;
  sample->value = static_cast<int64_t>(value);
  return true;
}

/// Of position="N"; -1 without.
int64_t PositionOf(std::string_view labels) {
  constexpr std::string_view kKey = "position=\"";
  const size_t begin = labels.find(kKey);
  if (begin == std::string_view::npos) return -1;
  labels.remove_prefix(begin + kKey.size());
  int64_t position = -1;
  std::from_chars(labels.data(), labels.data() + labels.size(), position);
  return position;
}

ServerCounters ParseWithPrefix(std::string_view page, std::string_view prefix) {
  constexpr int64_t kMostPositions = 1024;
  std::map<std::string, int64_t, std::less<>> sums;
  std::vector<int64_t> by_position;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    Sample sample;
    if (ReadSample(page.substr(0, end), prefix, &sample)) {
      if (sample.name == "spec_decode_num_accepted_tokens_per_pos_total") {
        const int64_t position = PositionOf(sample.labels);
        if (position >= 0 && position < kMostPositions) {
          by_position.resize(std::max(by_position.size(), static_cast<size_t>(position) + 1));
          by_position[static_cast<size_t>(position)] += sample.value;
        }
      } else {
        sums[std::string(sample.name)] += sample.value;
      }
    }
    page.remove_prefix(std::min(end + 1, page.size()));
  }
  ServerCounters counters;
  if (sums.contains("spec_decode_num_drafts_total")) {
    counters.drafts = {.steps = sums["spec_decode_num_drafts_total"],
                       .verified = sums["spec_decode_num_draft_tokens_total"],
                       .accepted = sums["spec_decode_num_accepted_tokens_total"],
                       .accepted_by_position = std::move(by_position)};
  }
  if (sums.contains("prefix_cache_queries_total")) {
    counters.prefix_cache = {.queried_tokens = sums["prefix_cache_queries_total"],
                             .hit_tokens = sums["prefix_cache_hits_total"]};
  }
  return counters;
}

}  // namespace

ServerCounters ServerCounters::Parse(std::string_view page) {
  // A server of ours may export vLLM's names as well: the same numbers again.
  ServerCounters counters = ParseWithPrefix(page, "deepinfer_");
  if (!counters.drafts.has_value() && !counters.prefix_cache.has_value()) counters = ParseWithPrefix(page, "vllm:");
  return counters;
}

ServerCounters ServerCounters::Since(const ServerCounters& before) const {
  ServerCounters grown;
  if (drafts.has_value() && before.drafts.has_value()) {
    Drafts& difference = grown.drafts.emplace(*drafts);
    difference.steps -= before.drafts->steps;
    difference.verified -= before.drafts->verified;
    difference.accepted -= before.drafts->accepted;
    const std::vector<int64_t>& earlier = before.drafts->accepted_by_position;
    for (size_t i = 0; i < std::min(earlier.size(), difference.accepted_by_position.size()); ++i) {
      difference.accepted_by_position[i] -= earlier[i];
    }
  }
  if (prefix_cache.has_value() && before.prefix_cache.has_value()) {
    grown.prefix_cache = {.queried_tokens = prefix_cache->queried_tokens - before.prefix_cache->queried_tokens,
                          .hit_tokens = prefix_cache->hit_tokens - before.prefix_cache->hit_tokens};
  }
  return grown;
}

}  // namespace deepinfer
