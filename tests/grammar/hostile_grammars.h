// Grammars that ask for far too much, of every front end.
#ifndef DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_
#define DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_

#include <string>
#include <vector>

#include "deepinfer/structured_output.h"

namespace deepinfer::testing {

struct HostileGrammar {
  std::string name;
  StructuredOutput form;
};

std::vector<HostileGrammar> HostileGrammars();

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_GRAMMAR_HOSTILE_GRAMMARS_H_
