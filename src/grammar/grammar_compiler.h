// GrammarCompiler: texts of grammars into compiled grammars, off every other thread, each one once.
//
// Compilation runs on threads of its own at low priority, within the limits of the front ends, so that a hostile
// grammar costs its sender an error and nobody else a token. The mask of the first position is made there too: what
// passes here has begun to work, and the first request finds it warm. Results, failures included, are kept by content
// within a budget of bytes, the least recently used go first. Equal texts that arrive together are compiled once.
// Thread-safety: all members from any thread. Ownership: the tokenizer outlives it; results are shared.
// Source: spec serving.md section 10.5 (cache, compile off the decode path).
#ifndef DEEPINFER_GRAMMAR_GRAMMAR_COMPILER_H_
#define DEEPINFER_GRAMMAR_GRAMMAR_COMPILER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "deepinfer/status.h"
#include "deepinfer/structured_output.h"
#include "grammar/compiled_grammar.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct GrammarCompilerOptions {
  int threads = 2;                             ///< so that one slow text does not hold up all others
  size_t max_cached_bytes = size_t{64} << 20;  ///< of grammars, their texts and their automata
  double most_seconds = 60;  ///< that a caller waits, for texts before its own too; then kResourceExhausted
  MatcherLimits matcher;
};

class GrammarCompiler {
 public:
  using Compile = std::function<Result<Grammar>()>;

  /// `width`: of the logits, in ids. `control_tokens`: added tokens that grammars of turns may name.
  GrammarCompiler(const Tokenizer& tokenizer, int32_t width, std::vector<int32_t> control_tokens,
                  const GrammarCompilerOptions& options = {});
  /// Nobody waits any more.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  /// The grammar of `key`, which says everything that `compile` depends on. Blocks until it is known. Errors: those of
  /// `compile`; kResourceExhausted past a limit.
  Result<std::shared_ptr<const CompiledGrammar>> Get(const std::string& key, Compile compile);

  /// The same for what a request asks for in plain words; kInvalidArgument and the others name the place.
  Result<std::shared_ptr<const CompiledGrammar>> Get(const StructuredOutput& wanted);

  /// Bytes that are kept.
  size_t cached_bytes() const;

  /// What grammars take at most, for the memory plan: those kept, those being compiled, and matchers of so many
  /// sequences with so many masks each.
  int64_t most_bytes(int64_t sequences, int64_t masks) const;

 private:
  struct Entry {
    std::string key;
    Compile compile;
    bool done = false;
    Status status;
    std::shared_ptr<const CompiledGrammar> grammar;

    /// Of the text, the grammar and what its requests have left to later ones.
    size_t bytes() const;
  };

  void Loop();
  Status Make(Entry& entry);
  size_t TotalBytes() const;
  void Evict();

  const Tokenizer& tokenizer_;
  int32_t width_;
  std::vector<int32_t> control_tokens_;
  GrammarCompilerOptions options_;
  std::once_flag trie_once_;
  Result<std::shared_ptr<const TokenTrie>> trie_ = Status::Internal("no vocabulary yet");

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::list<std::shared_ptr<Entry>> recent_;  // most recently used first; those that are done
  std::unordered_map<std::string_view, std::shared_ptr<Entry>> entries_;  // keys point into the entries
  std::deque<std::shared_ptr<Entry>> waiting_;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_GRAMMAR_COMPILER_H_
