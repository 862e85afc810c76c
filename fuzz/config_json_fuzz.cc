// Any bytes as config.json: an error of one line, or a configuration whose parts fit together and that reads back.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/parameter_summary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using deepinfer::ModelConfig;
  const auto parsed = deepinfer::ParseModelConfig({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    const std::string message = parsed.status().message();
    if (message.empty() || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const ModelConfig& config = *parsed;
  for (int layer = 0; layer < config.LayerCount(); ++layer) {
    const bool compressed = config.ratio(layer) > 0;
    if (compressed != (config.KvSourceOf(layer) >= 0) || compressed != (config.IndexSourceOf(layer) >= 0)) std::abort();
    if (compressed && config.ratio(config.KvSourceOf(layer)) != config.ratio(layer)) std::abort();
    if (config.ExpertsPerToken(layer) > config.RoutedExperts(layer)) std::abort();
  }
  const std::string written = deepinfer::WriteModelConfig(config);
  const auto again = deepinfer::ParseModelConfig(written);
  if (!again.ok() || deepinfer::WriteModelConfig(*again) != written) std::abort();
  // Laying out every tensor takes a while for very many experts, and they are alike.
  const int64_t experts = config.num_hidden_layers * config.n_routed_experts +
                          config.num_nextn_predict_layers * config.dspark_n_routed_experts;
  if (experts > 4000) return 0;
  const deepinfer::ParameterSummary summary = deepinfer::SummariseParameters(config);
  if (summary.total.bytes <= 0 || summary.total.active_bytes > summary.total.bytes) std::abort();
  return 0;
}
