#include "exposition_check.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

namespace deepinfer {
namespace {

using Labels = std::map<std::string, std::string>;

/// Reads a line from its start.
class Scanner {
 public:
  explicit Scanner(std::string_view rest) : rest_(rest) {}

  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// A legal name of a metric, or of a label when colons are not allowed; empty when there is none.
  std::string Name(bool colons) {
    size_t size = 0;
    while (size < rest_.size() && (std::isalpha(Byte(size)) != 0 || rest_[size] == '_' ||
                                   (colons && rest_[size] == ':') || (size > 0 && std::isdigit(Byte(size)) != 0))) {
      ++size;
    }
    return Cut(size);
  }
  /// What stands before the closing quote of a label value; nothing when an escape is wrong or no quote comes.
  std::optional<std::string> Quoted() {
    for (size_t size = 0; size < rest_.size(); ++size) {
      if (rest_[size] == '"') return Cut(size);
      if (rest_[size] != '\\') continue;
      if (++size == rest_.size() || std::string_view("\\n\"").find(rest_[size]) == std::string_view::npos) break;
    }
    return std::nullopt;
  }
  std::string_view rest() const { return rest_; }

 private:
  unsigned char Byte(size_t at) const { return static_cast<unsigned char>(rest_[at]); }
  std::string Cut(size_t size) {
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  std::string_view rest_;
};

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
    Scanner scanner(line_);
    scanner.Take("# HELP ");
    family_ = scanner.Name(true);
    type_.clear();
    if (family_.empty() || !scanner.Take(" ") || scanner.rest().empty()) return Find("no legal HELP");
    if (!helped_.insert(family_).second) Find("HELP comes twice");
  }

  void ReadType() {
    Scanner scanner(line_);
    scanner.Take("# TYPE ");
    const std::string name = scanner.Name(true);
    const bool separated = scanner.Take(" ");
    const std::string type(scanner.rest());
    if (name.empty() || !separated || (type != "counter" && type != "gauge" && type != "histogram")) {
      return Find("no legal TYPE");
    }
    if (name != family_ || !type_.empty()) Find("TYPE does not follow its HELP");
    type_ = type;
    out_.types[family_] = type_;
    if ((type_ == "counter") != family_.ends_with("_total")) Find("_total belongs to counters");
  }

  /// The labels up to the closing brace, which is taken; nothing when they are not well formed.
  static std::optional<Labels> ReadLabels(Scanner* scanner) {
    Labels labels;
    while (!scanner->Take("}")) {
      if (!labels.empty() && !scanner->Take(",")) return std::nullopt;
      const std::string name = scanner->Name(false);
      if (name.empty() || !scanner->Take("=\"")) return std::nullopt;
      const std::optional<std::string> value = scanner->Quoted();
      if (!value.has_value() || !scanner->Take("\"") || !labels.emplace(name, *value).second) return std::nullopt;
    }
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
    Scanner scanner(line_);
    const std::string name = scanner.Name(true);
    if (name.empty() || !scanner.Take("{")) return Find("no legal sample");
    const std::optional<Labels> labels = ReadLabels(&scanner);
    if (!labels.has_value()) return Find("no legal labels");
    char* end = nullptr;
    const std::string number(scanner.Take(" ") ? scanner.rest() : "");
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !std::isfinite(value)) return Find("no legal sample");
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
