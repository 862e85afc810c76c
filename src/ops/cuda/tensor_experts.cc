#include "ops/cuda/tensor_experts.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/experts.h"
#include "ops/cuda/skinny_plan.h"
#include "ops/cuda/wide.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kMostSlots = 65536;
constexpr size_t kMostExperts = 512;
constexpr int64_t kWideRowsOfExpert = 16;  // on average: from there on the wide products are faster

// Where all experts of a layer are; `place` says of one weight.
template <typename Function>
std::vector<DeviceExpert> ListExperts(std::span<const ExpertWeights> experts, const Function& place) {
  std::vector<DeviceExpert> table;
  for (const ExpertWeights& expert : experts) {
    const WeightMatrix w1 = place(expert.w1);
    const WeightMatrix w3 = place(expert.w3);
    const WeightMatrix w2 = place(expert.w2);
    table.push_back({w1.data, w1.scale, w3.data, w3.scale, w2.data, w2.scale});
  }
  return table;
}

// The addresses of all experts of a layer, on the device; made once where weights stay. `copied`: those of weights that
// pass are copies of this op.
const DeviceExpert* ExpertTable(Staging& staging, std::span<const ExpertWeights> experts, bool copied) {
  if (copied && staging.Passes(experts.front().w1)) {
    const auto table = ListExperts(experts, [&](const WeightMatrix& weight) { return staging.Weight(weight); });
    const std::span bytes(reinterpret_cast<const uint8_t*>(table.data()), table.size() * sizeof(DeviceExpert));
    return reinterpret_cast<const DeviceExpert*>(staging.TableOfCopies(bytes));
  }
  if (const uint8_t* table = staging.FindTable(experts.data())) return reinterpret_cast<const DeviceExpert*>(table);
  const auto table = ListExperts(experts, [&](const WeightMatrix& weight) { return staging.WeightInPlace(weight); });
  if (!staging.ok()) return nullptr;
  const int64_t bytes = std::ssize(table) * static_cast<int64_t>(sizeof(DeviceExpert));
  return reinterpret_cast<const DeviceExpert*>(staging.Table(experts.data(), table.data(), bytes));
}

}  // namespace

bool TakesTensorExperts(std::span<const ExpertWeights> experts, ActivationFormat activation) {
  return activation == ActivationFormat::kFp8Groups32 && experts.size() <= kMostExperts &&
         SkinnyExpertsFit(experts.front().w1, experts.front().w2);
}

int64_t MostTensorExpertRows(int64_t per_token) { return kMostSlots / per_token; }

void RunTensorExperts(Staging& staging, ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                      std::span<const ExpertWeights> experts, float limit, FloatView out, const SublayerEnd& end) {
  const auto per_token = static_cast<int>(picks.columns);
  const auto count = static_cast<int64_t>(experts.size());
  const int64_t inner = experts.front().w1.rows;
  const ConstFloatView device_weights = staging.In(weights);
  uint8_t* memory = staging.Room<uint8_t>(RoutingBytes(x.rows, per_token, count));
  // The same bits either way.
  const bool wide = x.rows * per_token >= kWideRowsOfExpert * count && WideFits(experts.front().w1, 1) &&
                    WideFits(experts.front().w2, 1);
  // Of few rows SkinnyExperts reads the experts with a row by plain loads, once: where they are in host memory, far
  // fewer bytes cross than a layer has. Else TMA reads them, nearly all.
  const bool few = !wide && LikelyRowsOfExpert(x.rows, per_token, count) <= kMostPlainRows;
  const DeviceExpert* table = ExpertTable(staging, experts, !few);
  // Behind the table, whose copy may be waited for: then lists begin anew.
  if (!staging.OnDevice(picks.data)) {
    const int64_t span = (picks.rows - 1) * picks.stride + picks.columns;
    picks.data = staging.Array(std::span(picks.data, static_cast<size_t>(span)));
  }
  const int64_t bytes = wide ? WideExpertsScratchBytes(x.rows, per_token, x.columns, inner)
                             : SkinnyExpertsScratchBytes(x.rows, per_token, x.columns, inner);
  uint8_t* scratch = staging.Room<uint8_t>(bytes);
  if (!staging.ok()) return;
  const DeviceRouting routing = PlaceRouting(memory, x.rows, per_token, count);
  staging.Launch(&SortByExpert, picks, device_weights, routing);
  const ExpertsPlan plan = PlanOf(routing, table, x.columns, inner, limit);
  if (wide) {
    staging.Launch(&WideExpertsProducts, x, routing, plan, static_cast<void*>(scratch));
  } else {
    const Bf16Rows rows = staging.Prepare(x, Preparation::kQuantised, ColumnOrder::kFp4);
    staging.Launch(&SkinnyExpertsProducts, rows, x.rows, plan, static_cast<void*>(scratch));
  }
  // Asked for behind the products: what makes them may run beside these.
  SublayerEnd staged;
  if (end.n > 0) staged = {staging.In(end.shared), staging.In(end.mix), end.n, staging.InOut(end.streams)};
  if (!staging.ok()) return;
  const ConstFloatView parts =
      wide ? WideExpertsParts(plan, x.rows, scratch) : SkinnyExpertsParts(plan, x.rows, scratch);
  staging.Launch(&SumSlots, parts, wide ? routing.places : nullptr, per_token, out, staged);
}

}  // namespace deepinfer::cuda
