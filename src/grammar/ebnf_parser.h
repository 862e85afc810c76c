// EbnfGrammar and ParseEbnf: a grammar text in the EBNF of llama.cpp (GBNF) and XGrammar as a tree.
//
// Thread-safety: values. Ownership: a grammar owns its nodes, which refer to one another and to rules by index.
// Errors: kInvalidArgument for malformed text and unknown rules, kUnsupported for what is not context-free, both as
// "line 3, column 7: ..."; kResourceExhausted past the limits.
#ifndef DEEPINFER_GRAMMAR_EBNF_PARSER_H_
#define DEEPINFER_GRAMMAR_EBNF_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/alphabet.h"

namespace deepinfer {

struct EbnfGrammar {
  struct Node {
    enum class Kind { kText, kRule, kConcat, kEither, kRepeat };
    Kind kind = Kind::kText;
    RegexId text = RegexPool::kEmptyText;  // kText
    int rule = 0;                          // kRule
    std::vector<int> parts;                // the others; one part for kRepeat
    int least = 0;
    int most = 0;
  };
  std::vector<Node> nodes;
  std::vector<int> bodies;  // of the rules, as nodes
  int root = 0;             // the rule named root
};

Result<EbnfGrammar> ParseEbnf(std::string_view text, Alphabet* alphabet);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_EBNF_PARSER_H_
