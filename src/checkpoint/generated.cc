// Checkpoint::Generate: addresses and recipes instead of mapped files.
#include "base/generated_weights.h"
#include "checkpoint/parameter_summary.h"
#include "checkpoint/synthetic_values.h"
#include "checkpoint/weight_layout.h"
#include "checkpoint/weights.h"

namespace deepinfer {
namespace {

WeightRecipe RecipeOf(const WeightSlot& slot, const ModelConfig& config, uint64_t seed) {
  const Distribution distribution = DistributionOf(slot, config);
  WeightRecipe recipe;
  recipe.seed = TensorSeed(slot.name, seed);
  recipe.mean = static_cast<float>(distribution.mean);
  recipe.deviation = static_cast<float>(distribution.deviation);
  if (HasScale(slot)) {
    const ByteTable table = MakeByteTable(slot.format, distribution.deviation);
    recipe.table = table.values;
    recipe.scale = table.scale;
  } else {
    recipe.kind = slot.format == WeightFormat::kBF16 ? WeightRecipe::Kind::kBF16 : WeightRecipe::Kind::kF32;
  }
  if (slot.name.ends_with("_base")) {
    recipe.streams = static_cast<int32_t>(config.hc_mult);
    recipe.read_offset = HyperConnectionBase(0, config.hc_mult);
  }
  return recipe;
}

}  // namespace

Result<Checkpoint> Checkpoint::Generate(const ModelConfig& config, const std::string& name, uint64_t seed) {
  if (config.vision) return Status::Unsupported("a vision tower is not generated");
  Checkpoint checkpoint;
  checkpoint.directory_ = name;
  checkpoint.config_ = config;
  const std::vector<WeightSlot> slots = LayOutWeights(config, &checkpoint.weights_);
  int64_t bytes = 0;
  for (const WeightSlot& slot : slots) bytes += slot.View().total_bytes() + 2 * GeneratedWeights::kAlignment;
  DEEPINFER_ASSIGN_OR_RETURN(checkpoint.generated_, GeneratedWeights::Reserve(bytes));
  for (const WeightSlot& slot : slots) {
    WeightMatrix view = slot.View();
    const int64_t value_bytes = view.rows * view.row_bytes();
    const int64_t scale_bytes = view.total_bytes() - value_bytes;
    WeightRecipe recipe = RecipeOf(slot, config, seed);
    const auto add = [&](int64_t size) -> Result<const uint8_t*> {
      if (slot.part == ModelPart::kEngramTables) return checkpoint.generated_->AddReadable(recipe, size);
      return checkpoint.generated_->Add(recipe, size);
    };
    DEEPINFER_ASSIGN_OR_RETURN(view.data, add(value_bytes));
    if (HasScale(slot)) {
      recipe.kind = WeightRecipe::Kind::kScales;
      recipe.seed = TensorSeed(ScaleTensor(slot).name, seed);
      DEEPINFER_ASSIGN_OR_RETURN(view.scale, add(scale_bytes));
    }
    checkpoint.list_.push_back(ListedWeight(slot, view));
    if (slot.matrix != nullptr) *slot.matrix = view;
    if (slot.vector != nullptr) {
      *slot.vector = {view.data, view.format == WeightFormat::kBF16, view.rows * view.columns};
    }
  }
  return checkpoint;
}

int64_t Checkpoint::bytes() const {
  if (generated_ != nullptr) return SummariseParameters(config_).total.bytes;
  int64_t bytes = 0;
  for (const SafetensorsFile& file : files_) bytes += static_cast<int64_t>(file.file_bytes());
  return bytes;
}

}  // namespace deepinfer
