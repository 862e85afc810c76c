#include "exposition_check.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>

namespace deepinfer {
namespace {

using Labels = std::map<std::string, std::string>;

/// The buckets of one histogram series as they come.
struct Buckets {
  double bound = -1;
  double count = 0;
  bool complete = false;
};

class Reader {
 public:
  Exposition Read(const std::string& text) {
    if (!text.empty() && text.back() != '\n') Find("the text does not end with a line feed");
    std::istringstream stream(text);
    while (std::getline(stream, line_)) {
      if (line_.starts_with("# HELP ")) {
        ReadHelp();
      } else if (line_.starts_with("# TYPE ")) {
        ReadType();
      } else {
        ReadSample();
      }
    }
    for (const auto& [series, buckets] : buckets_) {
      line_ = series;
      if (!buckets.complete) Find("no bucket +Inf");
    }
    return std::move(out_);
  }

 private:
  void Find(const std::string& rule) { out_.findings.push_back(rule + ": " + line_); }

  void ReadHelp() {
    static const std::regex form("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) [^ ].*");
    std::smatch match;
    if (!std::regex_match(line_, match, form)) return Find("no legal HELP");
    family_ = match[1];
    type_.clear();
    if (!helped_.insert(family_).second) Find("HELP comes twice");
  }

  void ReadType() {
    static const std::regex form("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
    std::smatch match;
    if (!std::regex_match(line_, match, form)) return Find("no legal TYPE");
    if (match[1] != family_ || !type_.empty()) Find("TYPE does not follow its HELP");
    type_ = match[2];
    out_.types[family_] = type_;
    if ((type_ == "counter") != family_.ends_with("_total")) Find("_total belongs to counters");
  }

  /// The labels of `{a="b",...}`; nothing when they are not well formed.
  static std::optional<Labels> ReadLabels(std::string text) {
    static const std::regex form("^([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\\n]|\\\\[\\\\n\"])*)\"(,|$)");
    Labels labels;
    std::smatch match;
    while (std::regex_search(text, match, form)) {
      if (!labels.emplace(match[1], match[2]).second) return std::nullopt;
      text = match.suffix();
    }
    if (!text.empty()) return std::nullopt;
    return labels;
  }

  static std::string Series(const std::string& name, const Labels& labels) {
    std::string series = name + "{";
    for (const auto& [label, value] : labels) {
      if (series.back() != '{') series += ",";
      series += label + "=\"" + value + "\"";
    }
    return series + "}";
  }

  void ReadSample() {
    static const std::regex form("([a-zA-Z_:][a-zA-Z0-9_:]*)\\{(.*)\\} ([-+0-9.eE]+)");
    std::smatch match;
    if (!std::regex_match(line_, match, form)) return Find("no legal sample");
    const std::string name = match[1];
    const std::optional<Labels> labels = ReadLabels(match[2]);
    if (!labels.has_value()) return Find("no legal labels");
    const double value = std::strtod(match[3].str().c_str(), nullptr);
    if (type_ != "gauge" && value < 0) Find("it is negative");
    const std::string suffix = name.starts_with(family_) ? name.substr(family_.size()) : "?";
    const bool belongs = type_ == "histogram" ? suffix == "_bucket" || suffix == "_sum" || suffix == "_count"
                                              : !type_.empty() && suffix.empty();
    if (!belongs) Find("the sample is not of the family before it");
    if (!out_.samples.emplace(Series(name, *labels), value).second) Find("the series comes twice");
    out_.sample_names.insert(name);
    if (suffix == "_bucket") ReadBucket(*labels, value);
    if (type_ == "histogram" && suffix == "_count" && buckets_[Series(family_, *labels)].count != value) {
      Find("_count is not the last bucket");
    }
  }

  void ReadBucket(Labels labels, double value) {
    if (!labels.contains("le")) return Find("a bucket without le");
    const std::string bound_text = labels["le"];
    labels.erase("le");
    const double bound = bound_text == "+Inf" ? INFINITY : std::strtod(bound_text.c_str(), nullptr);
    Buckets& buckets = buckets_[Series(family_, labels)];
    if (bound <= buckets.bound) Find("bounds do not rise");
    if (value < buckets.count) Find("buckets do not accumulate");
    buckets = {bound, value, bound_text == "+Inf"};
  }

  std::string line_;
  std::string family_;
  std::string type_;
  std::set<std::string> helped_;
  std::map<std::string, Buckets> buckets_;
  Exposition out_;
};

}  // namespace

Exposition ReadExposition(const std::string& text) { return Reader().Read(text); }

}  // namespace deepinfer
