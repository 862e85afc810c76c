#include "server/exposition.h"

#include <fmt/format.h>

#include <cmath>

#include "text/utf8.h"

namespace deepinfer {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Help keeps its quotes, label values do not.
std::string Escaped(std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : RepairUtf8(text)) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string LabelText(const ExpositionWriter::Label& label) {
  return fmt::format("{}=\"{}\"", label.name, Escaped(label.value, true));
}

}  // namespace

ExpositionWriter::ExpositionWriter(std::string prefix, Label label, NameOrigin origin)
    : prefix_(std::move(prefix)), label_(LabelText(label)), origin_(origin) {}

void ExpositionWriter::Begin(NameOrigin origin, std::string_view name, std::string_view help, std::string_view type) {
  name_.clear();
  if (origin_ == NameOrigin::kVllm && origin != NameOrigin::kVllm) return;
  name_ = prefix_ + std::string(name);
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, Escaped(help, false), name_, type);
}

void ExpositionWriter::BeginCounter(NameOrigin origin, std::string_view name, std::string_view help) {
  Begin(origin, name, help, "counter");
}

void ExpositionWriter::BeginGauge(NameOrigin origin, std::string_view name, std::string_view help) {
  Begin(origin, name, help, "gauge");
}

void ExpositionWriter::Line(std::string_view suffix, std::string_view value, std::initializer_list<Label> labels) {
  if (name_.empty()) return;
  text_ += name_;
  text_ += suffix;
  text_ += '{';
  text_ += label_;
  for (const Label& label : labels) {
    text_ += ',';
    text_ += LabelText(label);
  }
  text_ += "} ";
  text_ += value;
  text_ += '\n';
}

void ExpositionWriter::Sample(double value, std::initializer_list<Label> labels) { Line("", Number(value), labels); }

void ExpositionWriter::Sample(int64_t value, std::initializer_list<Label> labels) {
  Line("", std::to_string(value), labels);
}

void ExpositionWriter::WriteCounter(NameOrigin origin, std::string_view name, std::string_view help, int64_t value) {
  BeginCounter(origin, name, help);
  Sample(value);
}

void ExpositionWriter::WriteCounter(NameOrigin origin, std::string_view name, std::string_view help, double value) {
  BeginCounter(origin, name, help);
  Sample(value);
}

void ExpositionWriter::WriteGauge(NameOrigin origin, std::string_view name, std::string_view help, int64_t value) {
  BeginGauge(origin, name, help);
  Sample(value);
}

void ExpositionWriter::WriteGauge(NameOrigin origin, std::string_view name, std::string_view help, double value) {
  BeginGauge(origin, name, help);
  Sample(value);
}

void ExpositionWriter::WriteHistogram(NameOrigin origin, std::string_view name, std::string_view help,
                                      const HistogramCounts& counts) {
  Begin(origin, name, help, "histogram");
  int64_t total = 0;
  for (size_t i = 0; i < counts.buckets.size(); ++i) {
    total += counts.buckets[i];
    const std::string bound = i < counts.bounds.size() ? Number(counts.bounds[i]) : "+Inf";
    Line("_bucket", std::to_string(total), {{"le", bound}});
  }
  Line("_sum", Number(counts.sum), {});
  Line("_count", std::to_string(total), {});
}

}  // namespace deepinfer
