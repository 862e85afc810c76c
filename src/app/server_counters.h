// ServerCounters: what a server's /metrics page says of drafts and of its prefix cache, under our names or vLLM's.
//
// Thread-safety: values. Errors: none; what a page does not have stays absent.
#ifndef DEEPINFER_APP_SERVER_COUNTERS_H_
#define DEEPINFER_APP_SERVER_COUNTERS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace deepinfer {

struct ServerCounters {
  struct Drafts {
    int64_t steps = 0;  ///< of a sequence, with drafts that were verified
    int64_t verified = 0;
    int64_t accepted = 0;
    std::vector<int64_t> accepted_by_position;
  };
  struct PrefixCache {
    int64_t queried_tokens = 0;
    int64_t hit_tokens = 0;
  };
  std::optional<Drafts> drafts;
  std::optional<PrefixCache> prefix_cache;

  /// Reads a page in Prometheus' text format; samples of several models or engines are added up.
  static ServerCounters Parse(std::string_view page);
  /// What has been counted since `before`. Absent what either does not have.
  ServerCounters Since(const ServerCounters& before) const;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SERVER_COUNTERS_H_
