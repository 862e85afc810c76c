#include "checkpoint/parameter_summary.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace deepinfer {
namespace {

ParameterSummary Summarise(const std::filesystem::path& config) {
  return SummariseParameters(ParseModelConfig(testing_files::ReadText(config)).value());
}

// The table of models/nano/README.md.
TEST(ParameterSummary, Nano) {
  const ParameterSummary nano = Summarise(testing_files::kNano / "config.json");
  EXPECT_EQ(nano.part(ModelPart::kEmbedding).parameters, 2621440);
  EXPECT_EQ(nano.part(ModelPart::kHead).parameters, 2621440);
  EXPECT_EQ(nano.part(ModelPart::kRoutedExperts).parameters, 19660800);
  EXPECT_EQ(nano.part(ModelPart::kEngramTables).parameters, 6166592);
  EXPECT_EQ(nano.part(ModelPart::kDraft).parameters, 5723582);
  EXPECT_EQ(nano.part(ModelPart::kVision).parameters, 0);
  EXPECT_EQ(nano.total.parameters, 42431362);
  EXPECT_EQ(nano.total.tensors, 1534);
  EXPECT_EQ(nano.total.bytes, 40943740);
  EXPECT_EQ(
      nano.total.parameters - nano.part(ModelPart::kEngramTables).parameters - nano.part(ModelPart::kDraft).parameters,
      30541188);
  // The README leaves out the one embedding row and the 12 rows of each Engram table that a token reads.
  EXPECT_EQ(nano.part(ModelPart::kEmbedding).active_parameters, 320);
  EXPECT_EQ(nano.part(ModelPart::kEngramTables).active_parameters, 2 * 6 * 32);
  EXPECT_EQ(nano.total.active_parameters - 320 - 2 * 6 * 32, 13174148);
}

// The figures of spec section (b).
TEST(ParameterSummary, Release) {
  const ParameterSummary release = Summarise(testing_files::kReleaseConfig);
  EXPECT_EQ(release.total.tensors, 96085);
  EXPECT_EQ(release.part(ModelPart::kDraft).tensors, 2401);
  EXPECT_EQ(release.part(ModelPart::kVision).tensors, 259 + 4 + 3);
  EXPECT_EQ(release.part(ModelPart::kRoutedExperts).bytes, int64_t{40} * 384 * 18800640);
  EXPECT_NEAR(static_cast<double>(release.total.bytes), 510.3e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(release.part(ModelPart::kEngramTables).parameters), 196.6e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(release.part(ModelPart::kDraft).parameters), 14.2e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(release.part(ModelPart::kVision).bytes), 0.97e9, 0.005e9);
  EXPECT_EQ(release.part(ModelPart::kEmbedding).bytes + release.part(ModelPart::kHead).bytes,
            int64_t{2} * 129280 * 5120 * 2);
  EXPECT_EQ(release.part(ModelPart::kEngramTables).active_bytes, 2 * 6336);
  EXPECT_EQ(release.part(ModelPart::kRoutedExperts).active_bytes, int64_t{40} * 6 * 18800640);
  EXPECT_EQ(release.part(ModelPart::kVision).active_bytes, 0);
}

TEST(ParameterSummary, TotalsAreSumsOfTheParts) {
  const ParameterSummary summary = Summarise(testing_files::kReleaseConfig);
  ParameterCount sum;
  for (const ParameterCount& part : summary.parts) sum.Add(part);
  EXPECT_EQ(sum.bytes, summary.total.bytes);
  EXPECT_EQ(sum.parameters, summary.total.parameters);
  EXPECT_EQ(sum.active_bytes - summary.part(ModelPart::kDraft).active_bytes, summary.total.active_bytes);
  EXPECT_LT(summary.total.active_bytes, summary.total.bytes);
}

}  // namespace
}  // namespace deepinfer
