// doctor: what this machine is and what can run on it.
#include <fmt/format.h>
#include <hwy/highway.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/engine_flags.h"
#include "app/memory_plan.h"
#include "app/terminal.h"
#include "base/machine.h"
#include "ops/cuda/cuda_ops.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// Tensor bytes of the release (510 286 023 000) without its Engram tables (202 758 032 400), which are read by rows.
constexpr int64_t kReleasedResidentBytes = 307'527'990'600;

struct ModelVerdict {
  std::string model;
  int64_t bytes = 0;  ///< weights besides Engram tables, and the plan
  bool fits = false;
  bool on_gpu = false;  ///< the bytes are those of the GPU's memory
};

class DoctorCommand : public Command {
 public:
  DoctorCommand() {
    engine_.options.profile_steps = false;
    engine_.options.load_weights = false;
  }

  std::string_view name() const override { return "doctor"; }
  std::string_view summary() const override { return "Show what this machine offers and what can run on it"; }

  void AddFlags(CLI::App& flags) override {
    flags.add_flag("--json", json_, "Print one JSON object");
    engine_.AddTo(flags);
  }

  Status Check() override { return engine_.Check(); }

  Result<int> Run() override {
    const Processor processor = FindProcessor();
    const MemorySize memory = FindMemory();
    const std::vector<Gpu> gpus = FindGpus();
    const std::string kernels(MakeCpuOps(1)->name());

    // A model that cannot be opened is a finding, not a failure of this command.
    std::string problem;
    std::vector<ModelVerdict> verdicts;
    const Result<std::unique_ptr<EngineCore>> engine = engine_.Open();
    if (engine.ok()) {
      DEEPINFER_RETURN_IF_ERROR(PrintWarning(**engine));
      const MemoryPlan plan = PlanOf(**engine);
      const std::string name = (*engine)->files().checkpoint->directory().string();
      const int64_t bytes = plan.mapped_bytes - plan.engram_table_bytes + plan.allocated_bytes;
      if (plan.device_bytes > 0) {
        verdicts.push_back({name, plan.device_bytes, true, true});  // the engine has checked it
      } else {
        verdicts.push_back({name, bytes, bytes <= memory.available});
      }
    } else {
      problem = engine.status().message();
    }
    verdicts.push_back(
        {"DeepSeek-V4.1-Flash as released", kReleasedResidentBytes, kReleasedResidentBytes <= memory.available});

    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? JsonText(processor, memory, gpus, kernels, problem, verdicts)
                                                : Text(processor, memory, gpus, kernels, problem, verdicts)));
    return problem.empty() ? kExitOk : kExitError;
  }

 private:
  static std::string Text(const Processor& processor, const MemorySize& memory, const std::vector<Gpu>& gpus,
                          const std::string& kernels, const std::string& problem,
                          const std::vector<ModelVerdict>& verdicts) {
    std::string text;
    const auto row = [&text](std::string_view name, const std::string& value) {
      text += fmt::format("{:<12}{}\n", name, WithoutControls(value));
    };
    row("processor", processor.name);
    row("features",
        processor.features.empty() ? "none that matter here" : fmt::format("{}", fmt::join(processor.features, " ")));
    row("kernels", kernels);
    row("cores", fmt::format("{} online, {} for this process", processor.cores_online, processor.threads_allowed));
    row("memory", fmt::format("{}, {} available{}", HumanBytes(memory.total), HumanBytes(memory.available),
                              memory.limit > 0 ? ", limited to " + HumanBytes(memory.limit) : ""));
    if (gpus.empty()) {
      row("GPU", BuiltWithCuda() ? "none; this build has kernels for compute capability 9 and 10"
                                 : "none; this build has no CUDA kernels");
    }
    const bool usable = CountCudaDevices() > 0;
    for (const Gpu& gpu : gpus) {
      row("GPU", fmt::format("{}, {}, compute capability {}.{}; this build has {}", gpu.name, HumanBytes(gpu.bytes),
                             gpu.major, gpu.minor, usable && gpu.major >= 9 ? "kernels for it" : "no kernels for it"));
    }
    if (!problem.empty()) row("model", "cannot be used: " + problem);
    for (const ModelVerdict& verdict : verdicts) {
      row(verdict.fits ? "runs" : "too large",
          fmt::format("{}: {} of {}{}", verdict.model, HumanBytes(verdict.bytes),
                      verdict.on_gpu ? "the GPU's memory" : "memory", verdict.fits ? "" : " to stay resident"));
    }
    return text;
  }

  static std::string JsonText(const Processor& processor, const MemorySize& memory, const std::vector<Gpu>& gpus,
                              const std::string& kernels, const std::string& problem,
                              const std::vector<ModelVerdict>& verdicts) {
    Json gpu_list = Json::array();
    for (const Gpu& gpu : gpus) {
      gpu_list.push_back({{"name", gpu.name},
                          {"bytes", gpu.bytes},
                          {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)}});
    }
    Json models = Json::array();
    for (const ModelVerdict& verdict : verdicts) {
      models.push_back(
          {{"model", verdict.model}, {"bytes", verdict.bytes}, {"fits", verdict.fits}, {"on_gpu", verdict.on_gpu}});
    }
    const Json object = {
        {"processor",
         {{"name", processor.name},
          {"features", processor.features},
          {"kernels", kernels},
          {"cores_online", processor.cores_online},
          {"threads", processor.threads_allowed}}},
        {"memory", {{"total", memory.total}, {"available", memory.available}, {"limit", memory.limit}}},
        {"gpus", gpu_list},
        {"problem", problem.empty() ? Json(nullptr) : Json(problem)},
        {"models", models}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  EngineFlags engine_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace deepinfer
