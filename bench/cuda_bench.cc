// Times the CUDA kernels at released widths against the limits of this GPU, measured in the same run: reads of device
// memory, and a BF16 matrix product of cuBLAS.
//
// Usage: cuda_bench [--cublas=libcublas.so.13] [--only=PART OF A NAME] [--stages=MOST STAGES OF THE BULK FEED]
// [--bulk|--direct]
// --bulk, --direct: layers of experts use that feed always.
#include "cuda_bench.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ops/cuda/device_limits.h"

namespace deepinfer::bench {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

Buffer::Buffer(int64_t bytes) { Check(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "memory"); }

double Bench::Time(int calls, const std::function<void(int)>& run) const {
  for (int i = 0; i < std::min(calls, 3); ++i) run(i);
  Check(cudaStreamSynchronize(stream), "warm-up");
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < calls; ++i) run(i);
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  double total = 0;
  while (times.size() < 7 || (times.size() < 50 && total < 60)) {
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaGraphLaunch(executable, stream), "graph");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "kernel");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    times.push_back(milliseconds);
    total += milliseconds;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2] * 1e-3 / calls;
}

void Bench::Report(const std::string& name, double seconds, double bytes, double flops) const {
  std::printf("%-46s %9.2f us", name.c_str(), seconds * 1e6);
  if (bytes > 0) {
    std::printf("  %7.0f GB/s %5.1f %% of read", bytes / seconds / 1e9,
                100 * bytes / seconds / limits.read_bytes_per_second);
  }
  if (flops > 0) {
    std::printf("  %6.1f TFLOP/s %5.1f %% of BF16 peak", flops / seconds / 1e12,
                100 * flops / seconds / limits.bf16_flops_per_second);
  }
  std::printf("\n");
  std::fflush(stdout);
}

DeviceWeight::DeviceWeight(const Bench& bench, WeightFormat format, int64_t rows, int64_t columns, uint64_t seed)
    : view{nullptr, nullptr, format, rows, columns}, bytes(view.total_bytes()) {
  const int64_t value_bytes = rows * view.row_bytes();
  view.data = bytes.as<uint8_t>();
  if (format == WeightFormat::kBF16) {
    FillBf16(bench.stream, bytes.as<void>(), rows * columns, seed);
    return;
  }
  view.scale = view.data + value_bytes;
  const bool fp4 = format == WeightFormat::kF4Row32;  // random codes, so in any order
  FillBytes(bench.stream, bytes.as<void>(), value_bytes, seed, fp4 ? Fill::kAny : Fill::kE4m3);
  FillBytes(bench.stream, bytes.as<uint8_t>() + value_bytes, view.total_bytes() - value_bytes, seed + 1, Fill::kScales);
}

DeviceRows::DeviceRows(const Bench& bench, int64_t rows, int64_t columns, uint64_t seed, cuda::ColumnOrder order)
    : floats(rows * columns * 4), values(rows * columns * 2) {
  FillFloats(bench.stream, floats.as<float>(), rows * columns, seed);
  view = {floats.as<float>(), rows, columns};
  quantised = {values.as<uint16_t>(), columns};
  cuda::QuantiseRows(bench.stream, view, order, quantised);
}

double RelativeDifference(const Bench& bench, const float* a, const float* b, int64_t count) {
  Buffer sums(2 * sizeof(double));
  Check(cudaMemsetAsync(sums.as<void>(), 0, 2 * sizeof(double), bench.stream), "clear");
  Compare(bench.stream, a, b, count, sums.as<double>());
  double host[2];
  Check(cudaMemcpyAsync(host, sums.as<void>(), sizeof host, cudaMemcpyDeviceToHost, bench.stream), "copy");
  Check(cudaStreamSynchronize(bench.stream), "comparison");
  return std::sqrt(host[0] / host[1]);
}

namespace {

// cublasGemmEx by name, so that a machine without cuBLAS runs the rest.
double MeasureCublas(const Bench& bench, const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "no cuBLAS: %s\n", dlerror());
    return 0;
  }
  using Create = int (*)(void**);
  using SetStream = int (*)(void*, cudaStream_t);
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  const auto set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
  const auto gemm = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
  void* handle = nullptr;
  if (create == nullptr || set_stream == nullptr || gemm == nullptr || create(&handle) != 0) return 0;
  set_stream(handle, bench.stream);
  constexpr int n = 8192;
  constexpr int kBf16 = 14, kComputeF32 = 68, kTranspose = 1, kPlain = 0, kDefaultAlgorithm = -1;
  Buffer a(int64_t{n} * n * 2), b(int64_t{n} * n * 2), c(int64_t{n} * n * 2);
  FillBf16(bench.stream, a.as<void>(), int64_t{n} * n, 1);
  FillBf16(bench.stream, b.as<void>(), int64_t{n} * n, 2);
  const float one = 1, zero = 0;
  int status = 0;
  const auto run = [&](int) {
    status |= gemm(handle, kTranspose, kPlain, n, n, n, &one, a.as<void>(), kBf16, n, b.as<void>(), kBf16, n, &zero,
                   c.as<void>(), kBf16, n, kComputeF32, kDefaultAlgorithm);
  };
  for (int i = 0; i < 20; ++i) run(i);  // clocks settle
  const double seconds = bench.Time(10, run);
  return status == 0 ? 2.0 * n * n * n / seconds : 0;
}

int Main(int argc, char** argv) {
  Bench bench;
  std::string cublas = "libcublas.so.13";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--cublas=", 9) == 0) cublas = argv[i] + 9;
    if (std::strncmp(argv[i], "--only=", 7) == 0) bench.only = argv[i] + 7;
    if (std::strncmp(argv[i], "--stages=", 9) == 0) bench.stages = std::atoi(argv[i] + 9);
    if (std::strcmp(argv[i], "--bulk") == 0) bench.feed = cuda::SkinnyFeed::kBulk;
    if (std::strcmp(argv[i], "--direct") == 0) bench.feed = cuda::SkinnyFeed::kDirect;
  }
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "no GPU");
  Check(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking), "stream");
  bench.limits.read_bytes_per_second = cuda::MeasureDeviceLimits(0, 0.5, int64_t{8} << 30).read_bytes_per_second;
  bench.limits.bf16_flops_per_second = MeasureCublas(bench, cublas);
  bench.limits.bf16_source = "cuBLAS, 8192^3";
  if (bench.limits.bf16_flops_per_second == 0) {
    bench.limits.bf16_flops_per_second = 989e12;
    bench.limits.bf16_source = "the data sheet: no cuBLAS here";
  }
  std::printf("%s, %d SMs, %.0f MiB L2; read %.0f GB/s; BF16 %.0f TFLOP/s (%s)\n", properties.name,
              properties.multiProcessorCount, properties.l2CacheSize / 1048576.0,
              bench.limits.read_bytes_per_second / 1e9, bench.limits.bf16_flops_per_second / 1e12,
              bench.limits.bf16_source.c_str());
  cuda::UseSkinnyFeed(bench.feed, bench.stages);
  BenchLinear(bench);
  BenchExperts(bench);
  BenchWide(bench);
  BenchAttention(bench);
  BenchIndex(bench);
  BenchExpertLayers(bench);
  BenchSmallOps(bench);
  std::printf("%ld launches with the bulk feed\n", static_cast<long>(cuda::BulkSkinnyLaunches()));
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) { return deepinfer::bench::Main(argc, argv); }
