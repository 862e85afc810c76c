// PythonEngine and PythonStream: EngineCore and GenerationStream as the module shows them.
//
// Every call that can wait does so without the GIL and for a bounded time, so that Python's threads go on and Ctrl-C is
// seen. Thread-safety: any thread that holds the GIL. Ownership: a call in progress keeps the engine alive when another
// thread closes it; streams may outlive it.
#ifndef DEEPINFER_PYTHON_ENGINE_BINDING_H_
#define DEEPINFER_PYTHON_ENGINE_BINDING_H_

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "opening_process.h"

namespace deepinfer::python {

class PythonStream {
 public:
  explicit PythonStream(std::unique_ptr<GenerationStream> stream) : stream_(std::move(stream)) {}
  ~PythonStream();

  /// What is new, or None when nothing came in time or everything was read (then `ended`).
  std::optional<GenerationDelta> Read(int milliseconds);
  /// Reads and forgets news until the end (true) or for so long (false); Result still has everything.
  bool Drain(int milliseconds);
  void Cancel();
  /// Waits for the end.
  Generation Result();

  bool ended() const { return ended_; }
  int64_t tokens_read() const { return tokens_read_; }

 private:
  OpeningProcess process_;
  std::unique_ptr<GenerationStream> stream_;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> tokens_read_{0};
};

/// What of a request is no sampling parameter.
struct Submission {
  std::vector<int32_t> prompt;
  std::string cache_salt;
  std::optional<int64_t> cache_ttl_seconds;
  bool no_store = false;
  int priority = 0;
  std::optional<std::string> replay;
  bool is_chat = false;  ///< reasoning is told apart from the answer
  bool starts_in_reasoning = false;
};

struct RenderedChat {
  std::vector<int32_t> ids;
  std::string text;
  bool starts_in_reasoning = false;
};

class PythonEngine {
 public:
  /// `options`: see EngineOptionsFrom; `tokenizer_file`: empty for the model's.
  PythonEngine(const pybind11::dict& options, const std::string& tokenizer_file);
  ~PythonEngine() { Close(); }

  std::unique_ptr<PythonStream> Submit(const Submission& submission, const pybind11::object& sampling);
  /// `request` is a Chat Completions request.
  RenderedChat RenderChat(const std::string& request, bool thinking, const pybind11::object& effort);
  std::vector<int32_t> Tokenize(const std::string& text, bool special);
  std::string Detokenize(const std::vector<int32_t>& ids);
  int32_t bos_token_id() { return engine()->bos_token_id(); }
  pybind11::dict Options();
  pybind11::dict Statistics();
  std::vector<PlannedMemory> MemoryPlan() { return engine()->memory_plan(); }
  void ClearPrefixCache();
  void Close();

 private:
  /// CancelledError after Close and in a forked child.
  std::shared_ptr<EngineCore> engine() const;

  OpeningProcess process_;
  std::shared_ptr<EngineCore> engine_;
};

}  // namespace deepinfer::python

#endif  // DEEPINFER_PYTHON_ENGINE_BINDING_H_
