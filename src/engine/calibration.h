// Calibration: turns the confidence logits of DSpark's drafts into probabilities that hold, and counts how well.
//
// The head's sigmoid(logit) claims to be the probability that a draft survives given that all before it did; the
// product up to k is the survival of the prefix. Sequential temperature scaling (spec serving.md 3.1): for k = 1..b,
// left to right, the temperature of logit k is chosen on a grid so that the expected calibration error of the product
// up to k is least, earlier temperatures fixed. The error uses kCalibrationBins bins of equal width. A wrong
// calibration costs speed, never correctness. File format and units: docs/dspark.md.
//
// Thread-safety: Calibration is a value; DraftObservations and SpeculationStatistics belong to one thread, copy them to
// read elsewhere. Ownership: everything owns its bytes.
#ifndef DEEPINFER_ENGINE_CALIBRATION_H_
#define DEEPINFER_ENGINE_CALIBRATION_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

inline constexpr int kCalibrationBins = 15;
inline constexpr std::string_view kCalibrationFileName = "dspark_calibration.json";

struct Calibration {
  std::vector<double> temperatures;  // [b]; empty: none, every temperature is 1
  int64_t observations = 0;          ///< draft blocks it was fitted to
  double error_before = 0;           ///< expected calibration error with temperatures 1, mean over (block, position)
  double error_after = 0;            ///< the same with `temperatures`, on the same blocks
  std::string model_fingerprint;     ///< of the checkpoint whose head was calibrated
};

/// survival[k] = product of sigmoid(confidence[i] / temperatures[i]) over i <= k: never rises, in [0, 1]; a NaN counts
/// as probability 0. Sizes agree ([b]) unless temperatures is empty. Does not allocate.
void Survival(std::span<const float> confidence, const Calibration& calibration, std::span<float> survival);

/// The file's text. Ends with a newline.
std::string CalibrationToJson(const Calibration& calibration);

/// kCorruption: malformed, a key is missing or out of range; kUnsupported: another version; kInvalidArgument: made for
/// another block size or model (remedy: `deepinfer calibrate`).
Result<Calibration> CalibrationFromJson(std::string_view json, int64_t block_size, std::string_view model_fingerprint);

/// `directory`/dspark_calibration.json. kNotFound: there is none; else as above, with the path.
Result<Calibration> LoadCalibration(const std::filesystem::path& directory, int64_t block_size,
                                    std::string_view model_fingerprint);

/// Writes it through a temporary file and a rename, so that no reader sees half of it.
Status SaveCalibration(const std::filesystem::path& directory, const Calibration& calibration);

/// What became of one block of drafts. Survival of the prefix of k drafts is observed for k <= verified: it survived
/// iff k <= accepted.
struct DraftObservation {
  std::span<const float> confidence = {};  // [b] logits
  int verified = 0;                        ///< drafts that the backbone checked, 0..b
  int accepted = 0;                        ///< of these the first so many were right, 0..verified
};

/// The last `capacity` observations. Add does not allocate.
class DraftObservations {
 public:
  explicit DraftObservations(int64_t block_size, int64_t capacity = 4096);

  /// False, and nothing is stored, when sizes or counts are wrong, nothing was verified, or a logit of a verified draft
  /// is not finite.
  bool Add(const DraftObservation& observation);
  void Clear() { size_ = next_ = 0; }

  int64_t block_size() const { return block_size_; }
  int64_t size() const { return size_; }
  /// In no particular order.
  DraftObservation at(int64_t index) const;

 private:
  int64_t block_size_;
  int64_t capacity_;
  int64_t size_ = 0;
  int64_t next_ = 0;
  std::vector<float> confidence_;  // [capacity, b]
  std::vector<int32_t> verified_;  // [capacity]
  std::vector<int32_t> accepted_;  // [capacity]
};

struct CalibrationFitOptions {
  int64_t least_observations = 100;  ///< of a position; with fewer its temperature stays 1
};

/// kInvalidArgument when not even the first position has the least number of observations. Deterministic.
Result<Calibration> FitCalibration(const DraftObservations& observations, std::string_view model_fingerprint,
                                   const CalibrationFitOptions& options = {});

/// Predicted probabilities against outcomes, in bins of equal width.
class CalibrationError {
 public:
  void Add(double predicted, bool happened);
  int64_t count() const;
  /// Sum over bins of (share of the bin) * |mean prediction - share that happened|, in [0, 1]; 0 when empty.
  double Value() const;

 private:
  struct Bin {
    int64_t count = 0;
    int64_t happened = 0;
    double predicted = 0;
  };
  std::array<Bin, kCalibrationBins> bins_{};
};

/// Counters of speculation since they were made. Recording does not allocate.
class SpeculationStatistics {
 public:
  explicit SpeculationStatistics(int64_t block_size);

  /// A sequence's decode step without drafts.
  void RecordPlain() { ++plain_steps_; }

  /// A sequence's decode step whose block was drafted; `survival` [b] or empty when unknown. The step yields
  /// accepted + 1 tokens, before stops.
  void RecordDrafted(std::span<const float> survival, int verified, int accepted);

  int64_t block_size() const { return static_cast<int64_t>(verified_.size()); }
  int64_t plain_steps() const { return plain_steps_; }
  int64_t drafted_steps() const { return drafted_steps_; }
  int64_t drafted_tokens() const { return drafted_steps_ * block_size(); }
  int64_t verified_tokens() const;
  int64_t accepted_tokens() const;
  /// Tokens of an average step of a sequence, bonus included; 0 before the first.
  double TokensPerStep() const;

  std::span<const int64_t> verified_by_position() const { return verified_; }  // [b] steps that verified position k
  std::span<const int64_t> accepted_by_position() const { return accepted_; }  // [b] of these: accepted
  std::span<const int64_t> length_histogram() const { return lengths_; }       // [b + 1] drafted steps by verify length

  /// Expected calibration error of the survival, mean over (step, verified position).
  double SurvivalError() const;

  std::string ToText() const;
  nlohmann::ordered_json ToJson() const;

 private:
  int64_t plain_steps_ = 0;
  int64_t drafted_steps_ = 0;
  std::vector<int64_t> verified_;
  std::vector<int64_t> accepted_;
  std::vector<int64_t> lengths_;
  std::vector<CalibrationError> errors_;  // [b]
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_CALIBRATION_H_
