// deepinfer._deepinfer: the engine for the Python package, which wraps it (python/deepinfer/_llm.py). Not for users.
#include <pybind11/stl.h>

#include "base/duration.h"
#include "conversions.h"
#include "engine_binding.h"
#include "status_error.h"

namespace py = pybind11;
using namespace py::literals;  // NOLINT: for "name"_a

namespace deepinfer::python {
namespace {

void BindResults(py::module_& module) {
  py::class_<TokenLogprob>(module, "TokenLogprob")
      .def_readonly("id", &TokenLogprob::id)
      .def_readonly("logprob", &TokenLogprob::logprob);
  py::class_<PositionLogprobs>(module, "PositionLogprobs")
      .def_readonly("chosen", &PositionLogprobs::chosen)
      .def_readonly("top", &PositionLogprobs::top);
  py::class_<GenerationDelta>(module, "Delta")
      .def_readonly("index", &GenerationDelta::index)
      .def_readonly("reasoning", &GenerationDelta::reasoning)
      .def_readonly("content", &GenerationDelta::content)
      .def_readonly("ids", &GenerationDelta::ids)
      .def_readonly("logprobs", &GenerationDelta::logprobs)
      .def_readonly("finished", &GenerationDelta::finished);
  py::class_<Choice>(module, "Choice")
      .def_readonly("ids", &Choice::ids)
      .def_readonly("logprobs", &Choice::logprobs)
      .def_readonly("reasoning", &Choice::reasoning)
      .def_readonly("content", &Choice::content)
      .def_property_readonly("finish_reason",
                             [](const Choice& choice) { return std::string(FinishReasonName(choice.finish_reason)); })
      .def_readonly("stop_sequence", &Choice::stop_sequence)
      .def_readonly("stop_token_id", &Choice::stop_token_id)
      .def_property_readonly("error", [](const Choice& choice) { return ErrorObject(choice.status); });
  py::class_<DraftCounts>(module, "DraftCounts")
      .def_readonly("steps", &DraftCounts::steps)
      .def_readonly("drafted", &DraftCounts::drafted)
      .def_readonly("verified", &DraftCounts::verified)
      .def_readonly("accepted", &DraftCounts::accepted);
  py::class_<Generation>(module, "Generation")
      .def_readonly("choices", &Generation::choices)
      .def_readonly("prompt_logprobs", &Generation::prompt_logprobs)
      .def_property_readonly(
          "replay", [](const Generation& generation) { return std::string(ReplayModeName(generation.replay)); })
      .def_readonly("cached_tokens", &Generation::cached_tokens)
      .def_property_readonly("cached_tokens_by_tier",
                             [](const Generation& generation) {
                               py::dict by_tier;
                               for (const CachedTokens& cached : generation.cached_tokens_by_tier) {
                                 by_tier[py::str(cached.tier)] = cached.tokens;
                               }
                               return by_tier;
                             })
      .def_readonly("replayed_tokens", &Generation::replayed_tokens)
      .def_readonly("preemptions", &Generation::preemptions)
      .def_readonly("drafts", &Generation::drafts)
      .def_readonly("queue_ms", &Generation::queue_ms)
      .def_readonly("first_token_ms", &Generation::first_token_ms)
      .def_readonly("total_ms", &Generation::total_ms);
}

void BindEngine(py::module_& module) {
  py::class_<PythonStream>(module, "Stream")
      .def("read", &PythonStream::Read, "milliseconds"_a)
      .def("drain", &PythonStream::Drain, "milliseconds"_a)
      .def("cancel", &PythonStream::Cancel)
      .def("result", &PythonStream::Result)
      .def_property_readonly("ended", &PythonStream::ended)
      .def_property_readonly("tokens_read", &PythonStream::tokens_read);
  py::class_<Submission>(module, "Submission")
      .def(py::init<>())
      .def_readwrite("prompt", &Submission::prompt)
      .def_readwrite("cache_salt", &Submission::cache_salt)
      .def_readwrite("cache_ttl_seconds", &Submission::cache_ttl_seconds)
      .def_readwrite("no_store", &Submission::no_store)
      .def_readwrite("priority", &Submission::priority)
      .def_readwrite("replay", &Submission::replay)
      .def_readwrite("is_chat", &Submission::is_chat)
      .def_readwrite("starts_in_reasoning", &Submission::starts_in_reasoning);
  py::class_<RenderedChat>(module, "RenderedChat")
      .def_readonly("ids", &RenderedChat::ids)
      .def_readonly("text", &RenderedChat::text)
      .def_readonly("starts_in_reasoning", &RenderedChat::starts_in_reasoning);
  py::class_<PlannedMemory>(module, "PlannedMemory")
      .def_readonly("key", &PlannedMemory::key)
      .def_readonly("text", &PlannedMemory::text)
      .def_readonly("bytes", &PlannedMemory::bytes)
      .def_readonly("at_start", &PlannedMemory::at_start)
      .def_readonly("on_device", &PlannedMemory::on_device);
  py::class_<PythonEngine>(module, "Engine")
      .def(py::init<const py::dict&, const std::string&>(), "options"_a, "tokenizer_file"_a = "")
      .def("submit", &PythonEngine::Submit, "submission"_a, "sampling"_a)
      .def("render_chat", &PythonEngine::RenderChat, "request"_a, "thinking"_a, "effort"_a = py::none())
      .def("tokenize", &PythonEngine::Tokenize, "text"_a, "special"_a = false)
      .def("detokenize", &PythonEngine::Detokenize, "ids"_a)
      .def_property_readonly("bos_token_id", &PythonEngine::bos_token_id)
      .def("options", &PythonEngine::Options)
      .def("statistics", &PythonEngine::Statistics)
      .def("memory_plan", &PythonEngine::MemoryPlan)
      .def("clear_prefix_cache", &PythonEngine::ClearPrefixCache)
      .def("close", &PythonEngine::Close);
}

}  // namespace
}  // namespace deepinfer::python

PYBIND11_MODULE(_deepinfer, module) {
  using namespace deepinfer::python;  // NOLINT
  module.doc() = "The engine of DeepInfer; use the package deepinfer.";
  module.attr("__version__") = DEEPINFER_VERSION;
  RegisterErrors();
  BindResults(module);
  BindEngine(module);
  module.def("parse_duration", &deepinfer::ParseDuration, "text"_a);
  module.def(
      "check_sampling_params", [](const py::object& params) { (void)SamplingParamsFrom(params); }, "params"_a);
}
