// CodePointSet: a set of Unicode scalar values, as sorted ranges.
//
// Thread-safety: values and pure functions. Ownership: values. Errors: an unknown property is nullopt.
#ifndef DEEPINFER_GRAMMAR_CODE_POINTS_H_
#define DEEPINFER_GRAMMAR_CODE_POINTS_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct CodePointRange {
  uint32_t first;
  uint32_t last;
  auto operator<=>(const CodePointRange&) const = default;
};

class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  static CodePointSet All() { return {{0, 0x10FFFF}}; }
  static CodePointSet One(uint32_t point) { return {{point, point}}; }
  /// The set of a Unicode property, as in \p{...}: "L", "Letter", "Script=Greek", "Lu".
  static std::optional<CodePointSet> Property(std::string_view name);

  /// Surrogates are left out, whatever the range.
  void Add(uint32_t first, uint32_t last);
  void Add(const CodePointSet& other);
  CodePointSet Complement() const;
  CodePointSet Without(const CodePointSet& other) const;
  bool Has(uint32_t point) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  auto operator<=>(const CodePointSet&) const = default;

 private:
  void Normalise();
  std::vector<CodePointRange> ranges_;  // sorted, apart
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_CODE_POINTS_H_
