// The part of SchemaRules about the arguments of a call: members in a form of their own, strings as they are.
#include <fmt/format.h>

#include "grammar/schema_rules.h"

namespace deepinfer {

Result<int32_t> SchemaRules::BuildArguments(int root, const ArgumentForm& form) {
  RegexPool& pool = builder_->pool();
  raw_ = std::make_unique<SchemaScalars>(schemas_, &pool, SchemaScalars::Spelling::kRaw, true);
  raw_strings_ = raw_->EveryString();
  if (!form.not_in_strings.empty()) {
    const RegexId with = pool.Sequence({RegexPool::kAnything, pool.Text(form.not_in_strings), RegexPool::kAnything});
    raw_strings_ = pool.And({raw_strings_, pool.Not(with)});
  }
  const int32_t rule = builder_->AddRule();
  const int32_t end = builder_->AddState();
  builder_->SetFinal(end);
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, shapes_.Expand({Positive(root)}, kJsonObject));
  for (const Shape& shape : shapes) {
    DEEPINFER_RETURN_IF_ERROR(EmitMembers(shape.object, &form, builder_->AddTerminal(pool.Text(form.empty)), Symbol(),
                                          builder_->StartOf(rule), end));
  }
  DEEPINFER_RETURN_IF_ERROR(FillAll());
  return rule;
}

Result<std::vector<SchemaRules::MemberWay>> SchemaRules::ArgumentWaysOf(const Member& member, const Conjunction& value,
                                                                        const ArgumentForm& form) {
  RegexPool& pool = builder_->pool();
  RegexId name = RegexPool::kNothing;
  if (member.name) {
    if (member.name->find('"') != std::string::npos) {
      if (!member.required) return std::vector<MemberWay>();
      return Status::Unsupported("#/properties: an argument's name cannot hold a quotation mark");
    }
    name = pool.Text(fmt::format("\"{}\"", *member.name));
  } else {
    // Names that are the same in JSON and as they are.
    ByteSet plain;
    for (int byte = 0x20; byte < 0x100; ++byte) {
      if (byte != '"' && byte != '\\') plain.Add(static_cast<uint8_t>(byte));
    }
    const RegexId quote = pool.Text("\"");
    name = pool.And({member.key, pool.Sequence({quote, pool.Star(pool.Bytes(plain)), quote})});
    if (pool.IsEmpty(name)) return std::vector<MemberWay>();
  }
  const RegexId open = pool.Concat(pool.Text(form.open), name);
  std::vector<MemberWay> ways;
  DEEPINFER_ASSIGN_OR_RETURN(RegexId strings, raw_->StringsOf(value));
  strings = strings == raw_->EveryString() ? raw_strings_ : pool.And({strings, raw_strings_});
  if (!pool.IsEmpty(strings)) {
    const RegexId whole = pool.Sequence({open, pool.Text(form.string_open), strings, pool.Text(form.close)});
    ways.push_back({builder_->AddTerminal(whole), std::nullopt, Symbol()});
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int32_t> rule, RuleOf(value, Place::kNotStrings));
  if (rule) {
    ways.push_back({builder_->AddTerminal(pool.Concat(open, pool.Text(form.value_open))), rule,
                    builder_->AddTerminal(pool.Text(form.close))});
  }
  return ways;
}

}  // namespace deepinfer
