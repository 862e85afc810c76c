// BenchLoad: the requests of a benchmark: prompts of a file, or random tokens of given lengths.
//
// Request i is a function of the flags and i, so two runs ask for the same. Thread-safety: the main thread only.
#ifndef DEEPINFER_APP_BENCH_LOAD_H_
#define DEEPINFER_APP_BENCH_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/status.h"

namespace CLI {
class App;
}

namespace deepinfer {

/// A count, or a range of counts that are equally likely.
struct CountRange {
  int64_t low = 0;
  int64_t high = 0;
};

/// "128" or "64:256"; an error that begins with `name`.
Result<CountRange> ParseCountRange(const std::string& name, const std::string& text);

/// One prompt a line, or a JSON object with "prompt" on each when the first line begins with a brace; empty lines do
/// not count. `name` of the file, for errors.
Result<std::vector<std::string>> ParsePrompts(const std::string& name, const std::string& text);

class BenchLoad {
 public:
  void AddTo(CLI::App& flags);
  Status Check();
  /// Reads --prompts. Before Make().
  Status Read();

  /// Prompts of the file, 0 without one.
  int64_t file_prompts() const { return static_cast<int64_t>(prompts_.size()); }

  /// Requests `first` .. `first + count - 1`; a file's prompts come again when there are fewer.
  Result<std::vector<GenerationRequest>> Make(const Engine& engine, int64_t vocabulary, int64_t first,
                                              int64_t count) const;

  /// What was asked for, in words.
  std::string Describe() const;

 private:
  std::string file_;
  std::string input_text_ = "128";
  std::string output_text_ = "64";
  CountRange input_;
  CountRange output_;
  int64_t seed_ = 0;
  double temperature_ = 0;
  bool special_ = false;
  bool ignore_eos_ = false;
  std::vector<std::string> prompts_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_BENCH_LOAD_H_
