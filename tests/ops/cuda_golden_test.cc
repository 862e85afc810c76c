// The model on a GPU against the golden files of tests/model: in canonical order, where the ids are those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "../model/golden_check.h"
#include "../model/golden_file.h"
#include "../model/model_fixture.h"
#include "ops/cuda/cuda_ops.h"

namespace deepinfer::test {
namespace {

struct GoldenCase {
  const char* model;
  const char* mode;
};

class CudaGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(CudaGolden, Agrees) {
  const auto& [model, mode] = GetParam();
  ModelOptions options;
  options.activation = std::string(mode) == "fp8act" ? ActivationFormat::kFp8Groups32 : ActivationFormat::kExact;
  options.max_rows_per_step = 3072;
  CudaOptions cuda;
  cuda.products = CudaProducts::kCanonical;
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps(cuda);
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  LoadedModel loaded(ModelFolder(model), std::move(ops).value(), options);
  GoldenCheck check(loaded, LimitsFor(model, mode));
  std::vector<std::filesystem::path> files;
  const auto folder = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "golden" / model;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(std::string(".") + mode + ".safetensors")) {
      files.push_back(entry.path());
    }
  }
  ASSERT_FALSE(files.empty()) << folder;
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    Result<GoldenFile> golden = GoldenFile::Open(file);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    check.Run(*golden, file.filename().string());
  }
  check.Finish(std::string(model) + " " + mode);
}

INSTANTIATE_TEST_SUITE_P(Golden, CudaGolden,
                         testing::Values(GoldenCase{"tiny2", "f32act"}, GoldenCase{"tiny2", "fp8act"},
                                         GoldenCase{"nano", "f32act"}, GoldenCase{"nano", "fp8act"}),
                         [](const testing::TestParamInfo<GoldenCase>& info) {
                           return std::string(info.param.model) + "_" + info.param.mode;
                         });

}  // namespace
}  // namespace deepinfer::test
