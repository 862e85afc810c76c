// Alphabet: how characters are spelt in bytes: as UTF-8, or as the inside of a JSON string.
//
// In JSON spelling a character has one form, that of json.dumps(ensure_ascii=False): itself, or where JSON asks for it
// the short escape, or \u00xx (kJson: hexadecimal digits in either case). With one form each, intersection and
// complement of languages of strings are those of their spellings.
// Thread-safety: one thread, that of the pool. Ownership: refers to the pool. Errors: none (regex_pool.h).
#ifndef DEEPINFER_GRAMMAR_ALPHABET_H_
#define DEEPINFER_GRAMMAR_ALPHABET_H_

#include <map>
#include <string>
#include <string_view>

#include "grammar/code_points.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

class Alphabet {
 public:
  enum class Spelling { kUtf8, kJson, kPythonJson };
  Alphabet(RegexPool* pool, Spelling spelling) : pool_(pool), spelling_(spelling) {}

  /// One character of the set.
  RegexId OneOf(const CodePointSet& set);
  /// Any text.
  RegexId AnyText() { return pool_->Star(OneOf(CodePointSet::All())); }
  /// The well-formed UTF-8 `text`, spelt.
  RegexId Literal(std::string_view text) { return pool_->Text(Spell(text)); }
  std::string Spell(std::string_view text) const;
  RegexPool& pool() { return *pool_; }

 private:
  RegexId Utf8(const CodePointSet& set);

  RegexPool* pool_;
  Spelling spelling_;
  std::map<CodePointSet, RegexId> known_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_ALPHABET_H_
