#include "engine/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

double Uniform(uint64_t seed, uint64_t index, uint32_t lane) {
  return OpenUnit(CounterBits(seed, index, lane, RandomPurpose::kSeed));
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Blocks of a head whose logit k is `truth[k]` times what it should be. `cut` < 1: blocks whose survival falls below
/// it are verified only so far, as a planner would.
DraftObservations Simulate(const std::vector<double>& truth, int64_t count, double cut, uint64_t seed = 7) {
  const int b = static_cast<int>(truth.size());
  DraftObservations observations(b, count);
  for (int64_t n = 0; n < count; ++n) {
    std::vector<float> logits;
    int verified = 0;
    int accepted = 0;
    double survival = 1;
    bool alive = true;
    for (int k = 0; k < b; ++k) {
      logits.push_back(static_cast<float>(-3 + 8 * Uniform(seed, n, 2 * k)));
      survival *= Sigmoid(logits.back());
      if (verified == k && (k == 0 || survival >= cut)) ++verified;
      alive = alive && Uniform(seed, n, 2 * k + 1) < Sigmoid(logits.back() / truth[k]);
      if (alive && k < verified) ++accepted;
    }
    EXPECT_TRUE(observations.Add({.confidence = logits, .verified = verified, .accepted = accepted}));
  }
  return observations;
}

TEST(Survival, IsTheCumulativeProduct) {
  Calibration calibration;
  calibration.temperatures = {1, 2, 0.5};
  std::vector<float> survival(3);
  Survival(std::vector<float>{2, -1, 0.25F}, calibration, survival);
  EXPECT_FLOAT_EQ(survival[0], static_cast<float>(Sigmoid(2)));
  EXPECT_FLOAT_EQ(survival[1], static_cast<float>(Sigmoid(2) * Sigmoid(-0.5)));
  EXPECT_FLOAT_EQ(survival[2], static_cast<float>(Sigmoid(2) * Sigmoid(-0.5) * Sigmoid(0.5)));
  Survival(std::vector<float>{0, 0, 0}, Calibration(), survival);
  EXPECT_EQ(survival, (std::vector<float>{0.5F, 0.25F, 0.125F}));
}

TEST(Survival, NeverRisesAndStaysWithinBounds) {
  std::vector<float> survival(4);
  Survival(std::vector<float>{1e30F, INFINITY, -1e30F, 3}, Calibration(), survival);
  EXPECT_EQ(survival, (std::vector<float>{1, 1, 0, 0}));
  Survival(std::vector<float>{1, NAN, 1, 1}, Calibration(), survival);
  EXPECT_GT(survival[0], 0.7F);
  EXPECT_EQ(survival[1], 0);
  EXPECT_EQ(survival[3], 0);
  for (uint64_t n = 0; n < 1000; ++n) {
    std::vector<float> logits;
    for (uint32_t k = 0; k < 4; ++k) logits.push_back(static_cast<float>(40 * Uniform(3, n, k) - 10));
    Survival(logits, Calibration(), survival);
    for (size_t k = 1; k < 4; ++k) ASSERT_LE(survival[k], survival[k - 1]);
  }
}

TEST(FitCalibration, FindsTheTemperaturesOfTheHead) {
  const std::vector<double> truth = {1.5, 0.8, 2.0};
  const Result<Calibration> fit = FitCalibration(Simulate(truth, 20000, 0), "model");
  ASSERT_TRUE(fit.ok());
  ASSERT_EQ(fit->temperatures.size(), 3);
  EXPECT_NEAR(fit->temperatures[0], 1.5, 0.15);
  EXPECT_NEAR(fit->temperatures[1], 0.8, 0.15);
  EXPECT_NEAR(fit->temperatures[2], 2.0, 0.4);
  EXPECT_GT(fit->error_before, 0.04);
  EXPECT_LT(fit->error_after, 0.01);
  EXPECT_EQ(fit->observations, 20000);
  EXPECT_EQ(fit->model_fingerprint, "model");
}

TEST(FitCalibration, TrimmedBlocksDoNotCountAsRejected) {
  // More than half of the blocks are not verified to their end; taken as rejections they would ask for temperatures
  // that lower the survival of later positions.
  const std::vector<double> truth = {1, 1, 1};
  const DraftObservations observations = Simulate(truth, 20000, 0.4);
  int64_t trimmed = 0;
  for (int64_t i = 0; i < observations.size(); ++i) trimmed += observations.at(i).verified < 3 ? 1 : 0;
  ASSERT_GT(trimmed, 10000);
  const Result<Calibration> fit = FitCalibration(observations, "");
  ASSERT_TRUE(fit.ok());
  EXPECT_LT(fit->error_before, 0.02);
  for (const double temperature : fit->temperatures) EXPECT_NEAR(temperature, 1, 0.3);
}

TEST(FitCalibration, NoTemperatureOfTheGridIsBetter) {
  const DraftObservations observations = Simulate({2.2, 0.6}, 500, 0.3);
  const Result<Calibration> fit = FitCalibration(observations, "");
  ASSERT_TRUE(fit.ok());
  // Position 2 by the definition, spelled out.
  const auto error = [&](double temperature) {
    std::vector<double> gap(kCalibrationBins);
    double count = 0;
    for (int64_t i = 0; i < observations.size(); ++i) {
      const DraftObservation o = observations.at(i);
      if (o.verified < 2) continue;
      const double p = Sigmoid(o.confidence[0] / fit->temperatures[0]) * Sigmoid(o.confidence[1] / temperature);
      gap[std::min<size_t>(static_cast<size_t>(p * kCalibrationBins), kCalibrationBins - 1)] += p - (o.accepted >= 2);
      ++count;
    }
    double sum = 0;
    for (const double g : gap) sum += std::abs(g);
    return sum / count;
  };
  const double chosen = error(fit->temperatures[1]);
  for (int step = -48; step <= 48; ++step) EXPECT_GE(error(std::exp2(step / 16.0)), chosen - 1e-12) << step;
}

TEST(FitCalibration, NeedsObservations) {
  EXPECT_EQ(FitCalibration(Simulate({1, 1}, 99, 0), "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FitCalibration(DraftObservations(2), "", {.least_observations = 0}).status().code(),
            StatusCode::kInvalidArgument);
  // Position 2 is seen too seldom: it stays as it was.
  DraftObservations observations(2, 300);
  for (int n = 0; n < 300; ++n) {
    const std::vector<float> logits = {4, 4};
    ASSERT_TRUE(observations.Add({.confidence = logits, .verified = n < 50 ? 2 : 1, .accepted = n % 2}));
  }
  const Result<Calibration> fit = FitCalibration(observations, "");
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->temperatures[0], 8) << "a coin that claims 98 %";
  EXPECT_EQ(fit->temperatures[1], 1);
}

TEST(DraftObservations, KeepTheLast) {
  DraftObservations observations(1, 3);
  for (int n = 0; n < 5; ++n) {
    const float logit = static_cast<float>(n);
    EXPECT_TRUE(observations.Add({.confidence = {&logit, 1}, .verified = 1, .accepted = n % 2}));
  }
  ASSERT_EQ(observations.size(), 3);
  std::vector<std::pair<float, int>> kept;
  for (int64_t i = 0; i < 3; ++i) kept.emplace_back(observations.at(i).confidence[0], observations.at(i).accepted);
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(kept, (std::vector<std::pair<float, int>>{{2, 0}, {3, 1}, {4, 0}}));
  observations.Clear();
  EXPECT_EQ(observations.size(), 0);
}

TEST(DraftObservations, RefuseNonsense) {
  DraftObservations observations(2, 8);
  const std::vector<float> good = {1, 2};
  const std::vector<float> bad_later = {1, NAN};
  const std::vector<float> wrong_size = {1, 2, 3};
  EXPECT_FALSE(observations.Add({.confidence = good, .verified = 0, .accepted = 0}));
  EXPECT_FALSE(observations.Add({.confidence = good, .verified = 3, .accepted = 0}));
  EXPECT_FALSE(observations.Add({.confidence = good, .verified = 1, .accepted = 2}));
  EXPECT_FALSE(observations.Add({.confidence = good, .verified = 1, .accepted = -1}));
  EXPECT_FALSE(observations.Add({.confidence = wrong_size, .verified = 1, .accepted = 1}));
  EXPECT_FALSE(observations.Add({.confidence = bad_later, .verified = 2, .accepted = 1}));
  EXPECT_EQ(observations.size(), 0);
  EXPECT_TRUE(observations.Add({.confidence = bad_later, .verified = 1, .accepted = 1})) << "never looked at";
}

Calibration Example() {
  Calibration calibration;
  calibration.temperatures = {1.25, 1, 0.1 + 0.2};
  calibration.observations = 4096;
  calibration.error_before = 0.0625;
  calibration.error_after = 0.01;
  calibration.model_fingerprint = "nano \"1\"";
  return calibration;
}

TEST(CalibrationFile, HasAFixedText) {
  EXPECT_EQ(CalibrationToJson(Example()),
            "{\n"
            "  \"format\": \"dspark_calibration\",\n"
            "  \"version\": 1,\n"
            "  \"model_fingerprint\": \"nano \\\"1\\\"\",\n"
            "  \"block_size\": 3,\n"
            "  \"temperatures\": [\n"
            "    1.25,\n"
            "    1.0,\n"
            "    0.30000000000000004\n"
            "  ],\n"
            "  \"observations\": 4096,\n"
            "  \"error_before\": 0.0625,\n"
            "  \"error_after\": 0.01\n"
            "}\n");
}

TEST(CalibrationFile, ReadsWhatItWrote) {
  const Result<Calibration> read = CalibrationFromJson(CalibrationToJson(Example()), 3, "nano \"1\"");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->temperatures, Example().temperatures);
  EXPECT_EQ(read->observations, 4096);
  EXPECT_EQ(read->error_before, 0.0625);
  EXPECT_EQ(read->error_after, 0.01);
}

TEST(CalibrationFile, IsRefusedForAnotherModelBlockOrVersion) {
  const std::string text = CalibrationToJson(Example());
  const Status block = CalibrationFromJson(text, 5, "nano \"1\"").status();
  EXPECT_EQ(block.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(block.message(), "made for blocks of 3 drafts, the model drafts 5; run `deepinfer calibrate` again");
  EXPECT_EQ(CalibrationFromJson(text, 3, "flash").status().code(), StatusCode::kInvalidArgument);
  Json json = Json::parse(text);
  json["version"] = 2;
  EXPECT_EQ(CalibrationFromJson(json.dump(), 3, "nano \"1\"").status().code(), StatusCode::kUnsupported);
}

TEST(CalibrationFile, IsRefusedWhenMalformed) {
  const std::string text = CalibrationToJson(Example());
  for (size_t length = 0; length + 1 < text.size(); ++length) {
    ASSERT_EQ(CalibrationFromJson(text.substr(0, length), 3, "nano \"1\"").status().code(), StatusCode::kCorruption)
        << length;
  }
  const Json good = Json::parse(text);
  for (const auto& [key, value] : good.items()) {
    Json json = good;
    json.erase(key);
    const Status status = CalibrationFromJson(json.dump(), 3, "nano \"1\"").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << key;
    EXPECT_NE(status.message().find(key), std::string::npos) << status.message();
    json[key] = nullptr;
    EXPECT_EQ(CalibrationFromJson(json.dump(), 3, "nano \"1\"").status().code(), StatusCode::kCorruption) << key;
  }
  const std::vector<std::pair<std::string, Json>> bad = {
      {"format", "other"},          {"block_size", -3},           {"block_size", 2},
      {"block_size", 3.5},          {"observations", -1},         {"observations", 18446744073709551615ULL},
      {"error_before", 1.5},        {"error_after", "0"},         {"temperatures", {1, 2}},
      {"temperatures", {1, 0, 1}},  {"temperatures", {1, -1, 1}}, {"temperatures", {1, 1e9, 1}},
      {"temperatures", {1, "1", 1}}};
  for (const auto& [key, value] : bad) {
    Json json = good;
    json[key] = value;
    EXPECT_EQ(CalibrationFromJson(json.dump(), 3, "nano \"1\"").status().code(), StatusCode::kCorruption)
        << key << " " << value;
  }
  EXPECT_FALSE(CalibrationFromJson("[1]", 3, "").ok());
  EXPECT_FALSE(CalibrationFromJson(std::string(100000, '['), 3, "").ok());
  EXPECT_FALSE(CalibrationFromJson(std::string(2 << 20, ' ') + text, 3, "nano \"1\"").ok());
}

TEST(CalibrationFile, ReplacesTheOldOneAndLeavesNothingElse) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "calibration_test";
  std::filesystem::remove_all(directory);
  EXPECT_EQ(SaveCalibration(directory, Example()).code(), StatusCode::kIo) << "no such directory";
  std::filesystem::create_directories(directory);
  EXPECT_EQ(LoadCalibration(directory, 3, "").status().code(), StatusCode::kNotFound);

  ASSERT_TRUE(SaveCalibration(directory, Example()).ok());
  Calibration second = Example();
  second.observations = 5;
  ASSERT_TRUE(SaveCalibration(directory, second).ok());
  const Result<Calibration> read = LoadCalibration(directory, 3, "nano \"1\"");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->observations, 5);
  const auto files = std::filesystem::directory_iterator(directory);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);

  const Status status = LoadCalibration(directory, 4, "nano \"1\"").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("dspark_calibration.json: made for blocks"), std::string::npos) << status.message();
  std::ofstream(directory / kCalibrationFileName, std::ios::trunc);
  EXPECT_EQ(LoadCalibration(directory, 3, "nano \"1\"").status().code(), StatusCode::kCorruption);

  // Where the name is taken by a directory the rename fails, and the temporary file is gone again.
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory / kCalibrationFileName / "in the way");
  EXPECT_EQ(SaveCalibration(directory, Example()).code(), StatusCode::kIo);
  const auto rest = std::filesystem::directory_iterator(directory);
  EXPECT_EQ(std::distance(begin(rest), end(rest)), 1);
  std::filesystem::remove_all(directory);
}

TEST(CalibrationError, IsTheGapOfTheBins) {
  CalibrationError error;
  EXPECT_EQ(error.Value(), 0);
  // Bin of 0.9: predicted 0.9, happened 1 of 2. Bin of 0.1: predicted 0.1, happened 0 of 2.
  for (const bool happened : {true, false}) error.Add(0.9, happened);
  for (int i = 0; i < 2; ++i) error.Add(0.1, false);
  EXPECT_NEAR(error.Value(), (2 * 0.4 + 2 * 0.1) / 4, 1e-12);
  CalibrationError other;
  other.Add(1.0, true);
  other.Add(0.0, false);
  EXPECT_EQ(other.Value(), 0) << "the ends of the range belong to the outer bins";
  EXPECT_EQ(error.count(), 4);
}

TEST(SpeculationStatistics, Counts) {
  SpeculationStatistics statistics(2);
  EXPECT_EQ(statistics.TokensPerStep(), 0);
  statistics.RecordPlain();
  statistics.RecordDrafted(std::vector<float>{0.9F, 0.5F}, 2, 2);
  statistics.RecordDrafted(std::vector<float>{0.9F, 0.5F}, 2, 1);
  statistics.RecordDrafted(std::vector<float>{0.3F, 0.1F}, 1, 0);
  statistics.RecordDrafted({}, 0, 0);
  EXPECT_EQ(statistics.plain_steps(), 1);
  EXPECT_EQ(statistics.drafted_steps(), 4);
  EXPECT_EQ(statistics.drafted_tokens(), 8);
  EXPECT_EQ(statistics.verified_tokens(), 5);
  EXPECT_EQ(statistics.accepted_tokens(), 3);
  EXPECT_DOUBLE_EQ(statistics.TokensPerStep(), 8 / 5.0);
  const auto list = [](std::span<const int64_t> values) { return std::vector<int64_t>(values.begin(), values.end()); };
  EXPECT_EQ(list(statistics.verified_by_position()), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(list(statistics.accepted_by_position()), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(list(statistics.length_histogram()), (std::vector<int64_t>{1, 1, 2}));
  // Position 1: |1.8 - 2| + |0.3 - 0| over 3; position 2: |1.0 - 1| over 2.
  EXPECT_NEAR(statistics.SurvivalError(), (0.2 + 0.3) / 5, 1e-6);

  EXPECT_EQ(statistics.ToText(),
            "5 steps of sequences, 4 with drafts: 8 tokens drafted, 5 verified, 3 accepted (60.0 %)\n"
            "1.60 tokens a step, calibration error 10.0 %\n"
            "accepted by position: 1: 66.7 % 2: 50.0 %\n"
            "steps by verified drafts: 0: 1 1: 1 2: 2\n");
  const Json json = statistics.ToJson();
  EXPECT_EQ(json["accepted_by_position"], Json({2, 1}));
  EXPECT_EQ(json["verify_length_histogram"], Json({1, 1, 2}));
  EXPECT_EQ(json["tokens_per_step"], 1.6);
}

}  // namespace
}  // namespace deepinfer
