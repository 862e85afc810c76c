#include "grammar/grammar_compiler.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"

namespace deepinfer {
namespace {

/// Of a kept failure besides its text.
constexpr size_t kEntryBytes = 256;
/// Decoding goes first on a machine with few cores.
constexpr int kNice = 10;
/// Of one compilation: the limits of the front ends count nodes and states; tests/grammar/hostile_test.cc as a whole
/// process, with the released vocabulary, peaks at 161 MiB.
constexpr int64_t kCompileBytes = int64_t{128} << 20;

JsonSchemaOptions FormOfGeneration() {
  JsonSchemaOptions options;
  options.plain_integers = true;
  return options;
}

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int32_t width, std::vector<int32_t> control_tokens,
                                 const GrammarCompilerOptions& options)
    : tokenizer_(tokenizer), width_(width), control_tokens_(std::move(control_tokens)), options_(options) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::Get(const StructuredOutput& wanted) {
  const std::string key = std::string(1, static_cast<char>('0' + static_cast<int>(wanted.kind))) + wanted.source;
  return Get(key, [wanted] { return CompileStructuredOutput(wanted, FormOfGeneration()); });
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::Get(const std::string& key, Compile compile) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<Entry> entry;
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    entry = found->second;
    const auto at = std::find(recent_.begin(), recent_.end(), entry);
    if (at != recent_.end()) recent_.splice(recent_.begin(), recent_, at);
  } else {
    entry = std::make_shared<Entry>();
    entry->key = key;
    entry->compile = std::move(compile);
    entries_.emplace(entry->key, entry);
    waiting_.push_back(entry);
    if (threads_.size() < static_cast<size_t>(options_.threads)) threads_.emplace_back([this] { Loop(); });
    changed_.notify_all();
  }
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                             std::chrono::duration<double>(options_.most_seconds));
  if (!changed_.wait_until(lock, deadline, [&] { return entry->done || stop_; })) {
    return Status::ResourceExhausted("the grammar was not compiled in time; simplify it");
  }
  if (!entry->done) return Status::Cancelled("the engine is closing");
  if (!entry->status.ok()) return entry->status;
  return entry->grammar;
}

size_t GrammarCompiler::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return TotalBytes();
}

int64_t GrammarCompiler::most_bytes(int64_t sequences, int64_t masks) const {
  const auto matcher = static_cast<int64_t>(options_.matcher.recogniser.max_bytes + options_.matcher.max_mask_bytes);
  const int64_t mask_bytes = (width_ + 31) / 32 * static_cast<int64_t>(sizeof(uint32_t));
  return static_cast<int64_t>(options_.max_cached_bytes) + options_.threads * kCompileBytes +
         sequences * (matcher + masks * mask_bytes);
}

size_t GrammarCompiler::Entry::bytes() const {
  return kEntryBytes + key.size() + (grammar == nullptr ? 0 : grammar->memory_bytes());
}

size_t GrammarCompiler::TotalBytes() const {
  size_t bytes = 0;
  for (const auto& entry : recent_) bytes += entry->bytes();
  return bytes;
}

void GrammarCompiler::Loop() {
  // A thread's niceness is its own on Linux; without the right to change it nothing is lost but politeness.
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const std::shared_ptr<Entry> entry = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const Status status = Make(*entry);
    lock.lock();
    entry->status = status;
    entry->compile = nullptr;
    entry->done = true;
    recent_.push_front(entry);
    Evict();
    changed_.notify_all();
  }
}

Status GrammarCompiler::Make(Entry& entry) {
  std::call_once(trie_once_, [&] { trie_ = TokenTrie::Build(tokenizer_, width_, control_tokens_); });
  DEEPINFER_RETURN_IF_ERROR(trie_.status());
  DEEPINFER_ASSIGN_OR_RETURN(Grammar grammar, entry.compile());
  auto compiled = CompiledGrammar::Make(std::move(grammar), *trie_, options_.matcher);
  Matcher matcher(compiled, {});
  std::vector<uint32_t> words((*trie_)->words());
  DEEPINFER_RETURN_IF_ERROR(matcher.FillMask(words));
  entry.grammar = std::move(compiled);
  return Status::Ok();
}

void GrammarCompiler::Evict() {
  // The newest stays whatever its size: somebody waits for it.
  for (size_t bytes = TotalBytes(); bytes > options_.max_cached_bytes && recent_.size() > 1;) {
    const std::shared_ptr<Entry> oldest = recent_.back();
    recent_.pop_back();
    bytes -= std::min(bytes, oldest->bytes());
    entries_.erase(oldest->key);
  }
}

}  // namespace deepinfer
