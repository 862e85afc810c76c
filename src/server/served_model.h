// ServedModel: what the server serves, as handlers see it.
//
// Thread-safety: immutable; engine, tokenizer and grammars are for any thread. Ownership: these outlive it.
#ifndef DEEPINFER_SERVER_SERVED_MODEL_H_
#define DEEPINFER_SERVER_SERVED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "grammar/grammar_compiler.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct ServedModel {
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  GrammarCompiler* grammars = nullptr;  ///< null: requests that ask for a grammar are refused
  std::vector<std::string> names;       ///< the first one is its own, the others are aliases
  /// A request for a model of another name is refused; else the name is the client's matter.
  bool strict_names = false;
  std::string system_fingerprint;
  int64_t max_model_len = 0;  ///< tokens of prompt and answer
  int64_t created_unix_seconds = 0;
  // Special tokens; -1: the tokenizer has none.
  int32_t end_of_sentence = -1;
  int32_t end_think = -1;
  int32_t dsml = -1;

  /// Looks up the special tokens and the length in `engine` and `tokenizer`.
  static ServedModel Of(Engine* engine, const Tokenizer* tokenizer);
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_SERVED_MODEL_H_
