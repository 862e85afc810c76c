// info: what a checkpoint is and what running it takes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/engine_flags.h"
#include "app/memory_plan.h"
#include "app/terminal.h"
#include "base/machine.h"
#include "checkpoint/parameter_summary.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

std::string ConfigText(const ModelConfig& config) {
  std::string text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  row("layers", fmt::format("{}, hidden size {}, {} residual streams", config.num_hidden_layers, config.hidden_size,
                            config.hc_mult));
  row("attention", fmt::format("{} heads of {} ({} rotary), window {}", config.num_attention_heads, config.head_dim,
                               config.qk_rope_head_dim, config.sliding_window));
  row("compressed KV",
      fmt::format("sources: layers {}; tokens per row: {}", fmt::join(config.kv_source_layer_ids, ", "),
                  fmt::join(config.compress_ratios, " ")));
  row("index", fmt::format("sources: layers {}; {} heads of {}, {} rows selected",
                           fmt::join(config.index_source_layer_ids, ", "), config.index_n_heads, config.index_head_dim,
                           config.index_topk));
  row("experts", fmt::format("{} routed, {} used, 1 shared, inner width {}", config.n_routed_experts,
                             config.num_experts_per_tok, config.moe_intermediate_size));
  row("Engram", config.engram_layer_ids.empty()
                    ? "none"
                    : fmt::format("layers {}; {} rows", fmt::join(config.engram_layer_ids, ", "),
                                  fmt::join(config.engram_num_embeddings, " + ")));
  row("DSpark",
      config.num_nextn_predict_layers == 0
          ? "none"
          : fmt::format("{} stages, blocks of {} drafts", config.num_nextn_predict_layers, config.dspark_block_size));
  row("vocabulary", fmt::format("{} tokens", config.vocab_size));
  row("positions", fmt::format("{}", config.max_position_embeddings));
  row("vision", config.vision.has_value() ? "tensors present, not run by this version" : "none");
  return text;
}

class InfoCommand : public Command {
 public:
  /// Nothing is generated, so no step needs a price.
  InfoCommand() {
    engine_.options.profile_steps = false;
    engine_.options.load_weights = false;
  }

  std::string_view name() const override { return "info"; }
  std::string_view summary() const override { return "Show a checkpoint's configuration, sizes and memory plan"; }

  void AddFlags(CLI::App& flags) override {
    flags.add_flag("--json", json_, "Print one JSON object");
    engine_.AddTo(flags);
  }

  Status Check() override { return engine_.Check(); }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<EngineCore> engine, engine_.Open());
    DEEPINFER_RETURN_IF_ERROR(PrintWarning(*engine));
    const ParameterSummary summary = SummariseParameters(engine->files().checkpoint->config());
    const MemoryPlan plan = PlanOf(*engine);
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? JsonText(*engine, summary, plan) : Text(*engine, summary, plan)));
    return kExitOk;
  }

 private:
  static std::string Text(const EngineCore& engine, const ParameterSummary& summary, const MemoryPlan& plan) {
    std::string text =
        fmt::format("{:<22}{}\n", "model", WithoutControls(engine.files().checkpoint->directory().string()));
    text += ConfigText(engine.files().checkpoint->config());

    constexpr std::string_view kRow = "{:<22}{:>9}{:>18}{:>18}{:>12}{:>18}{:>18}\n";
    text += "\n" + fmt::format(kRow, "part", "tensors", "parameters", "bytes", "", "used by a token", "bytes");
    const auto row = [&](const std::string& name, const ParameterCount& count) {
      if (count.tensors == 0) return;
      text += fmt::format(kRow, name, count.tensors, count.parameters, count.bytes, HumanBytes(count.bytes),
                          count.active_parameters, count.active_bytes);
    };
    for (int i = 0; i < kModelParts; ++i) {
      const auto part = static_cast<ModelPart>(i);
      row(ModelPartName(part), summary.part(part));
    }
    row("total", summary.total);
    text += "(of DSpark: used by a block of drafts, and not part of the total of a token)\n";

    constexpr std::string_view kPlanRow = "{:<62}{:>16}{:>12}\n";
    const EngineOptions& options = engine.options();
    text += fmt::format("\nmemory plan: {} sequences at once, of at most {} tokens, {} bytes of KV each; {} threads\n",
                        options.max_num_seqs, options.max_model_len, plan.kv_bytes_per_token, options.threads);
    const auto plan_row = [&](const std::string& name, int64_t bytes) {
      text += fmt::format(kPlanRow, name, bytes, HumanBytes(bytes));
    };
    const auto plan_rows = [&](bool on_device) {
      for (const PlannedMemory& allocation : plan.allocations) {
        if (allocation.at_start && allocation.on_device == on_device) plan_row(allocation.text, allocation.bytes);
      }
    };
    if (plan.device_bytes > 0) {
      plan_rows(true);
      plan_row("allocated on the GPU", plan.device_bytes);
      text += "\n";
    }
    plan_row("mapped: the checkpoint, resident as touched", plan.mapped_bytes);
    if (plan.engram_table_bytes > 0) {
      plan_row(options.engram == EngramPlace::kDisk ? "  of it Engram tables, read by rows" : "  of it Engram tables",
               plan.engram_table_bytes);
    }
    plan_rows(false);
    plan_row(plan.device_bytes > 0 ? "allocated on the host" : "allocated in all",
             plan.allocated_bytes - plan.device_bytes);
    for (const PlannedMemory& allocation : plan.allocations) {
      if (!allocation.at_start) plan_row(allocation.text, allocation.bytes);
    }
    return text;
  }

  static std::string JsonText(const EngineCore& engine, const ParameterSummary& summary, const MemoryPlan& plan) {
    const auto count_json = [](const ParameterCount& count) {
      return Json({{"tensors", count.tensors},
                   {"parameters", count.parameters},
                   {"bytes", count.bytes},
                   {"active_parameters", count.active_parameters},
                   {"active_bytes", count.active_bytes}});
    };
    Json parts = Json::object();
    for (int i = 0; i < kModelParts; ++i) {
      const auto part = static_cast<ModelPart>(i);
      parts[ModelPartName(part)] = count_json(summary.part(part));
    }
    Json allocations = Json::object();
    Json on_demand = Json::object();
    for (const PlannedMemory& allocation : plan.allocations) {
      (allocation.at_start ? allocations : on_demand)[allocation.key] = allocation.bytes;
    }
    const Checkpoint& checkpoint = *engine.files().checkpoint;
    const Json object = {{"model", checkpoint.directory().string()},
                         {"config", Json::parse(WriteModelConfig(checkpoint.config()))},
                         {"parameters", {{"parts", parts}, {"total", count_json(summary.total)}}},
                         {"memory_plan",
                          {{"context", engine.options().max_model_len},
                           {"threads", engine.options().threads},
                           {"max_num_seqs", engine.options().max_num_seqs},
                           {"mapped_bytes", plan.mapped_bytes},
                           {"engram_table_bytes", plan.engram_table_bytes},
                           {"kv_bytes_per_token", plan.kv_bytes_per_token},
                           {"allocations", allocations},
                           {"on_demand", on_demand},
                           {"allocated_bytes", plan.allocated_bytes},
                           {"device_bytes", plan.device_bytes}}}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  EngineFlags engine_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInfoCommand() { return std::make_unique<InfoCommand>(); }

}  // namespace deepinfer
