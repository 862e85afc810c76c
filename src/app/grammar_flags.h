// GrammarFlags: --json-schema, --regex and --ebnf FILE, for commands that take a grammar.
//
// Thread-safety: one thread. Ownership: values. Errors name the flag.
#ifndef DEEPINFER_APP_GRAMMAR_FLAGS_H_
#define DEEPINFER_APP_GRAMMAR_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "deepinfer/status.h"
#include "deepinfer/structured_output.h"

namespace deepinfer {

class GrammarFlags {
 public:
  /// `purpose` begins the help of each flag: "Check", "The answer belongs to".
  void AddTo(CLI::App& flags, const std::string& purpose);
  /// kInvalidArgument when more than one is given, or none although one is needed.
  Status Check(bool needed) const;
  /// Reads the file; Kind::kNone without a flag.
  Result<StructuredOutput> Read() const;

 private:
  std::string path_;
  CLI::Option* schema_ = nullptr;
  CLI::Option* regex_ = nullptr;
  CLI::Option* ebnf_ = nullptr;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_GRAMMAR_FLAGS_H_
