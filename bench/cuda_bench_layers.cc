// The experts op as a step runs it: sort of the picks, quantisation, products, sum.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "cuda_bench.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/kernels.h"

namespace deepinfer::bench {
namespace {

constexpr int64_t kWidth = 5120;
constexpr int64_t kInner = 2304;
constexpr int64_t kExperts = 384;
constexpr int kPerToken = 6;

std::string Name(const char* name, int64_t rows) { return std::string(name) + ", " + std::to_string(rows) + " rows"; }

void BenchRouting(const Bench& bench) {
  const int64_t most = 8192;
  Buffer logits_buffer(most * kExperts * 4), bias_buffer(kExperts * 4), picks_buffer(most * kPerToken * 4),
      weights_buffer(most * kPerToken * 4);
  FillFloats(bench.stream, bias_buffer.as<float>(), kExperts, 2);
  const WeightVector bias{bias_buffer.as<uint8_t>(), false, kExperts};
  for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{64}, most}) {
    const FloatView logits(logits_buffer.as<float>(), rows, kExperts);
    const TensorView<int32_t> picks(picks_buffer.as<int32_t>(), rows, kPerToken);
    const FloatView weights(weights_buffer.as<float>(), rows, kPerToken);
    Buffer memory(cuda::RoutingBytes(rows, kPerToken, kExperts));
    const cuda::DeviceRouting routing = cuda::PlaceRouting(memory.as<void>(), rows, kPerToken, kExperts);
    FillFloats(bench.stream, logits.data, rows * kExperts, 1);
    const auto finish = [&](int) {
      cuda::FinishRoute(bench.stream, logits, bias, true, 1.5f, picks.data, kPerToken, kPerToken, weights);
    };
    const auto sort = [&](int) { cuda::SortByExpert(bench.stream, picks, weights, routing); };
    bench.Report(Name("routing: top-6", rows), bench.Time(16, finish), 0, 0);
    bench.Report(Name("routing: sort", rows), bench.Time(16, sort), 0, 0);
  }
}

void BenchLayers(const Bench& bench) {
  std::vector<DeviceWeight> weights;
  std::vector<cuda::DeviceExpert> experts;
  for (uint64_t e = 0; e < kExperts; ++e) {
    weights.emplace_back(bench, WeightFormat::kF4Row32, kInner, kWidth, 100 + 10 * e);
    weights.emplace_back(bench, WeightFormat::kF4Row32, kInner, kWidth, 102 + 10 * e);
    weights.emplace_back(bench, WeightFormat::kF4Row32, kWidth, kInner, 104 + 10 * e);
    const WeightMatrix &w1 = weights[3 * e].view, &w3 = weights[3 * e + 1].view, &w2 = weights[3 * e + 2].view;
    experts.push_back({w1.data, w1.scale, w3.data, w3.scale, w2.data, w2.scale});
  }
  const double expert_bytes = 3.0 * static_cast<double>(weights[0].view.total_bytes());
  const auto upload = [&](const auto& values) {
    Buffer buffer(static_cast<int64_t>(values.size() * sizeof values[0]));
    Check(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof values[0], cudaMemcpyHostToDevice),
          "copy");
    return buffer;
  };
  const Buffer table = upload(experts);
  std::mt19937_64 random(1);
  for (const auto& [rows, wide] : {std::pair<int64_t, bool>{1, false},
                                   {4, false},
                                   {16, false},
                                   {64, false},
                                   {1024, false},
                                   {1024, true},
                                   {2048, false},
                                   {2048, true},
                                   {4096, true},
                                   {8192, true}}) {
    const int sets = wide ? 1 : 32;  // of picks
    std::vector<int32_t> picks;
    double active = 0;
    for (int set = 0; set < sets; ++set) {
      std::set<int32_t> of_set;
      for (int64_t t = 0; t < rows; ++t) {
        std::set<int32_t> row;
        while (row.size() < kPerToken) row.insert(static_cast<int32_t>(random() % kExperts));
        picks.insert(picks.end(), row.begin(), row.end());
        of_set.insert(row.begin(), row.end());
      }
      active += static_cast<double>(of_set.size()) / sets;
    }
    const Buffer device_picks = upload(picks),
                 mix = upload(std::vector<float>(static_cast<size_t>(rows * kPerToken), 0.25f));
    const DeviceRows x(bench, rows, kWidth, 5, cuda::ColumnOrder::kFp4);
    Buffer memory(cuda::RoutingBytes(rows, kPerToken, kExperts)), out(rows * kWidth * 4),
        scratch(wide ? cuda::WideExpertsScratchBytes(rows, kPerToken, kWidth, kInner)
                     : cuda::SkinnyExpertsScratchBytes(rows, kPerToken, kWidth, kInner));
    const FloatView result(out.as<float>(), rows, kWidth);
    const double seconds = bench.Time(sets, [&](int i) {
      const cuda::DeviceRouting routing = cuda::PlaceRouting(memory.as<void>(), rows, kPerToken, kExperts);
      cuda::SortByExpert(bench.stream, {device_picks.as<int32_t>() + i * rows * kPerToken, rows, kPerToken},
                         {mix.as<float>(), rows, kPerToken}, routing);
      const cuda::ExpertsPlan plan = cuda::PlanOf(routing, table.as<cuda::DeviceExpert>(), kWidth, kInner, 10);
      if (wide) {
        cuda::WideExpertsProducts(bench.stream, x.view, routing, plan, scratch.as<void>());
        cuda::SumSlots(bench.stream, cuda::WideExpertsParts(plan, rows, scratch.as<void>()), routing.places, kPerToken,
                       result);
      } else {
        cuda::QuantiseRows(bench.stream, x.view, cuda::ColumnOrder::kFp4, x.quantised);
        cuda::SkinnyExpertsProducts(bench.stream, x.quantised, rows, plan, scratch.as<void>());
        cuda::SumSlots(bench.stream, cuda::SkinnyExpertsParts(plan, rows, scratch.as<void>()), nullptr, kPerToken,
                       result);
      }
    });
    bench.Report(Name(wide ? "experts layer, wide" : "experts layer, skinny", rows), seconds, active * expert_bytes,
                 wide ? 6.0 * static_cast<double>(rows * kPerToken) * kWidth * kInner : 0);
  }
}

}  // namespace

void BenchExpertLayers(const Bench& bench) {
  if (bench.Wanted("routing")) BenchRouting(bench);
  if (bench.Wanted("experts layer")) BenchLayers(bench);
}

}  // namespace deepinfer::bench
