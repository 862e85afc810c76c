// Matrix products: FP8 and BF16 linears, FP4 experts.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda_bench.h"
#include "ops/cuda/direct_experts.h"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/wide.h"

namespace deepinfer::bench {
namespace {

constexpr int64_t kWidth = 5120;
constexpr int64_t kInner = 2304;
constexpr int64_t kExperts = 384;
constexpr int64_t kSetBytes = int64_t{600} << 20;  // many times the L2
constexpr int64_t kRows[] = {1, 8, 16, 32, 64};
constexpr int64_t kMostRows = 64;

struct LinearCase {
  const char* name;
  int64_t outputs, columns;
  int groups;
};

std::string Name(const char* name, const char* unit, int64_t count) {
  char text[96];
  std::snprintf(text, sizeof text, "%s, %ld %s", name, static_cast<long>(count), unit);
  return text;
}

/// Sets of one weight that are many times the L2.
std::vector<DeviceWeight> MakeSets(const Bench& bench, WeightFormat format, int64_t outputs, int64_t columns) {
  std::vector<DeviceWeight> sets;
  sets.emplace_back(bench, format, outputs, columns, 1);
  const int64_t count = std::max<int64_t>(kSetBytes / sets[0].view.total_bytes(), 2);
  for (int64_t i = 1; i < count; ++i) sets.emplace_back(bench, format, outputs, columns, 10 * static_cast<uint64_t>(i));
  return sets;
}

void ReportDifference(const Bench& bench, const char* name, const Buffer& actual, const Buffer& expected,
                      int64_t count) {
  std::printf("%-46s |difference| %.1e of the canonical order's\n", name,
              RelativeDifference(bench, actual.as<float>(), expected.as<float>(), count));
}

void BenchFp8(const Bench& bench, const LinearCase& c) {
  const std::vector<DeviceWeight> sets = MakeSets(bench, WeightFormat::kF8Block32, c.outputs, c.columns);
  const DeviceRows x(bench, kMostRows, c.columns * c.groups, 7, cuda::ColumnOrder::kFp8);
  Buffer out(kMostRows * c.outputs * 4), expected(kMostRows * c.outputs * 4),
      rounded(kMostRows * c.columns * c.groups * 4);
  const FloatView input(rounded.as<float>(), kMostRows, c.columns * c.groups);
  cuda::QuantiseActivations(bench.stream, x.view, input);
  cuda::CanonicalLinear(bench.stream, input, sets[0].view, c.groups, {expected.as<float>(), kMostRows, c.outputs});
  const auto run = [&](int64_t rows, int i) {
    cuda::DirectLinear(bench.stream, x.quantised, rows, sets[static_cast<size_t>(i)].view, c.groups,
                       {out.as<float>(), rows, c.outputs});
  };
  run(kMostRows, 0);
  ReportDifference(bench, c.name, out, expected, kMostRows * c.outputs);
  for (const int64_t rows : kRows) {
    bench.Report(Name(c.name, "rows", rows), bench.Time(static_cast<int>(sets.size()), [&](int i) { run(rows, i); }),
                 static_cast<double>(sets[0].view.total_bytes()), 0);
  }
}

/// Activations that are not quantised: split into terms, multiplied, and the terms of FP8 weights joined.
void BenchExact(const Bench& bench, WeightFormat format, const LinearCase& c) {
  const bool fp8 = format == WeightFormat::kF8Block32;
  const std::vector<DeviceWeight> sets = MakeSets(bench, format, c.outputs, c.columns);
  const cuda::ColumnOrder order = fp8 ? cuda::ColumnOrder::kFp8 : cuda::ColumnOrder::kPlain;
  const int64_t width = c.columns * c.groups;
  const DeviceRows x(bench, kMostRows, width, 7, order);
  Buffer terms(kMostRows * cuda::kExactTerms * width * 2), products(kMostRows * cuda::kExactTerms * c.outputs * 4),
      out(kMostRows * c.outputs * 4), expected(kMostRows * c.outputs * 4);
  const cuda::Bf16Rows split{terms.as<uint16_t>(), width};
  const auto run = [&](int64_t rows, int i) {
    const WeightMatrix& weight = sets[static_cast<size_t>(i)].view;
    const FloatView result(out.as<float>(), rows, c.outputs);
    cuda::SplitRows(bench.stream, x.view.RowRange(0, rows), order, split);
    if (!fp8) return cuda::Bf16Linear(bench.stream, split, rows, weight, result);
    const FloatView of_terms(products.as<float>(), rows * cuda::kExactTerms, c.outputs);
    cuda::DirectLinear(bench.stream, split, of_terms.rows, weight, c.groups, of_terms);
    cuda::JoinTerms(bench.stream, of_terms, result, {});
  };
  cuda::CanonicalLinear(bench.stream, x.view, sets[0].view, c.groups, {expected.as<float>(), kMostRows, c.outputs});
  run(kMostRows, 0);
  ReportDifference(bench, c.name, out, expected, kMostRows * c.outputs);
  for (const int64_t rows : kRows) {
    bench.Report(Name(c.name, "rows", rows), bench.Time(static_cast<int>(sets.size()), [&](int i) { run(rows, i); }),
                 static_cast<double>(sets[0].view.total_bytes()), 0);
  }
}

}  // namespace

void BenchLinear(const Bench& bench) {
  for (const LinearCase& c :
       {LinearCase{"fp8 wq_b 32768x1280", 32768, 1280, 1}, LinearCase{"fp8 wo_b 5120x8192", 5120, 8192, 1},
        LinearCase{"fp8 engram wkv 25600x6144", 25600, 6144, 1}, LinearCase{"fp8 shared w1 2304x5120", 2304, 5120, 1},
        LinearCase{"fp8 shared w2 5120x2304", 5120, 2304, 1}, LinearCase{"fp8 wq_a 1280x5120", 1280, 5120, 1},
        LinearCase{"fp8 wkv 512x5120", 512, 5120, 1}}) {
    if (bench.Wanted(c.name)) BenchFp8(bench, c);
  }
  const LinearCase wo_a{"fp8 wo_a 8192x4096 of 8 groups, exact", 8192, 4096, 8};
  if (bench.Wanted(wo_a.name)) BenchExact(bench, WeightFormat::kF8Block32, wo_a);
  for (const LinearCase& c :
       {LinearCase{"bf16 head 129280x5120", 129280, 5120, 1}, LinearCase{"bf16 gate 384x5120", 384, 5120, 1}}) {
    if (bench.Wanted(c.name)) BenchExact(bench, WeightFormat::kBF16, c);
  }
}

void BenchExperts(const Bench& bench) {
  if (!bench.Wanted("fp4 experts")) return;
  std::vector<DeviceWeight> weights;
  std::vector<cuda::DeviceExpert> experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    const uint64_t seed = 100 + 10 * static_cast<uint64_t>(e);
    weights.emplace_back(bench, WeightFormat::kF4Row32, kInner, kWidth, seed);
    weights.emplace_back(bench, WeightFormat::kF4Row32, kInner, kWidth, seed + 2);
    weights.emplace_back(bench, WeightFormat::kF4Row32, kWidth, kInner, seed + 4);
    const WeightMatrix &w1 = weights[weights.size() - 3].view, &w3 = weights[weights.size() - 2].view,
                       &w2 = weights.back().view;
    experts.push_back({w1.data, w1.scale, w3.data, w3.scale, w2.data, w2.scale});
  }
  const double expert_bytes = 3.0 * static_cast<double>(weights[0].view.total_bytes());
  const auto upload = [&](const auto& values) {
    Buffer buffer(static_cast<int64_t>(values.size() * sizeof values[0]));
    Check(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof values[0], cudaMemcpyHostToDevice),
          "copy");
    return buffer;
  };
  const Buffer device_experts = upload(experts);
  struct Case {
    int64_t active, rows_each;
  };
  for (const Case& c : {Case{6, 1}, Case{90, 1}, Case{384, 1}, Case{384, 2}, Case{384, 4}, Case{384, 8}, Case{384, 16},
                        Case{384, 32}}) {
    // Every slot is a token of its own; sets of `active` experts take turns.
    const int64_t slots = c.active * c.rows_each;
    const int sets = static_cast<int>(std::min<int64_t>(kExperts / c.active, 32));
    std::vector<int32_t> active, offsets(kExperts + 1, 0), order;
    for (int32_t e = 0; e < kExperts; ++e) active.push_back(e);
    for (int64_t e = 0; e < kExperts; ++e) {
      offsets[static_cast<size_t>(e) + 1] = static_cast<int32_t>((e + 1) * c.rows_each);
    }
    for (int64_t i = 0; i < kExperts * c.rows_each; ++i) order.push_back(static_cast<int32_t>(i % slots));
    const std::vector<float> routing(static_cast<size_t>(slots), 0.25f);
    const Buffer device_active = upload(active), device_offsets = upload(offsets), device_order = upload(order),
                 device_weights = upload(routing);
    const DeviceRows x(bench, slots, kWidth, 5, cuda::ColumnOrder::kFp4);
    Buffer hidden(slots * kInner * 2), parts(slots * kWidth * 4);
    const auto run = [&](int i) {
      cuda::ExpertsPlan plan;
      plan.experts = device_experts.as<cuda::DeviceExpert>();
      plan.active = device_active.as<int32_t>() + i * c.active;
      plan.active_count = static_cast<int>(c.active);
      plan.most_rows = static_cast<int>(c.rows_each);
      plan.offsets = device_offsets.as<int32_t>();
      plan.order = device_order.as<int32_t>();
      plan.weights = device_weights.as<float>();
      plan.columns = kWidth;
      plan.inner = kInner;
      plan.limit = 10;
      cuda::SkinnyExperts(bench.stream, plan, x.quantised, {hidden.as<uint16_t>(), kInner},
                          {parts.as<float>(), slots, kWidth});
    };
    const auto report = [&](const std::string& how) {
      bench.Report("fp4 experts, " + std::to_string(c.active) + " of " + std::to_string(c.rows_each) + " rows" + how,
                   bench.Time(sets, run), static_cast<double>(c.active) * expert_bytes,
                   c.rows_each >= 16 ? static_cast<double>(slots) * 6.0 * kWidth * kInner : 0);
    };
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kThreads);
    report("");
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kBulk, bench.stages);
    report(", bulk");
    if (c.rows_each > 8) continue;  // the direct feed would read weights again
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kDirect);
    report(", direct");
    cuda::UseDirectForm(cuda::DirectForm::kTwoTiles);
    report(", direct, two tiles");
    cuda::UseDirectForm(cuda::DirectForm::kAuto);
  }
  cuda::UseSkinnyFeed(bench.feed, bench.stages);
}

void BenchWide(const Bench& bench) {
  constexpr int64_t kTokens = 4096;
  for (const LinearCase& c :
       {LinearCase{"wide fp8 wq_b 32768x1280", 32768, 1280, 1}, LinearCase{"wide fp8 wo_b 5120x8192", 5120, 8192, 1},
        LinearCase{"wide fp8 wo_a 8192x4096 of 8 groups", 8192, 4096, 8},
        LinearCase{"wide fp8 engram wkv 25600x6144", 25600, 6144, 1},
        LinearCase{"wide fp8 shared w1 2304x5120", 2304, 5120, 1}}) {
    if (!bench.Wanted(c.name)) continue;
    const DeviceWeight weight(bench, WeightFormat::kF8Block32, c.outputs, c.columns, 3);
    const DeviceRows x(bench, kTokens, c.columns * c.groups, 7, cuda::ColumnOrder::kFp8Wide),
        direct(bench, kTokens, c.columns * c.groups, 7, cuda::ColumnOrder::kFp8);
    Buffer out(kTokens * c.outputs * 4), expected(64 * c.outputs * 4);
    const FloatView view(out.as<float>(), kTokens, c.outputs);
    const auto run = [&](int) { cuda::WideLinear(bench.stream, x.quantised, kTokens, weight.view, c.groups, view); };
    run(0);
    const cuda::Bf16Rows last{direct.quantised.values + (kTokens - 64) * direct.quantised.columns,
                              direct.quantised.columns};
    cuda::DirectLinear(bench.stream, last, 64, weight.view, c.groups, {expected.as<float>(), 64, c.outputs});
    std::printf("%-46s |difference| %.1e of DirectLinear's\n", c.name,
                RelativeDifference(bench, view.row(kTokens - 64), expected.as<float>(), 64 * c.outputs));
    bench.Report(Name(c.name, "rows", kTokens), bench.Time(5, run), 0,
                 2.0 * kTokens * static_cast<double>(c.outputs) * static_cast<double>(c.columns));
    const std::vector<DeviceWeight> sets = MakeSets(bench, WeightFormat::kF8Block32, c.outputs, c.columns);
    for (const int64_t rows : {32, 64, 128}) {
      const auto few = [&](int i) {
        cuda::WideLinear(bench.stream, x.quantised, rows, sets[static_cast<size_t>(i)].view, c.groups,
                         view.RowRange(0, rows));
      };
      bench.Report(Name(c.name, "rows", rows), bench.Time(static_cast<int>(sets.size()), few),
                   static_cast<double>(weight.view.total_bytes()), 0);
    }
  }
}

}  // namespace deepinfer::bench
