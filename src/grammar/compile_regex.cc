#include "grammar/front_end_rules.h"
#include "grammar/regex_parser.h"

namespace deepinfer {

Result<int32_t> AddRegex(std::string_view pattern, GrammarBuilder* builder) {
  Alphabet alphabet(&builder->pool(), Alphabet::Spelling::kUtf8);
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId regex, ParseRegex(pattern, RegexMatch::kWhole, &alphabet));
  const int32_t root = builder->AddRule();
  const int32_t end = builder->AddState();
  builder->AddEdge(builder->StartOf(root), builder->AddTerminal(regex), end);
  builder->SetFinal(end);
  return root;
}

Result<Grammar> CompileRegex(std::string_view pattern, const GrammarLimits& limits) {
  GrammarBuilder builder(limits);
  DEEPINFER_ASSIGN_OR_RETURN(const int32_t root, AddRegex(pattern, &builder));
  return builder.Build(root, "no text matches the pattern");
}

}  // namespace deepinfer
