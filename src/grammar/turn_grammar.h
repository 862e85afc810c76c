// CompileTurn: what one turn of the assistant may be after its reasoning: text, perhaps under a format, a block of tool
// calls, or a choice of both.
//
// The block is written to the letter as the prompt renderer writes calls (docs/prompt-format.md, "Rendering"), so that
// the turn, shown to the model again, has the bytes that it was generated with:
//   block      "\n\n<D calls>\n" call... "</D calls>"
//   call       "<D invoke name=\"NAME\">\n" argument... "</D invoke>\n"; without arguments "\n" in their place
//   argument   "<D parameter name=\"KEY\" string=\"true\">" text "</D parameter>\n", or string="false" and JSON as
//              json.dumps(ensure_ascii=False) writes it, but for numbers with a fraction, whose spelling is free
// where D is the control token `｜DSML｜`, never the same characters as text. Strings of the schema are raw text, all
// else is JSON; an argument that may be either is either. Arguments come in the order of the schema.
// Thread-safety: pure. Ownership: values. Errors: those of front_ends.h; what is wrong with the format of the text
// begins as the front end says it, what is wrong with a tool begins with the tool's `path`.
// Source: spec prompt-format.md sections 3.3 and 4, serving.md section 10.5.
#ifndef DEEPINFER_GRAMMAR_TURN_GRAMMAR_H_
#define DEEPINFER_GRAMMAR_TURN_GRAMMAR_H_

#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/front_ends.h"

namespace deepinfer {

struct TurnTool {
  std::string name;        ///< as rendered; a quotation mark in it is refused
  std::string parameters;  ///< JSON Schema of the object of arguments; empty: any object
  /// Arguments follow `parameters`, which must compile, and hold declared properties only. Otherwise they follow it
  /// when it compiles, and when it does not they are its properties, or any, with any values.
  bool strict = false;
  std::string path;  ///< of `parameters`, for messages; empty: tools[i].function.parameters
};

struct TurnGrammarSpec {
  enum class Content {
    kNone,    ///< no text: there must be a call
    kFree,    ///< any text without control tokens, also before the calls
    kGrammar  ///< the text follows `format`; calls come instead of it
  };

  Content content = Content::kFree;
  StructuredOutput format;
  std::vector<TurnTool> tools;  ///< that may be called; empty: no calls
  int max_calls = 0;            ///< 0: no limit
  /// Of the content, which always has plain_integers; of arguments, `format`, `draft` and the order of keys hold.
  JsonSchemaOptions json;
};

/// The number of `｜DSML｜` among the control tokens of the token trie (token_trie.h) that this grammar is used with.
inline constexpr int kDsmlControl = 0;

Result<Grammar> CompileTurn(const TurnGrammarSpec& spec, const GrammarLimits& limits = {});

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_TURN_GRAMMAR_H_
