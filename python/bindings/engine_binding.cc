#include "engine_binding.h"

#include <chrono>
#include <utility>

#include "api/chat_request.h"
#include "conversions.h"
#include "status_error.h"
#include "text/prompt_renderer.h"
#include "without_gil.h"

namespace py = pybind11;

namespace deepinfer::python {

PythonStream::~PythonStream() {
  if (!process_.is_this()) static_cast<void>(stream_.release());
}

std::optional<GenerationDelta> PythonStream::Read(int milliseconds) {
  process_.Check();
  const WithoutGil release;
  GenerationDelta delta;
  bool timed_out = false;
  if (!stream_->NextFor(&delta, milliseconds, &timed_out)) {
    ended_ = true;
    return std::nullopt;
  }
  if (timed_out) return std::nullopt;
  tokens_read_ += std::ssize(delta.ids);
  return delta;
}

bool PythonStream::Drain(int milliseconds) {
  process_.Check();
  const WithoutGil release;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  GenerationDelta delta;
  while (!ended_) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    bool timed_out = false;
    if (!stream_->NextFor(&delta, static_cast<int>(std::max<int64_t>(left.count(), 0)), &timed_out)) {
      ended_ = true;
    } else if (timed_out) {
      return false;
    } else {
      tokens_read_ += std::ssize(delta.ids);
    }
  }
  return true;
}

void PythonStream::Cancel() {
  process_.Check();
  stream_->Cancel();
}

Generation PythonStream::Result() {
  process_.Check();
  const WithoutGil release;
  return stream_->Wait();
}

PythonEngine::PythonEngine(const py::dict& options, const std::string& tokenizer_file) {
  const EngineOptions chosen = EngineOptionsFrom(options);
  const WithoutGil release;
  ModelFiles files = ValueOrRaise(ModelFiles::Load(chosen.model, tokenizer_file));
  engine_ = ValueOrRaise(EngineCore::Create(std::move(files), chosen));
}

std::shared_ptr<EngineCore> PythonEngine::engine() const {
  process_.Check();
  if (engine_ == nullptr) throw StatusError(Status::Cancelled("the engine is closed"));
  return engine_;
}

void PythonEngine::Close() {
  std::shared_ptr<EngineCore> last = std::move(engine_);
  engine_ = nullptr;
  if (last == nullptr) return;
  if (!process_.is_this()) {
    static_cast<void>(new std::shared_ptr<EngineCore>(std::move(last)));  // its destructor would wait for threads
    return;
  }
  const WithoutGil release;
  last.reset();
}

std::unique_ptr<PythonStream> PythonEngine::Submit(const Submission& submission, const py::object& sampling) {
  const std::shared_ptr<EngineCore> engine = this->engine();
  GenerationRequest request;
  request.sampling = SamplingParamsFrom(sampling);
  request.prompt = submission.prompt;
  request.cache_salt = submission.cache_salt;
  request.cache_ttl_seconds = submission.cache_ttl_seconds;
  request.no_store = submission.no_store;
  request.priority = submission.priority;
  if (submission.replay.has_value()) request.replay = ReplayModeFrom(*submission.replay);
  if (submission.is_chat)
    request.end_of_reasoning = engine->files().tokenizer->IdOfAddedToken(special_token::kEndThink);
  request.starts_in_reasoning = submission.starts_in_reasoning;
  const WithoutGil release;
  return std::make_unique<PythonStream>(ValueOrRaise(engine->Submit(std::move(request))));
}

RenderedChat PythonEngine::RenderChat(const std::string& request, bool thinking, const py::object& effort) {
  const std::shared_ptr<EngineCore> engine = this->engine();
  RequestOptions options;
  options.thinking = thinking;
  options.effort = EffortFrom(effort);
  const WithoutGil release;
  const ConversationRequest parsed = ValueOrRaise(ParseChatRequest(request, options));
  const Prompt prompt = ValueOrRaise(RenderPrompt(parsed.conversation));
  if (!prompt.images.empty()) {
    throw StatusError(Status::Unsupported("messages: this build has no vision encoder; images cannot be read"));
  }
  RenderedChat rendered;
  rendered.ids = ValueOrRaise(PromptIds(prompt, *engine->files().tokenizer));
  rendered.text = prompt.Text();
  rendered.starts_in_reasoning = prompt.start == OutputStart::kThinkLead || prompt.start == OutputStart::kThink;
  return rendered;
}

std::vector<int32_t> PythonEngine::Tokenize(const std::string& text, bool special) {
  const std::shared_ptr<EngineCore> engine = this->engine();
  const WithoutGil release;
  std::vector<int32_t> ids;
  RaiseIf(engine->Tokenize(text, special, &ids));
  return ids;
}

std::string PythonEngine::Detokenize(const std::vector<int32_t>& ids) { return engine()->Detokenize(ids); }

py::dict PythonEngine::Options() { return EngineOptionsDict(engine()->options()); }

py::dict PythonEngine::Statistics() { return StatisticsDict(engine()->statistics()); }

void PythonEngine::ClearPrefixCache() {
  const std::shared_ptr<EngineCore> engine = this->engine();
  const WithoutGil release;
  engine->ClearPrefixCache();
}

}  // namespace deepinfer::python
