// ExpositionWriter: metrics in Prometheus' text format, version 0.0.4.
//
// A family is announced once, its samples follow; the caller keeps names legal and label sets unique. Label values and
// help are escaped here. Thread-safety: one thread. Ownership: owns the text.
#ifndef DEEPINFER_SERVER_EXPOSITION_H_
#define DEEPINFER_SERVER_EXPOSITION_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "server/instruments.h"

namespace deepinfer {

/// Who gave a metric its name: vLLM's are exported under its prefix too, for dashboards that exist.
enum class NameOrigin : uint8_t { kOurs, kVllm };

class ExpositionWriter {
 public:
  struct Label {
    std::string_view name;
    std::string_view value;
  };

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// Every name begins with `prefix`, every sample carries `label`. With `origin` kVllm only families of vLLM's names
  /// are written.
  ExpositionWriter(std::string prefix, Label label, NameOrigin origin);

  void BeginCounter(NameOrigin origin, std::string_view name, std::string_view help);
  void BeginGauge(NameOrigin origin, std::string_view name, std::string_view help);
  void Sample(double value, std::initializer_list<Label> labels = {});
  void Sample(int64_t value, std::initializer_list<Label> labels = {});

  // Families of one sample.
  void WriteCounter(NameOrigin origin, std::string_view name, std::string_view help, int64_t value);
  void WriteCounter(NameOrigin origin, std::string_view name, std::string_view help, double value);
  void WriteGauge(NameOrigin origin, std::string_view name, std::string_view help, int64_t value);
  void WriteGauge(NameOrigin origin, std::string_view name, std::string_view help, double value);
  void WriteHistogram(NameOrigin origin, std::string_view name, std::string_view help, const HistogramCounts& counts);

  std::string TakeText() { return std::move(text_); }

 private:
  void Begin(NameOrigin origin, std::string_view name, std::string_view help, std::string_view type);
  void Line(std::string_view suffix, std::string_view value, std::initializer_list<Label> labels);

  const std::string prefix_;
  const std::string label_;  // name="value"
  const NameOrigin origin_;
  std::string name_;  // of the family, with the prefix; empty: it is not written
  std::string text_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_EXPOSITION_H_
