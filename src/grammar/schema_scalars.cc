#include "grammar/schema_scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "grammar/json_format.h"
#include "grammar/regex_parser.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxLength = 1'000'000;
constexpr int kMaxDepth = 500;
constexpr RegexId kInProgress = -1;

/// Strings in any spelling that decodes to whole characters.
RegexId StringInAnySpelling(Alphabet* alphabet) {
  RegexPool& pool = alphabet->pool();
  const auto hex = [&pool](std::string_view digits) {
    ByteSet set;
    for (const char c : digits) set.Add(static_cast<uint8_t>(c));
    return pool.Bytes(set);
  };
  const std::string_view all = "0123456789abcdefABCDEF";
  const RegexId any = hex(all);
  const RegexId low = pool.Sequence({pool.Text("\\u"), hex("dD"), hex("cdefCDEF"), any, any});
  const RegexId high = pool.Sequence({pool.Text("\\u"), hex("dD"), hex("89abAB"), any, any});
  const RegexId unit =
      pool.Concat(pool.Text("\\u"), pool.Or({pool.Sequence({hex("0123456789abcefABCEF"), any, any, any}),
                                             pool.Sequence({hex("dD"), hex("01234567"), any, any})}));
  const RegexId escape = pool.Concat(pool.Text("\\"), hex("\"\\/bfnrt"));
  CodePointSet raw = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  raw = raw.Complement();
  Alphabet utf8(&pool, Alphabet::Spelling::kUtf8);
  return pool.Star(pool.Or({utf8.OneOf(raw), escape, unit, pool.Concat(high, low)}));
}

Alphabet::Spelling AlphabetOf(SchemaScalars::Spelling spelling) {
  switch (spelling) {
    case SchemaScalars::Spelling::kJson:
      return Alphabet::Spelling::kJson;
    case SchemaScalars::Spelling::kPythonJson:
      return Alphabet::Spelling::kPythonJson;
    case SchemaScalars::Spelling::kRaw:
      break;
  }
  return Alphabet::Spelling::kUtf8;
}

}  // namespace

SchemaScalars::SchemaScalars(SchemaSet* schemas, RegexPool* pool, Spelling spelling, bool plain_integers)
    : schemas_(schemas), pool_(pool), spelling_(spelling), alphabet_(pool, AlphabetOf(spelling)) {
  universe_[0] = pool->Text("null");
  universe_[1] = pool->Text("true");
  universe_[2] = pool->Text("false");
  universe_[3] = PlainNumber(pool);
  universe_[4] = InQuotes(alphabet_.AnyText());
  free_number_ = AnyNumber(pool);
  whole_number_ = WholeNumber(pool);
  free_whole_number_ = AnyWholeNumber(pool);
  integer_ = RegexPool::kNothing;
  if (plain_integers) integer_ = PlainInteger(pool);
  if (spelling == Spelling::kPythonJson) integer_ = PythonInteger(pool);
  free_string_ = spelling == Spelling::kJson ? InQuotes(StringInAnySpelling(&alphabet_)) : universe_[4];
}

RegexId SchemaScalars::Within(std::vector<RegexId> parts, Kind kind) {
  // Every part lies within the universe already.
  const RegexId universe = universe_[static_cast<size_t>(kind)];
  std::erase(parts, universe);
  if (parts.empty()) return universe;
  return pool_->And(std::move(parts));
}

RegexId SchemaScalars::Except(RegexId texts, Kind kind) {
  const RegexId universe = universe_[static_cast<size_t>(kind)];
  if (texts == universe) return RegexPool::kNothing;
  if (texts == RegexPool::kNothing) return universe;
  return pool_->And({universe, pool_->Not(texts)});
}

std::string SchemaScalars::Quoted(std::string_view text) const {
  if (spelling_ == Spelling::kRaw) return std::string(text);
  std::string quoted(1, '"');
  quoted.append(alphabet_.Spell(text));
  quoted.push_back('"');
  return quoted;
}

Result<RegexId> SchemaScalars::TextsOf(const std::vector<SchemaLiteral>& literals) {
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId others, NonStringsOf(literals));
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId strings, StringsOf(literals));
  return pool_->Or({others, strings});
}

Result<RegexId> SchemaScalars::NonStringsOf(const std::vector<SchemaLiteral>& literals) {
  std::vector<RegexId> kinds;
  for (const Kind kind : kNonStrings) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, TextsOf(literals, kind));
    kinds.push_back(texts);
  }
  return pool_->Or(std::move(kinds));
}

Result<RegexId> SchemaScalars::StringsOf(const std::vector<SchemaLiteral>& literals) {
  return TextsOf(literals, Kind::kString);
}

Result<RegexId> SchemaScalars::TextsOf(const std::vector<SchemaLiteral>& literals, Kind kind) {
  std::vector<RegexId> parts;
  for (const SchemaLiteral literal : literals) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Of(NodeOfLiteral(literal), kind));
    parts.push_back(IsNegated(literal) ? Except(texts, kind) : texts);
  }
  const RegexId texts = Within(std::move(parts), kind);
  if (texts == universe_[static_cast<size_t>(kind)]) {
    return kind == Kind::kNumber ? free_number_ : kind == Kind::kString ? free_string_ : texts;
  }
  return kind == Kind::kNumber ? NumberForm(texts) : texts;
}

RegexId SchemaScalars::NumberForm(RegexId texts) {
  if (texts == RegexPool::kNothing) return texts;
  if (integer_ == RegexPool::kNothing) return texts == whole_number_ ? free_whole_number_ : texts;
  if (texts == whole_number_) return integer_;
  // Every whole number has a spelling without a fraction, so none is lost.
  const bool all_whole = pool_->IsEmpty(pool_->And({texts, pool_->Not(whole_number_)}));
  return all_whole ? pool_->And({texts, integer_}) : texts;
}

Result<RegexId> SchemaScalars::Of(int index, Kind kind) {
  const auto [known, added] = known_.emplace(std::pair(index, kind), kInProgress);
  if (!added) {
    if (known->second != kInProgress) return known->second;
    return Status::Unsupported(fmt::format("{}: refers to itself without end", schemas_->At(index).path));
  }
  DEEPINFER_RETURN_IF_ERROR(schemas_->Read(index));
  if (depth_ >= kMaxDepth) {
    return Status::ResourceExhausted(fmt::format("{}: schemas in place are nested too deep", schemas_->At(index).path));
  }
  ++depth_;
  const Result<RegexId> computed = Compute(schemas_->At(index), kind);
  --depth_;
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, computed);
  if (pool_->exhausted()) {
    return Status::ResourceExhausted(fmt::format(
        "{}: the schema needs too many regular-expression nodes, or too much work", schemas_->At(index).path));
  }
  known_[std::pair(index, kind)] = texts;
  return texts;
}

Result<RegexId> SchemaScalars::Compute(const SchemaNode& node, Kind kind) {
  if (node.kind == SchemaNode::Kind::kTrue) return universe_[static_cast<size_t>(kind)];
  if (node.kind == SchemaNode::Kind::kFalse) return RegexPool::kNothing;
  if (node.kind == SchemaNode::Kind::kConstant) return ConstantText(*node.constant, kind, node.path);
  std::vector<RegexId> parts;
  DEEPINFER_RETURN_IF_ERROR(AddKeywords(node, kind, &parts));
  DEEPINFER_RETURN_IF_ERROR(AddInPlace(node, kind, &parts));
  return Within(std::move(parts), kind);
}

Status SchemaScalars::AddKeywords(const SchemaNode& node, Kind kind, std::vector<RegexId>* parts) {
  const bool boolean = kind == Kind::kTrue || kind == Kind::kFalse;
  const bool admitted = kind == Kind::kNull     ? (node.types & kJsonNull) != 0
                        : boolean               ? (node.types & kJsonBoolean) != 0
                        : kind == Kind::kNumber ? (node.types & (kJsonNumber | kJsonInteger)) != 0
                                                : (node.types & kJsonString) != 0;
  if (!admitted) {
    parts->push_back(RegexPool::kNothing);
    return Status::Ok();
  }
  if (kind == Kind::kNumber) {
    if ((node.types & kJsonNumber) == 0) parts->push_back(whole_number_);
    DEEPINFER_RETURN_IF_ERROR(AddNumber(node, parts));
  }
  if (kind == Kind::kString) DEEPINFER_RETURN_IF_ERROR(AddString(node, parts));
  if (!node.values) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, ValuesText(*node.values, kind, node.path + "/enum"));
  parts->push_back(texts);
  return Status::Ok();
}

Result<RegexId> SchemaScalars::ValuesText(const std::vector<const JsonValue*>& list, Kind kind,
                                          const std::string& path) {
  std::vector<std::string> strings;
  std::vector<RegexId> ways;
  std::vector<Decimal> numbers;
  for (const JsonValue* value : list) {
    const JsonType type = TypeOf(*value);
    if (kind == Kind::kString && type == kJsonString) strings.push_back(*value->AsString());
    if (kind == Kind::kNumber && type == kJsonNumber) {
      const auto decimal = ParseDecimal(value->AsNumber()->spelling);
      if (!decimal) return Status::Unsupported(fmt::format("{}: a number has too many digits", path));
      numbers.push_back(*decimal);
    }
    const bool boolean = type == kJsonBoolean && kind == (*value->AsBool() ? Kind::kTrue : Kind::kFalse);
    if (boolean || (type == kJsonNull && kind == Kind::kNull)) return universe_[static_cast<size_t>(kind)];
  }
  if (kind == Kind::kString) return AnyOfStrings(std::move(strings));
  return NumberOneOf(numbers, pool_);
}

Result<RegexId> SchemaScalars::ConstantText(const JsonValue& value, Kind kind, const std::string& path) {
  switch (TypeOf(value)) {
    case kJsonNull:
      return kind == Kind::kNull ? universe_[0] : RegexPool::kNothing;
    case kJsonBoolean:
      return kind == (*value.AsBool() ? Kind::kTrue : Kind::kFalse) ? universe_[static_cast<size_t>(kind)]
                                                                    : RegexPool::kNothing;
    case kJsonNumber: {
      if (kind != Kind::kNumber) return RegexPool::kNothing;
      const auto decimal = ParseDecimal(value.AsNumber()->spelling);
      if (!decimal) return Status::Unsupported(fmt::format("{}: a number has too many digits", path));
      return NumberEqual(*decimal, pool_);
    }
    case kJsonString:
      return kind == Kind::kString ? pool_->Text(Quoted(*value.AsString())) : RegexPool::kNothing;
    default:
      return RegexPool::kNothing;
  }
}

RegexId SchemaScalars::AnyOfStrings(std::vector<std::string> strings) {
  for (std::string& text : strings) text = Quoted(text);
  return pool_->AnyOfTexts(std::move(strings));
}

Status SchemaScalars::AddNumber(const SchemaNode& node, std::vector<RegexId>* parts) {
  if (node.minimum) parts->push_back(NumberFrom(*node.minimum, node.minimum_strict, pool_));
  if (node.minimum_2) parts->push_back(NumberFrom(*node.minimum_2, true, pool_));
  if (node.maximum) parts->push_back(NumberUpTo(*node.maximum, node.maximum_strict, pool_));
  if (node.maximum_2) parts->push_back(NumberUpTo(*node.maximum_2, true, pool_));
  if (const auto range = node.format ? RangeOfFormat(*node.format) : std::nullopt) {
    parts->push_back(whole_number_);
    parts->push_back(NumberFrom(*ParseDecimal(range->least), false, pool_));
    parts->push_back(NumberUpTo(*ParseDecimal(range->greatest), false, pool_));
  }
  if (node.multiple_of) parts->push_back(NumberMultipleOf(*node.multiple_of, pool_));
  return Status::Ok();
}

Status SchemaScalars::AddString(const SchemaNode& node, std::vector<RegexId>* parts) {
  if (node.min_length > 0 || node.max_length != SchemaNode::kNoLimit) {
    const bool bounded = node.max_length <= kMaxLength;
    if (node.min_length > kMaxLength || (!bounded && node.max_length < SchemaNode::kNoLimit - 1)) {
      return Status::Unsupported(fmt::format("{}: a length limit above {} is not supported", node.path, kMaxLength));
    }
    if (bounded && node.max_length < node.min_length) {
      parts->push_back(RegexPool::kNothing);
    } else {
      const RegexId character = alphabet_.OneOf(CodePointSet::All());
      parts->push_back(InQuotes(pool_->Repeat(character, static_cast<int>(node.min_length),
                                              bounded ? static_cast<int>(node.max_length) : RegexPool::kUnbounded)));
    }
  }
  if (node.pattern) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Matching(*node.pattern, node.path + "/pattern"));
    parts->push_back(texts);
  }
  if (!node.format) return Status::Ok();
  const auto pattern = PatternOfFormat(*node.format);
  if (!pattern) return Status::Ok();  // of numbers
  const auto known = formats_.find(*node.format);
  if (known != formats_.end()) {
    parts->push_back(known->second);
    return Status::Ok();
  }
  DEEPINFER_ASSIGN_OR_RETURN(RegexId texts, ParseRegex(*pattern, RegexMatch::kWhole, &alphabet_));
  if (node.format->starts_with("host")) {
    texts = pool_->And({texts, pool_->Repeat(alphabet_.OneOf(CodePointSet::All()), 1, 253)});
  }
  formats_[*node.format] = InQuotes(texts);
  parts->push_back(InQuotes(texts));
  return Status::Ok();
}

Result<RegexId> SchemaScalars::Matching(const std::string& pattern, const std::string& path) {
  const auto known = patterns_.find(pattern);
  if (known != patterns_.end()) return known->second;
  const auto regex = ParseRegex(pattern, RegexMatch::kSearch, &alphabet_);
  if (!regex.ok()) return Status(regex.status().code(), fmt::format("{}: {}", path, regex.status().message()));
  const RegexId texts = InQuotes(*regex);
  patterns_[pattern] = texts;
  return texts;
}

Result<RegexId> SchemaScalars::OneOf(const std::vector<int>& ways, Kind kind) {
  // Long lists are of constants, most of them: those are counted, not multiplied out.
  std::map<std::string, std::pair<const JsonValue*, int>> constants;
  RegexId none = universe_[static_cast<size_t>(kind)];  // of the other ways
  RegexId one = RegexPool::kNothing;
  RegexId any = RegexPool::kNothing;
  for (const int way : ways) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Of(way, kind));
    if (texts == RegexPool::kNothing) continue;
    DEEPINFER_ASSIGN_OR_RETURN(const int target, schemas_->Target(way));
    const SchemaNode& node = schemas_->At(target);
    if (node.values) {
      std::map<std::string, const JsonValue*> own;
      for (const JsonValue* value : *node.values) {
        DEEPINFER_ASSIGN_OR_RETURN(const RegexId text, ConstantText(*value, kind, node.path));
        if (text == RegexPool::kNothing) continue;
        // What else the way demands may exclude the value; all spellings of a value fare alike.
        if (node.keyword_count > 1 && pool_->IsEmpty(pool_->And({texts, text}))) continue;
        own.emplace(CanonicalKey(*value), value);
      }
      for (const auto& [key, value] : own) {
        auto& [first, count] = constants.emplace(key, std::pair(value, 0)).first->second;
        ++count;
      }
      continue;
    }
    const RegexId rest = Except(texts, kind);
    one = pool_->Or({Within({none, texts}, kind), one == RegexPool::kNothing ? one : Within({one, rest}, kind)});
    none = none == RegexPool::kNothing ? none : Within({none, rest}, kind);
    any = pool_->Or({any, texts});
  }
  if (constants.empty()) return one;
  std::vector<const JsonValue*> once;
  std::vector<const JsonValue*> all;
  for (const auto& [key, counted] : constants) {
    all.push_back(counted.first);
    if (counted.second == 1) once.push_back(counted.first);
  }
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId once_texts, ValuesText(once, kind, "oneOf"));
  if (any == RegexPool::kNothing) return once_texts;
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId all_texts, ValuesText(all, kind, "oneOf"));
  return pool_->Or({once_texts == RegexPool::kNothing ? once_texts : Within({once_texts, none}, kind),
                    one == RegexPool::kNothing ? one : Within({one, Except(all_texts, kind)}, kind)});
}

Status SchemaScalars::AddInPlace(const SchemaNode& node, Kind kind, std::vector<RegexId>* parts) {
  for (const int part : node.all_of) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Of(part, kind));
    parts->push_back(texts);
  }
  if (!node.any_of.empty()) {
    std::vector<RegexId> ways;
    for (const int way : node.any_of) {
      DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Of(way, kind));
      ways.push_back(texts);
    }
    const bool all = std::ranges::find(ways, universe_[static_cast<size_t>(kind)]) != ways.end();
    parts->push_back(all ? universe_[static_cast<size_t>(kind)] : pool_->Or(std::move(ways)));
  }
  if (!node.one_of.empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId one, OneOf(node.one_of, kind));
    parts->push_back(one);
  }
  if (node.negated) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, Of(*node.negated, kind));
    parts->push_back(Except(texts, kind));
  }
  if (!node.condition || (!node.then_schema && !node.else_schema)) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId condition, Of(*node.condition, kind));
  RegexId then = universe_[static_cast<size_t>(kind)];
  RegexId otherwise = then;
  if (node.then_schema) {
    DEEPINFER_ASSIGN_OR_RETURN(then, Of(*node.then_schema, kind));
  }
  if (node.else_schema) {
    DEEPINFER_ASSIGN_OR_RETURN(otherwise, Of(*node.else_schema, kind));
  }
  parts->push_back(pool_->Or({Within({condition, then}, kind), Within({Except(condition, kind), otherwise}, kind)}));
  return Status::Ok();
}

}  // namespace deepinfer
