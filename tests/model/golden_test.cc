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

void RunFolder(const std::filesystem::path& model_folder, const std::filesystem::path& golden_folder,
               const std::string& model, const std::string& mode, double calm_share) {
  ModelOptions options;
  options.activation = mode == "fp8act" ? ActivationFormat::kFp8Groups32 : ActivationFormat::kExact;
  options.max_rows_per_step = 3072;
  LoadedModel loaded(model_folder, MakeReferenceOps(), options);
  GoldenCheck check(loaded, LimitsFor(model, mode));
  const std::vector<std::filesystem::path> files = GoldenFiles(golden_folder, mode);
  ASSERT_FALSE(files.empty()) << golden_folder;
  for (const std::filesystem::path& file : files) {
    Result<GoldenFile> golden = GoldenFile::Open(file);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    check.Run(*golden, file.filename().string());
  }
  check.Finish(model + " " + mode, calm_share);
}

struct GoldenCase {
  const char* model;
  const char* mode;
};

class GoldenInRepository : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenInRepository, Agrees) {
  const auto [model, mode] = GetParam();
  const auto folder = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "golden" / model;
  RunFolder(ModelFolder(model), folder, model, mode, LimitsFor(model, mode).calm_share);
}

class GoldenShared : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenShared, Agrees) {
  const char* shared = std::getenv("DEEPINFER_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "DEEPINFER_SHARED is not set";
  const auto [model, mode] = GetParam();
  const std::filesystem::path folder(shared);
  RunFolder(folder / "models" / model, folder / "golden" / model, model, mode, LimitsFor(model, mode).calm_share);
}

std::string CaseName(const testing::TestParamInfo<GoldenCase>& info) {
  return std::string(info.param.model) + "_" + info.param.mode;
}

INSTANTIATE_TEST_SUITE_P(Reference, GoldenInRepository,
                         testing::Values(GoldenCase{"tiny2", "f32act"}, GoldenCase{"tiny2", "fp8act"},
                                         GoldenCase{"nano", "f32act"}, GoldenCase{"nano", "fp8act"}),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Reference, GoldenShared,
                         testing::Values(GoldenCase{"tiny", "f32act"}, GoldenCase{"tiny", "fp8act"},
                                         GoldenCase{"tiny2", "f32act"}, GoldenCase{"tiny2", "fp8act"},
                                         GoldenCase{"nano", "f32act"}, GoldenCase{"nano", "fp8act"}),
                         CaseName);

}  // namespace
}  // namespace deepinfer::test
