#include "app/grammar_flags.h"

#include "app/flags.h"

namespace deepinfer {

void GrammarFlags::AddTo(CLI::App& flags, const std::string& purpose) {
  schema_ = flags.add_option("--json-schema", path_, purpose + " the JSON Schema in a file; - is standard input");
  regex_ = flags.add_option("--regex", path_, purpose + " the regular expression in a file; - is standard input");
  ebnf_ = flags.add_option("--ebnf", path_, purpose + " the grammar in EBNF (GBNF) in a file; - is standard input");
  for (CLI::Option* flag : {schema_, regex_, ebnf_}) flag->type_name("FILE");
}

Status GrammarFlags::Check(bool needed) const {
  const size_t given = schema_->count() + regex_->count() + ebnf_->count();
  if (given > 1) return Status::InvalidArgument("--json-schema, --regex, --ebnf: give only one of them");
  if (needed && given == 0) return Status::InvalidArgument("give one of --json-schema, --regex and --ebnf");
  return Status::Ok();
}

Result<StructuredOutput> GrammarFlags::Read() const {
  if (path_.empty()) return StructuredOutput{};
  DEEPINFER_ASSIGN_OR_RETURN(std::string source, ReadInput(path_));
  if (schema_->count() > 0) return StructuredOutput{StructuredOutput::Kind::kJsonSchema, std::move(source)};
  if (ebnf_->count() > 0) return StructuredOutput{StructuredOutput::Kind::kEbnf, std::move(source)};
  if (source.ends_with('\n')) source.pop_back();  // the end of the file's only line
  return StructuredOutput{StructuredOutput::Kind::kRegex, std::move(source)};
}

}  // namespace deepinfer
