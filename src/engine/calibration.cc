#include "engine/calibration.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/mapped_file.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "dspark_calibration";
constexpr int64_t kVersion = 1;
constexpr size_t kMostBytes = 1 << 20;
constexpr double kLowestTemperature = 1e-3;
constexpr double kHighestTemperature = 1e3;

// Temperatures 2^(s/16), s from 0 outwards to +-48: of equally good ones the nearest to 1 wins.
constexpr int kGridReach = 48;
constexpr double kGridPerOctave = 16;

double Sigmoid(double logit) {
  const double probability = 1 / (1 + std::exp(-logit));
  return probability >= 0 ? probability : 0;  // NaN
}

// Calibration error at `position` of prefix * sigmoid(logit / temperature).
CalibrationError ErrorAt(const DraftObservations& observations, std::span<const double> prefix, int64_t position,
                         double temperature) {
  CalibrationError error;
  for (int64_t i = 0; i < observations.size(); ++i) {
    const DraftObservation observation = observations.at(i);
    if (observation.verified <= position) continue;
    const double conditional = Sigmoid(observation.confidence[static_cast<size_t>(position)] / temperature);
    error.Add(prefix[static_cast<size_t>(i)] * conditional, observation.accepted > position);
  }
  return error;
}

// The mean over (block, position) of the errors of the positions.
double PooledError(std::span<const CalibrationError> errors) {
  double sum = 0;
  int64_t count = 0;
  for (const CalibrationError& error : errors) {
    sum += error.Value() * static_cast<double>(error.count());
    count += error.count();
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

// The errors of all positions with the given temperatures.
double PooledErrorWith(const DraftObservations& observations, std::span<const double> temperatures) {
  std::vector<double> prefix(static_cast<size_t>(observations.size()), 1);
  std::vector<CalibrationError> errors;
  for (size_t k = 0; k < temperatures.size(); ++k) {
    errors.push_back(ErrorAt(observations, prefix, static_cast<int64_t>(k), temperatures[k]));
    for (size_t i = 0; i < prefix.size(); ++i) {
      prefix[i] *= Sigmoid(observations.at(static_cast<int64_t>(i)).confidence[k] / temperatures[k]);
    }
  }
  return PooledError(errors);
}

Status BadKey(std::string_view key, std::string_view expected) {
  return Status::Corruption(fmt::format("key \"{}\" must be {}", key, expected));
}

Status ReadString(const Json& object, const char* key, std::string* out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return BadKey(key, "a string");
  *out = found->get<std::string>();
  return Status::Ok();
}

Status ReadCount(const Json& object, const char* key, int64_t* out) {
  const auto found = object.find(key);
  const bool good = found != object.end() && found->is_number_unsigned() &&
                    found->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!good) return BadKey(key, "an integer of at least 0");
  *out = found->get<int64_t>();
  return Status::Ok();
}

bool IsWithin(const Json& value, double low, double high) {
  return value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
}

Status ReadShare(const Json& object, const char* key, double* out) {
  const auto found = object.find(key);
  if (found == object.end() || !IsWithin(*found, 0, 1)) return BadKey(key, "a number from 0 to 1");
  *out = found->get<double>();
  return Status::Ok();
}

Status IoError(std::string_view action, const std::filesystem::path& path) {
  return Status::Io(fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(errno)));
}

// Writes and forces to the disk; the descriptor is closed in any case.
bool WriteAll(int descriptor, std::string_view text) {
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else {
      good = errno == EINTR;
    }
  }
  good = good && fsync(descriptor) == 0;
  const int reason = errno;
  const bool closed = close(descriptor) == 0;
  if (!good) errno = reason;
  return good && closed;
}

std::string Percent(int64_t part, int64_t whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

}  // namespace

void Survival(std::span<const float> confidence, const Calibration& calibration, std::span<float> survival) {
  const std::vector<double>& temperatures = calibration.temperatures;
  assert(survival.size() == confidence.size());
  assert(temperatures.empty() || temperatures.size() == confidence.size());
  double product = 1;
  for (size_t k = 0; k < confidence.size(); ++k) {
    product *= Sigmoid(temperatures.empty() ? confidence[k] : confidence[k] / temperatures[k]);
    survival[k] = static_cast<float>(product);
  }
}

std::string CalibrationToJson(const Calibration& calibration) {
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"model_fingerprint", calibration.model_fingerprint},
                     {"block_size", calibration.temperatures.size()},
                     {"temperatures", calibration.temperatures},
                     {"observations", calibration.observations},
                     {"error_before", calibration.error_before},
                     {"error_after", calibration.error_after}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Calibration> CalibrationFromJson(std::string_view json, int64_t block_size, std::string_view model_fingerprint) {
  if (json.size() > kMostBytes) return Status::Corruption("larger than 1 MiB");
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Status::Corruption("not a JSON object");
  std::string format;
  int64_t version = 0;
  int64_t found_block_size = 0;
  Calibration calibration;
  DEEPINFER_RETURN_IF_ERROR(ReadString(object, "format", &format));
  if (format != kFormat) return BadKey("format", fmt::format("\"{}\"", kFormat));
  DEEPINFER_RETURN_IF_ERROR(ReadCount(object, "version", &version));
  if (version != kVersion) {
    return Status::Unsupported(
        fmt::format("version {}, this build reads version {}; run `deepinfer calibrate` again", version, kVersion));
  }
  DEEPINFER_RETURN_IF_ERROR(ReadString(object, "model_fingerprint", &calibration.model_fingerprint));
  DEEPINFER_RETURN_IF_ERROR(ReadCount(object, "block_size", &found_block_size));
  DEEPINFER_RETURN_IF_ERROR(ReadCount(object, "observations", &calibration.observations));
  DEEPINFER_RETURN_IF_ERROR(ReadShare(object, "error_before", &calibration.error_before));
  DEEPINFER_RETURN_IF_ERROR(ReadShare(object, "error_after", &calibration.error_after));
  const auto temperatures = object.find("temperatures");
  if (temperatures == object.end() || !temperatures->is_array() ||
      static_cast<int64_t>(temperatures->size()) != found_block_size) {
    return BadKey("temperatures", "a list of block_size numbers");
  }
  for (const Json& temperature : *temperatures) {
    if (!IsWithin(temperature, kLowestTemperature, kHighestTemperature)) {
      return BadKey("temperatures", fmt::format("numbers from {} to {}", kLowestTemperature, kHighestTemperature));
    }
    calibration.temperatures.push_back(temperature.get<double>());
  }
  if (found_block_size != block_size) {
    return Status::InvalidArgument(
        fmt::format("made for blocks of {} drafts, the model drafts {}; run `deepinfer calibrate` again",
                    found_block_size, block_size));
  }
  if (calibration.model_fingerprint != model_fingerprint) {
    return Status::InvalidArgument("made for another model; run `deepinfer calibrate` again");
  }
  return calibration;
}

Result<Calibration> LoadCalibration(const std::filesystem::path& directory, int64_t block_size,
                                    std::string_view model_fingerprint) {
  const std::filesystem::path path = directory / kCalibrationFileName;
  DEEPINFER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Result<Calibration> calibration = CalibrationFromJson(file.text(), block_size, model_fingerprint);
  if (calibration.ok()) return calibration;
  const Status status = calibration.status();
  return Status(status.code(), fmt::format("{}: {}", path.string(), status.message()));
}

Status SaveCalibration(const std::filesystem::path& directory, const Calibration& calibration) {
  const std::filesystem::path path = directory / kCalibrationFileName;
  const std::filesystem::path temporary = path.string() + "." + std::to_string(getpid());
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return IoError("create", temporary);
  if (!WriteAll(descriptor, CalibrationToJson(calibration))) {
    Status status = IoError("write", temporary);
    std::remove(temporary.c_str());
    return status;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = IoError("replace", path);
    std::remove(temporary.c_str());
    return status;
  }
  return Status::Ok();
}

DraftObservations::DraftObservations(int64_t block_size, int64_t capacity)
    : block_size_(block_size),
      capacity_(capacity),
      confidence_(static_cast<size_t>(block_size * capacity)),
      verified_(static_cast<size_t>(capacity)),
      accepted_(static_cast<size_t>(capacity)) {
  assert(block_size >= 1 && capacity >= 1);
}

bool DraftObservations::Add(const DraftObservation& observation) {
  const int verified = observation.verified;
  if (static_cast<int64_t>(observation.confidence.size()) != block_size_) return false;
  if (verified < 1 || verified > block_size_) return false;
  if (observation.accepted < 0 || observation.accepted > verified) return false;
  for (int k = 0; k < verified; ++k) {
    if (!std::isfinite(observation.confidence[static_cast<size_t>(k)])) return false;
  }
  std::copy(observation.confidence.begin(), observation.confidence.end(),
            confidence_.begin() + static_cast<ptrdiff_t>(next_ * block_size_));
  verified_[static_cast<size_t>(next_)] = verified;
  accepted_[static_cast<size_t>(next_)] = observation.accepted;
  next_ = (next_ + 1) % capacity_;
  size_ = std::min(size_ + 1, capacity_);
  return true;
}

DraftObservation DraftObservations::at(int64_t index) const {
  assert(index >= 0 && index < size_);
  return {.confidence = std::span<const float>(confidence_)
                            .subspan(static_cast<size_t>(index * block_size_), static_cast<size_t>(block_size_)),
          .verified = verified_[static_cast<size_t>(index)],
          .accepted = accepted_[static_cast<size_t>(index)]};
}

Result<Calibration> FitCalibration(const DraftObservations& observations, std::string_view model_fingerprint,
                                   const CalibrationFitOptions& options) {
  if (observations.size() < std::max<int64_t>(options.least_observations, 1)) {
    return Status::InvalidArgument(fmt::format("{} verified draft blocks are too few to calibrate on, {} are needed",
                                               observations.size(), options.least_observations));
  }
  Calibration calibration;
  calibration.observations = observations.size();
  calibration.model_fingerprint = model_fingerprint;
  std::vector<double> prefix(static_cast<size_t>(observations.size()), 1);
  for (int64_t k = 0; k < observations.block_size(); ++k) {
    double temperature = 1;
    const CalibrationError untouched = ErrorAt(observations, prefix, k, 1);
    if (untouched.count() >= options.least_observations) {
      double least = untouched.Value();
      for (int step = 1; step <= 2 * kGridReach; ++step) {
        const int reach = (step + 1) / 2;
        const double candidate = std::exp2((step % 2 == 1 ? reach : -reach) / kGridPerOctave);
        const double error = ErrorAt(observations, prefix, k, candidate).Value();
        if (error < least) {
          least = error;
          temperature = candidate;
        }
      }
    }
    calibration.temperatures.push_back(temperature);
    for (size_t i = 0; i < prefix.size(); ++i) {
      const DraftObservation observation = observations.at(static_cast<int64_t>(i));
      prefix[i] *= Sigmoid(observation.confidence[static_cast<size_t>(k)] / temperature);
    }
  }
  const std::vector<double> ones(calibration.temperatures.size(), 1);
  calibration.error_before = PooledErrorWith(observations, ones);
  calibration.error_after = PooledErrorWith(observations, calibration.temperatures);
  return calibration;
}

void CalibrationError::Add(double predicted, bool happened) {
  const int index = static_cast<int>(predicted * kCalibrationBins);
  Bin& bin = bins_[static_cast<size_t>(std::clamp(index, 0, kCalibrationBins - 1))];
  ++bin.count;
  bin.happened += happened ? 1 : 0;
  bin.predicted += predicted;
}

int64_t CalibrationError::count() const {
  int64_t count = 0;
  for (const Bin& bin : bins_) count += bin.count;
  return count;
}

double CalibrationError::Value() const {
  double sum = 0;
  for (const Bin& bin : bins_) sum += std::abs(bin.predicted - static_cast<double>(bin.happened));
  const int64_t total = count();
  return total > 0 ? sum / static_cast<double>(total) : 0;
}

SpeculationStatistics::SpeculationStatistics(int64_t block_size)
    : verified_(static_cast<size_t>(block_size)),
      accepted_(static_cast<size_t>(block_size)),
      lengths_(static_cast<size_t>(block_size + 1)),
      errors_(static_cast<size_t>(block_size)) {}

void SpeculationStatistics::RecordDrafted(std::span<const float> survival, int verified, int accepted) {
  assert(verified >= 0 && verified <= block_size() && accepted >= 0 && accepted <= verified);
  assert(survival.empty() || static_cast<int64_t>(survival.size()) == block_size());
  ++drafted_steps_;
  ++lengths_[static_cast<size_t>(verified)];
  for (size_t k = 0; k < static_cast<size_t>(verified); ++k) {
    const bool survived = k < static_cast<size_t>(accepted);
    ++verified_[k];
    accepted_[k] += survived ? 1 : 0;
    if (!survival.empty()) errors_[k].Add(survival[k], survived);
  }
}

int64_t SpeculationStatistics::verified_tokens() const {
  return std::accumulate(verified_.begin(), verified_.end(), int64_t{0});
}

int64_t SpeculationStatistics::accepted_tokens() const {
  return std::accumulate(accepted_.begin(), accepted_.end(), int64_t{0});
}

double SpeculationStatistics::TokensPerStep() const {
  const int64_t steps = plain_steps_ + drafted_steps_;
  return steps > 0 ? 1 + static_cast<double>(accepted_tokens()) / static_cast<double>(steps) : 0;
}

double SpeculationStatistics::SurvivalError() const { return PooledError(errors_); }

std::string SpeculationStatistics::ToText() const {
  std::string text =
      fmt::format("{} steps of sequences, {} with drafts: {} tokens drafted, {} verified, {} accepted ({})\n",
                  plain_steps_ + drafted_steps_, drafted_steps_, drafted_tokens(), verified_tokens(), accepted_tokens(),
                  Percent(accepted_tokens(), verified_tokens()));
  text += fmt::format("{:.2f} tokens a step, calibration error {:.1f} %\n", TokensPerStep(), 100 * SurvivalError());
  text += "accepted by position:";
  for (size_t k = 0; k < verified_.size(); ++k) {
    text += fmt::format(" {}: {}", k + 1, Percent(accepted_[k], verified_[k]));
  }
  text += "\nsteps by verified drafts:";
  for (size_t k = 0; k < lengths_.size(); ++k) text += fmt::format(" {}: {}", k, lengths_[k]);
  return text + "\n";
}

nlohmann::ordered_json SpeculationStatistics::ToJson() const {
  return {{"plain_steps", plain_steps_},          {"drafted_steps", drafted_steps_},
          {"drafted_tokens", drafted_tokens()},   {"verified_tokens", verified_tokens()},
          {"accepted_tokens", accepted_tokens()}, {"tokens_per_step", TokensPerStep()},
          {"calibration_error", SurvivalError()}, {"verified_by_position", verified_},
          {"accepted_by_position", accepted_},    {"verify_length_histogram", lengths_}};
}

}  // namespace deepinfer
