#include "text/tokenizer_json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

// Real files nest seven levels; the limit keeps hostile ones from exhausting memory.
constexpr size_t kMaxDepth = 32;

// Collects model.vocab and model.merges, which hold nearly all of the file, straight into vectors and everything else
// into a small document: several times faster than a document of the whole file.
class DefinitionReader : public nlohmann::json_sax<Json> {
 public:
  DefinitionReader(std::string name, TokenizerDefinition* definition)
      : name_(std::move(name)), definition_(definition) {}

  const Status& status() const { return status_; }
  const Json& document() const { return document_; }
  bool saw_vocabulary() const { return saw_vocabulary_; }
  bool saw_merges() const { return saw_merges_; }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override {
    return mode_ == Mode::kVocabulary ? AddToken(value) : Value(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (mode_ != Mode::kVocabulary) return Value(value);
    constexpr auto kLargest = std::numeric_limits<int64_t>::max();
    return AddToken(value > static_cast<uint64_t>(kLargest) ? kLargest : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool binary(binary_t&) override { return Fail("binary values do not occur in JSON"); }

  bool string(string_t& value) override {
    if (mode_ == Mode::kMerges) return AddJoinedMerge(value);
    if (mode_ == Mode::kMergePair) {
      pair_.push_back(std::move(value));
      return pair_.size() <= 2 || Fail(MergeName() + ": expected two tokens, found more");
    }
    return Value(std::move(value));
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (mode_ == Mode::kVocabulary) return true;
    if (open_.size() == 1) section_ = key_;
    if (open_.back()->contains(key_)) return Fail("key " + QuotedExcerpt(key_) + " occurs twice in one object");
    return true;
  }

  bool start_object(size_t) override {
    if (mode_ == Mode::kBuild && InModel() && key_ == "vocab") {
      if (saw_vocabulary_) return Fail("key \"vocab\" occurs twice in one object");
      saw_vocabulary_ = true;
      mode_ = Mode::kVocabulary;
      return true;
    }
    return Open(Json::object());
  }

  bool end_object() override {
    if (mode_ == Mode::kVocabulary) {
      mode_ = Mode::kBuild;
    } else {
      open_.pop_back();
    }
    return true;
  }

  bool start_array(size_t) override {
    if (mode_ == Mode::kBuild && InModel() && key_ == "merges") {
      if (saw_merges_) return Fail("key \"merges\" occurs twice in one object");
      saw_merges_ = true;
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      pair_.clear();
      return true;
    }
    return Open(Json::array());
  }

  bool end_array() override {
    if (mode_ == Mode::kMergePair) {
      if (pair_.size() != 2) return Fail(MergeName() + ": expected two tokens, found fewer");
      definition_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      mode_ = Mode::kMerges;
    } else if (mode_ == Mode::kMerges) {
      mode_ = Mode::kBuild;
    } else {
      open_.pop_back();
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line ..."
    const size_t tag = what.find("] ");
    return Fail("not valid JSON: " + std::string(tag == std::string_view::npos ? what : what.substr(tag + 2)));
  }

 private:
  enum class Mode { kBuild, kVocabulary, kMerges, kMergePair };

  bool InModel() const { return open_.size() == 2 && section_ == "model" && open_.back()->is_object(); }
  std::string MergeName() const { return "model.merges[" + std::to_string(definition_->merges.size()) + "]"; }

  bool Fail(const std::string& message) {
    status_ = Status::Corruption(name_ + ": " + message);
    return false;
  }

  bool WrongElement(std::string_view found) {
    if (mode_ == Mode::kVocabulary) {
      return Fail("model.vocab[" + QuotedExcerpt(key_) + "]: expected an integer id, found " + std::string(found));
    }
    return Fail(MergeName() + ": expected \"left right\" or [\"left\", \"right\"], found " + std::string(found));
  }

  bool AddToken(int64_t id) {
    definition_->vocabulary.emplace_back(std::move(key_), id);
    return true;
  }

  bool AddJoinedMerge(const std::string& both) {
    const size_t blank = both.find(' ');
    if (blank == std::string::npos || both.find(' ', blank + 1) != std::string::npos) {
      return Fail(MergeName() + ": expected two tokens with one blank between, found " + QuotedExcerpt(both));
    }
    definition_->merges.emplace_back(both.substr(0, blank), both.substr(blank + 1));
    return true;
  }

  Json* Insert(Json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    Json& slot = (*open_.back())[key_];
    slot = std::move(value);
    return &slot;
  }

  bool Value(Json value) {
    if (mode_ != Mode::kBuild) return WrongElement(value.type_name());
    Insert(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (mode_ != Mode::kBuild) return WrongElement(container.type_name());
    if (open_.size() == kMaxDepth) return Fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    open_.push_back(Insert(std::move(container)));
    return true;
  }

  std::string name_;
  TokenizerDefinition* definition_;
  Status status_;
  Mode mode_ = Mode::kBuild;
  Json document_;
  std::vector<Json*> open_;  // containers from the root to the innermost one
  std::string section_;      // key of the root object that is being read
  std::string key_;
  std::vector<std::string> pair_;
  bool saw_vocabulary_ = false;
  bool saw_merges_ = false;
};

// Checks the small document; every method returns the first thing wrong.
class DefinitionChecker {
 public:
  DefinitionChecker(std::string name, TokenizerDefinition* definition)
      : name_(std::move(name)), definition_(definition) {}

  Status Check(const Json& root) {
    if (!root.is_object()) return Wrong("the file", "an object", root);
    for (const char* key : {"truncation", "padding"}) {
      if (!IsNull(root, key)) return Unsupported(key, "null", root[key]);
    }
    DEEPINFER_RETURN_IF_ERROR(CheckNormalizer(root));
    DEEPINFER_RETURN_IF_ERROR(CheckPreTokenizer(root));
    DEEPINFER_RETURN_IF_ERROR(CheckModel(root));
    DEEPINFER_RETURN_IF_ERROR(CheckByteLevel(root, "decoder", /*may_be_null=*/false));
    DEEPINFER_RETURN_IF_ERROR(CheckByteLevel(root, "post_processor", /*may_be_null=*/true));
    return CheckAddedTokens(root);
  }

 private:
  static bool IsNull(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null();
  }

  static bool IsTrue(const Json& object, const char* key, bool when_absent) {
    const auto found = object.find(key);
    return found == object.end() ? when_absent : !found->is_boolean() || found->get<bool>();
  }

  static std::string Show(const Json& value) {
    if (value.is_string()) return QuotedExcerpt(value.get_ref<const std::string&>());
    if (value.is_structured()) return std::string(value.is_array() ? "an array" : "an object");
    return value.dump();
  }

  Status Missing(const std::string& key) const {
    return Status::Corruption(name_ + ": key " + key + " is missing; this is not a complete tokenizer.json");
  }
  Status Wrong(const std::string& key, const std::string& expected, const Json& found) const {
    return Status::Corruption(name_ + ": " + key + ": expected " + expected + ", found " + Show(found));
  }
  Status Unsupported(const std::string& key, const std::string& expected, const Json& found) const {
    return Status::Unsupported(name_ + ": " + key + ": only " + expected + " is implemented, found " + Show(found) +
                               "; use the tokenizer.json of a DeepSeek-V4.1 checkpoint");
  }

  // The type of a component; an object without one is corrupt.
  Result<std::string> TypeOf(const Json& component, const std::string& key) const {
    if (!component.is_object()) return Wrong(key, "an object with a type", component);
    const auto type = component.find("type");
    if (type == component.end()) return Missing(key + ".type");
    if (!type->is_string()) return Wrong(key + ".type", "a string", *type);
    return type->get<std::string>();
  }

  Status CheckNormalizer(const Json& root) const {
    if (IsNull(root, "normalizer")) return Status::Ok();
    const Json& normalizer = root["normalizer"];
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(normalizer, "normalizer"));
    if (type != "Sequence") return Unsupported("normalizer.type", "none", normalizer["type"]);
    const auto parts = normalizer.find("normalizers");
    if (parts == normalizer.end()) return Missing("normalizer.normalizers");
    if (!parts->is_array()) return Wrong("normalizer.normalizers", "an array", *parts);
    if (!parts->empty()) return Unsupported("normalizer.normalizers", "an empty array", *parts);
    return Status::Ok();
  }

  Status CheckPreTokenizer(const Json& root) {
    if (IsNull(root, "pre_tokenizer")) return Missing("pre_tokenizer");
    const Json& pre_tokenizer = root["pre_tokenizer"];
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(pre_tokenizer, "pre_tokenizer"));
    if (type == "ByteLevel") return CheckLastSplit(pre_tokenizer, "pre_tokenizer");
    if (type != "Sequence") return Unsupported("pre_tokenizer.type", "Sequence", pre_tokenizer["type"]);
    const auto parts = pre_tokenizer.find("pretokenizers");
    if (parts == pre_tokenizer.end()) return Missing("pre_tokenizer.pretokenizers");
    if (!parts->is_array() || parts->empty()) {
      return Wrong("pre_tokenizer.pretokenizers", "an array that ends with ByteLevel", *parts);
    }
    for (size_t i = 0; i + 1 < parts->size(); ++i) {
      DEEPINFER_RETURN_IF_ERROR(AddSplit((*parts)[i], "pre_tokenizer.pretokenizers[" + std::to_string(i) + "]"));
    }
    return CheckLastSplit(parts->back(), "pre_tokenizer.pretokenizers[" + std::to_string(parts->size() - 1) + "]");
  }

  Status AddSplit(const Json& part, const std::string& key) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(part, key));
    if (type != "Split") return Unsupported(key + ".type", "Split before a last ByteLevel", part["type"]);
    if (!part.contains("pattern")) return Missing(key + ".pattern");
    const Json& pattern = part["pattern"];
    if (!pattern.is_object()) return Wrong(key + ".pattern", "{\"Regex\": ...}", pattern);
    const auto regex = pattern.find("Regex");
    if (regex == pattern.end()) return Unsupported(key + ".pattern", "{\"Regex\": ...}", pattern);
    if (!regex->is_string()) return Wrong(key + ".pattern.Regex", "a string", *regex);
    if (!part.contains("behavior")) return Missing(key + ".behavior");
    if (part["behavior"] != "Isolated") return Unsupported(key + ".behavior", "Isolated", part["behavior"]);
    if (IsTrue(part, "invert", false)) return Unsupported(key + ".invert", "false", part["invert"]);
    definition_->split_patterns.push_back(regex->get<std::string>());
    return Status::Ok();
  }

  Status CheckLastSplit(const Json& part, const std::string& key) const {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(part, key));
    if (type != "ByteLevel") return Unsupported(key + ".type", "ByteLevel in the last place", part["type"]);
    // Hugging Face's defaults for absent keys are true.
    for (const char* flag : {"add_prefix_space", "use_regex"}) {
      if (IsTrue(part, flag, true)) {
        return Unsupported(key + "." + flag, "false", part.contains(flag) ? part[flag] : Json(true));
      }
    }
    return Status::Ok();
  }

  Status CheckModel(const Json& root) const {
    if (IsNull(root, "model")) return Missing("model");
    const Json& model = root["model"];
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(model, "model"));
    if (type != "BPE") return Unsupported("model.type", "BPE", model["type"]);
    if (!IsNull(model, "dropout") && model["dropout"] != 0) {
      return Unsupported("model.dropout", "null", model["dropout"]);
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const bool empty = IsNull(model, affix) || (model[affix].is_string() && model[affix].get<std::string>().empty());
      if (!empty) {
        return Unsupported(std::string("model.") + affix, "null", model[affix]);
      }
    }
    // unk_token, fuse_unk and byte_fallback act on characters without a token; every byte has one (checked by
    // Tokenizer).
    if (IsTrue(model, "ignore_merges", false))
      return Unsupported("model.ignore_merges", "false", model["ignore_merges"]);
    for (const auto& [key, expected] : {std::pair{"vocab", "an object"}, std::pair{"merges", "an array"}}) {
      if (model.contains(key)) return Wrong(std::string("model.") + key, expected, model[key]);
    }
    return Status::Ok();
  }

  Status CheckByteLevel(const Json& root, const std::string& key, bool may_be_null) const {
    if (IsNull(root, key.c_str())) return may_be_null ? Status::Ok() : Missing(key);
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, TypeOf(root[key], key));
    return type == "ByteLevel" ? Status::Ok() : Unsupported(key + ".type", "ByteLevel", root[key]["type"]);
  }

  Status CheckAddedTokens(const Json& root) {
    if (!root.contains("added_tokens")) return Missing("added_tokens");
    const Json& tokens = root["added_tokens"];
    if (!tokens.is_array()) return Wrong("added_tokens", "an array", tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      DEEPINFER_RETURN_IF_ERROR(AddAddedToken(tokens[i], "added_tokens[" + std::to_string(i) + "]"));
    }
    return Status::Ok();
  }

  Status AddAddedToken(const Json& token, const std::string& key) {
    if (!token.is_object()) return Wrong(key, "an object", token);
    for (const char* field : {"id", "content", "special"}) {
      if (!token.contains(field)) return Missing(key + "." + field);
    }
    const Json& id = token["id"];
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return Wrong(key + ".id", "a token id", id);
    }
    const Json& content = token["content"];
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
      return Wrong(key + ".content", "a string that is not empty", content);
    }
    if (!token["special"].is_boolean()) return Wrong(key + ".special", "true or false", token["special"]);
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (IsTrue(token, flag, false)) return Unsupported(key + "." + flag, "false", token[flag]);
    }
    definition_->added_tokens.push_back(
        {static_cast<int32_t>(id.get<uint64_t>()), content.get<std::string>(), token["special"].get<bool>()});
    return Status::Ok();
  }

  std::string name_;
  TokenizerDefinition* definition_;
};

}  // namespace

Result<TokenizerDefinition> ParseTokenizerJson(std::string_view json, const std::string& name) {
  TokenizerDefinition definition;
  DefinitionReader reader(name, &definition);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return reader.status().ok() ? Status::Corruption(name + ": not valid JSON") : reader.status();
  }
  DEEPINFER_RETURN_IF_ERROR(DefinitionChecker(name, &definition).Check(reader.document()));
  if (!reader.saw_vocabulary()) return Status::Corruption(name + ": key model.vocab is missing");
  if (!reader.saw_merges()) return Status::Corruption(name + ": key model.merges is missing");
  return definition;
}

}  // namespace deepinfer
