// The model against recorded outputs of the PyTorch reference: logits, residual streams, expert and row picks, taps,
// drafts, confidences, greedy continuations.
//
// DEEPINFER_SHARED=FOLDER also runs every prompt of FOLDER/golden on the checkpoints under FOLDER/models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "golden_check.h"
#include "golden_file.h"
#include "model_fixture.h"

namespace deepinfer::test {
namespace {

// Names of the golden files of a folder in one mode, shortest file first so that the simplest prompt fails first.
std::vector<std::filesystem::path> GoldenFiles(const std::filesystem::path& folder, const std::string& mode) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with("." + mode + ".safetensors")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    const auto size_a = std::filesystem::file_size(a);
    const auto size_b = std::filesystem::file_size(b);
    return size_a != size_b ? size_a < size_b : a < b;
  });
  return files;
}

enum class Backend { kReference, kCpu };

struct GoldenCase {
  Backend backend;
  const char* model;
  const char* mode;
};

void RunFolder(const std::filesystem::path& model_folder, const std::filesystem::path& golden_folder,
               const GoldenCase& test) {
  const auto& [backend, model, mode] = test;
  ModelOptions options;
  options.activation = std::string(mode) == "fp8act" ? ActivationFormat::kFp8Groups32 : ActivationFormat::kExact;
  options.max_rows_per_step = 3072;
  LoadedModel loaded(model_folder, backend == Backend::kCpu ? MakeCpuOps(1) : MakeReferenceOps(), options);
  GoldenCheck check(loaded, LimitsFor(model, mode));
  const std::vector<std::filesystem::path> files = GoldenFiles(golden_folder, mode);
  ASSERT_FALSE(files.empty()) << golden_folder;
  for (const std::filesystem::path& file : files) {
    Result<GoldenFile> golden = GoldenFile::Open(file);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    check.Run(*golden, file.filename().string());
  }
  check.Finish(std::string(model) + " " + mode);
}

class GoldenInRepository : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenInRepository, Agrees) {
  const GoldenCase& test = GetParam();
  const auto folder = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "golden" / test.model;
  RunFolder(ModelFolder(test.model), folder, test);
}

class GoldenShared : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenShared, Agrees) {
  const char* shared = std::getenv("DEEPINFER_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "DEEPINFER_SHARED is not set";
  const GoldenCase& test = GetParam();
  const std::filesystem::path folder(shared);
  RunFolder(folder / "models" / test.model, folder / "golden" / test.model, test);
}

std::string CaseName(const testing::TestParamInfo<GoldenCase>& info) {
  const std::string backend = info.param.backend == Backend::kCpu ? "cpu_" : "reference_";
  return backend + info.param.model + "_" + info.param.mode;
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenInRepository,
                         testing::Values(GoldenCase{Backend::kReference, "tiny2", "f32act"},
                                         GoldenCase{Backend::kReference, "tiny2", "fp8act"},
                                         GoldenCase{Backend::kCpu, "tiny2", "f32act"},
                                         GoldenCase{Backend::kCpu, "tiny2", "fp8act"},
                                         GoldenCase{Backend::kCpu, "nano", "f32act"},
                                         GoldenCase{Backend::kCpu, "nano", "fp8act"}),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(
    Golden, GoldenShared,
    testing::Values(GoldenCase{Backend::kCpu, "tiny", "f32act"}, GoldenCase{Backend::kCpu, "tiny", "fp8act"},
                    GoldenCase{Backend::kCpu, "tiny2", "f32act"}, GoldenCase{Backend::kCpu, "tiny2", "fp8act"},
                    GoldenCase{Backend::kCpu, "nano", "f32act"}, GoldenCase{Backend::kCpu, "nano", "fp8act"}),
    CaseName);

}  // namespace
}  // namespace deepinfer::test
