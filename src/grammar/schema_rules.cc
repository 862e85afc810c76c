#include "grammar/schema_rules.h"

#include <algorithm>

namespace deepinfer {

SchemaRules::SchemaRules(GrammarBuilder* builder, SchemaSet* schemas, const JsonSchemaOptions& options)
    : builder_(builder),
      schemas_(schemas),
      options_(options),
      scalars_(schemas, &builder->pool(),
               options.strings == JsonSchemaOptions::Strings::kPython ? SchemaScalars::Spelling::kPythonJson
                                                                      : SchemaScalars::Spelling::kJson,
               options.plain_integers),
      shapes_(schemas, &scalars_) {
  ByteSet spaces = ByteSet::Range('\t', '\n');
  spaces.Add('\r');
  spaces.Add(' ');
  space_ = builder->pool().Repeat(builder->pool().Bytes(spaces), 0, options.max_whitespace);
}

Symbol SchemaRules::Mark(const std::string& text, bool leading_space) {
  return builder_->AddTerminal(builder_->pool().Concat(Space(leading_space), builder_->pool().Text(text)));
}

Symbol SchemaRules::KeyTerminal(RegexId key, bool first) {
  RegexPool& pool = builder_->pool();
  const RegexId separator = first ? RegexPool::kEmptyText : pool.Concat(space_, pool.Text(options_.item_separator));
  return builder_->AddTerminal(pool.Sequence({separator, space_, key, space_, pool.Text(options_.key_separator)}));
}

Result<int32_t> SchemaRules::Build(int root) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int32_t> rule, RuleOf({Positive(root)}, Place::kWhole));
  DEEPINFER_RETURN_IF_ERROR(FillAll());
  return rule ? *rule : builder_->AddRule();
}

Status SchemaRules::FillAll() {
  while (!work_.empty()) {
    const Work work = std::move(work_.front());
    work_.pop_front();
    DEEPINFER_RETURN_IF_ERROR(Fill(work));
    DEEPINFER_RETURN_IF_ERROR(builder_->CheckLimits());
  }
  return Status::Ok();
}

Result<std::optional<int32_t>> SchemaRules::RuleOf(Conjunction conjunction, Place place) {
  Conjunction plain;
  for (const SchemaLiteral literal : conjunction) {
    DEEPINFER_ASSIGN_OR_RETURN(const int node, schemas_->Target(NodeOfLiteral(literal)));
    const SchemaNode& schema = schemas_->At(node);
    const bool always = schema.kind == SchemaNode::Kind::kTrue ||
                        (schema.kind == SchemaNode::Kind::kKeywords && schema.keyword_count == 0);
    const bool never = schema.kind == SchemaNode::Kind::kFalse;
    if (always || never) {
      if (never != IsNegated(literal)) return std::optional<int32_t>();
      continue;
    }
    plain.push_back(IsNegated(literal) ? Negation(node) : Positive(node));
  }
  std::ranges::sort(plain);
  plain.erase(std::unique(plain.begin(), plain.end()), plain.end());
  for (size_t i = 0; i + 1 < plain.size(); ++i) {
    if (plain[i + 1] == Opposite(plain[i])) return std::optional<int32_t>();
  }
  const auto known = rules_.find({plain, place});
  if (known != rules_.end()) return std::optional(known->second);
  const int32_t rule = builder_->AddRule();
  rules_.emplace(std::pair(plain, place), rule);
  work_.push_back({std::move(plain), place, rule});
  return std::optional(rule);
}

Status SchemaRules::Fill(const Work& work) {
  const int32_t start = builder_->StartOf(work.rule);
  const int32_t end = builder_->AddState();
  builder_->SetFinal(end);
  const bool leading_space = work.place == Place::kInside;
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId scalars, work.place == Place::kNotStrings
                                                        ? scalars_.NonStringsOf(work.conjunction)
                                                        : scalars_.TextsOf(work.conjunction));
  if (scalars != RegexPool::kNothing) {
    const RegexId text = builder_->pool().Concat(Space(leading_space), scalars);
    builder_->AddEdge(start, builder_->AddTerminal(text), end);
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<Shape> arrays, shapes_.Expand(work.conjunction, kJsonArray));
  for (const Shape& shape : arrays) {
    DEEPINFER_RETURN_IF_ERROR(EmitArray(shape.array, leading_space, start, end));
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<Shape> objects, shapes_.Expand(work.conjunction, kJsonObject));
  for (const Shape& shape : objects) {
    DEEPINFER_RETURN_IF_ERROR(EmitObject(shape.object, leading_space, start, end));
  }
  return Status::Ok();
}

}  // namespace deepinfer
