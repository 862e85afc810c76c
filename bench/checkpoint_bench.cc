// Time to open the bundled Nano checkpoint (page cache warm), with and without the scan of its scales.
#include <benchmark/benchmark.h>

#include "checkpoint/weights.h"

namespace deepinfer {
namespace {

void OpenNano(benchmark::State& state) {
  const CheckpointOptions options{.check_scales = state.range(0) != 0};
  for (auto _ : state) {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(DEEPINFER_SOURCE_DIR "/models/nano", options);
    if (!checkpoint.ok()) {
      state.SkipWithError(checkpoint.status().message().c_str());
      break;
    }
    benchmark::DoNotOptimize(checkpoint->weights().head.data);
  }
}
BENCHMARK(OpenNano)->Arg(0)->Arg(1)->ArgName("check_scales")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace deepinfer

BENCHMARK_MAIN();
