// Reads Prometheus' text format as strictly as its rules allow, for tests.
//
// Thread-safety: pure functions. Ownership: values.
#ifndef DEEPINFER_TESTS_SERVER_EXPOSITION_CHECK_H_
#define DEEPINFER_TESTS_SERVER_EXPOSITION_CHECK_H_

#include <map>
#include <set>
#include <string>
#include <vector>

namespace deepinfer {

struct Exposition {
  std::vector<std::string> findings;         ///< one line for every broken rule
  std::map<std::string, std::string> types;  ///< of each family
  std::map<std::string, double> samples;     ///< by `name{a="b",...}`, labels sorted
  std::set<std::string> sample_names;        ///< without labels
};

/// Rules: HELP and TYPE come once and before the samples of their family; names are legal; counters end with _total,
/// others do not; series are unique; numbers are finite, those of counters not negative; buckets of a histogram rise in
/// bound and count and end with +Inf, which equals _count; the text ends with a line feed.
Exposition ReadExposition(const std::string& text);

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_SERVER_EXPOSITION_CHECK_H_
