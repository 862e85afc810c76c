// Grammars that ask for far too much, of every front end.
#ifndef DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_
#define DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_

#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/front_ends.h"

namespace deepinfer::testing {

struct HostileGrammar {
  std::string name;
  enum class Kind { kRegex, kEbnf, kSchema } kind;
  std::string source;
};

std::vector<HostileGrammar> HostileGrammars();

Result<Grammar> Compile(const HostileGrammar& grammar);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_
