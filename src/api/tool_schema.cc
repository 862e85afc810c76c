#include "api/tool_schema.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/json_reader.h"

namespace deepinfer {
namespace {

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool Contains(std::initializer_list<std::string_view> names, std::string_view name) {
  return Contains(std::span(names.begin(), names.size()), name);
}

// Follows JSON Pointers ("/properties/a~1b") in one document. Wide objects are indexed at their first use, so that many
// references into one do not cost the square of its size.
class PointerResolver {
 public:
  explicit PointerResolver(const JsonValue& root) : root_(root) {}

  bool Leads(std::string_view pointer) {
    const JsonValue* at = &root_;
    while (!pointer.empty() && at != nullptr) {
      pointer.remove_prefix(1);  // '/'
      const std::string_view token = pointer.substr(0, pointer.find('/'));
      pointer.remove_prefix(token.size());
      std::string key;
      for (size_t i = 0; i < token.size(); ++i) {
        const bool escaped = token[i] == '~' && i + 1 < token.size();
        key.push_back(escaped ? (token[++i] == '0' ? '~' : '/') : token[i]);
      }
      at = Step(*at, key);
    }
    return at != nullptr;
  }

 private:
  const JsonValue* Step(const JsonValue& from, const std::string& key) {
    if (const JsonValue::Array* array = from.AsArray()) {
      const bool is_index = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = is_index ? std::stoul(key) : array->size();
      return index < array->size() ? &(*array)[index] : nullptr;
    }
    const JsonValue::Object* object = from.AsObject();
    if (object == nullptr || object->size() <= kNarrow) return from.Find(key);
    auto [index, inserted] = indexes_.try_emplace(object);
    if (inserted) {
      for (const JsonMember& member : *object) index->second.emplace(member.key, &member.value);
    }
    const auto found = index->second.find(key);
    return found == index->second.end() ? nullptr : found->second;
  }

  static constexpr size_t kNarrow = 16;
  const JsonValue& root_;
  std::map<const JsonValue::Object*, std::map<std::string_view, const JsonValue*>> indexes_;
};

bool IsCount(const JsonValue& value) {
  constexpr double kLargestExact = 9007199254740992.0;
  const std::optional<double> count = value.AsDouble();
  if (!count.has_value() || *count < 0) return false;
  return *count >= kLargestExact || *count == static_cast<double>(static_cast<int64_t>(*count));
}

// Recursion is bounded by kMaxJsonDepth. The path is kept as a stack and spelled out only for an error, so that long
// keys cost nothing.
class SchemaChecker {
 public:
  SchemaChecker(const JsonValue& root, std::string_view path) : root_(root), root_path_(path), resolver_(root) {}

  Status CheckRoot() {
    if (root_.AsObject() == nullptr) return Expected("a JSON Schema object", root_);
    const JsonValue* type = root_.Find("type");
    if (type == nullptr) return FieldError(Path() + ".type", "expected \"object\", found nothing");
    if (type->AsString() == nullptr || *type->AsString() != "object") {
      return ExpectedError(Path() + ".type", "\"object\"", *type);
    }
    return Check(root_);
  }

 private:
  struct Step {
    std::string_view key;
    size_t index;  // used when key is empty
  };

  std::string Path() const {
    std::string path(root_path_);
    for (const Step& step : steps_) {
      if (step.key.empty()) {
        path = ItemPath(path, step.index);
      } else if (step.key.size() <= 40 && step.key.find_first_of(" .[]\"\\\n\r\t") == std::string_view::npos) {
        path.append(".").append(step.key);
      } else {
        path.append("[").append(Quoted(step.key)).append("]");
      }
    }
    return path;
  }

  Status Expected(std::string_view expected, const JsonValue& found) const {
    return ExpectedError(Path(), expected, found);
  }

  Status Check(const JsonValue& schema) {
    if (schema.AsBool() != nullptr) return Status::Ok();
    if (schema.AsObject() == nullptr) return Expected("a JSON Schema (an object or a boolean)", schema);
    for (const JsonMember& member : *schema.AsObject()) {
      steps_.push_back({member.key, 0});
      DEEPINFER_RETURN_IF_ERROR(CheckKeyword(member.key, member.value));
      steps_.pop_back();
    }
    return Status::Ok();
  }

  Status CheckMembers(const JsonValue& value) {
    if (value.AsObject() == nullptr) return Expected("an object of schemas", value);
    for (const JsonMember& member : *value.AsObject()) {
      steps_.push_back({member.key, 0});
      DEEPINFER_RETURN_IF_ERROR(Check(member.value));
      steps_.pop_back();
    }
    return Status::Ok();
  }

  Status CheckEach(const JsonValue::Array& schemas) {
    for (size_t i = 0; i < schemas.size(); ++i) {
      steps_.push_back({{}, i});
      DEEPINFER_RETURN_IF_ERROR(Check(schemas[i]));
      steps_.pop_back();
    }
    return Status::Ok();
  }

  Status CheckKeyword(const std::string& key, const JsonValue& value) {
    const auto expect = [&](bool fits, std::string_view expected) {
      return fits ? Status::Ok() : Expected(expected, value);
    };
    if (key == "type") return CheckType(value);
    if (key == "$ref") return CheckReference(value);
    if (key == "items") return value.AsArray() != nullptr ? CheckEach(*value.AsArray()) : Check(value);
    if (Contains({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}, key)) {
      return CheckMembers(value);
    }
    if (Contains({"anyOf", "oneOf", "allOf", "prefixItems"}, key)) {
      DEEPINFER_RETURN_IF_ERROR(
          expect(value.AsArray() != nullptr && !value.AsArray()->empty(), "an array of at least one schema"));
      return CheckEach(*value.AsArray());
    }
    if (Contains({"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "not", "if",
                  "then", "else", "contains", "propertyNames"},
                 key)) {
      return Check(value);
    }
    if (key == "required") return CheckStrings(value);
    if (key == "enum") return expect(value.AsArray() != nullptr, "an array");
    if (key == "pattern") return expect(value.AsString() != nullptr, "a string");
    if (key == "uniqueItems") return expect(value.AsBool() != nullptr, "a boolean");
    if (Contains({"minimum", "maximum", "multipleOf"}, key)) return expect(value.AsNumber() != nullptr, "a number");
    if (Contains({"exclusiveMinimum", "exclusiveMaximum"}, key)) {  // booleans in draft 4
      return expect(value.AsNumber() != nullptr || value.AsBool() != nullptr, "a number");
    }
    if (Contains({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
                  "maxContains"},
                 key)) {
      return expect(IsCount(value), "an integer of at least 0");
    }
    return Status::Ok();
  }

  Status CheckType(const JsonValue& value) const {
    static constexpr std::string_view kTypes[] = {"array", "boolean", "integer", "null", "number", "object", "string"};
    const auto known = [](const JsonValue& type) {
      return type.AsString() != nullptr && Contains(kTypes, *type.AsString());
    };
    const JsonValue::Array* types = value.AsArray();
    if (types != nullptr && !types->empty() && std::all_of(types->begin(), types->end(), known)) return Status::Ok();
    if (known(value)) return Status::Ok();
    return Expected(Choices(kTypes) + ", or an array of these", value);
  }

  Status CheckReference(const JsonValue& value) {
    if (value.AsString() == nullptr) return Expected("a string", value);
    const std::string_view reference = *value.AsString();
    // Anchors, other documents and percent-encoded pointers are left to the schema compiler.
    if (reference != "#" && !reference.starts_with("#/")) return Status::Ok();
    if (reference.find('%') != std::string_view::npos || resolver_.Leads(reference.substr(1))) {
      return Status::Ok();
    }
    return FieldError(Path(), "the reference " + Quoted(reference) + " leads nowhere");
  }

  Status CheckStrings(const JsonValue& value) const {
    const auto is_string = [](const JsonValue& item) { return item.AsString() != nullptr; };
    if (value.AsArray() != nullptr && std::all_of(value.AsArray()->begin(), value.AsArray()->end(), is_string)) {
      return Status::Ok();
    }
    return Expected("an array of strings", value);
  }

  const JsonValue& root_;
  const std::string_view root_path_;
  std::vector<Step> steps_;
  PointerResolver resolver_;
};

}  // namespace

Status CheckToolParameters(const JsonValue& parameters, std::string_view path) {
  return SchemaChecker(parameters, path).CheckRoot();
}

}  // namespace deepinfer
