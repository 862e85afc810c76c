#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_merges.h"
#include "text/tokenizer_vocabulary.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

// Whether BPE of a token's own bytes is that token. Nearly always; found out once per token, when a piece first needs
// it.
enum WholeToken : uint8_t { kUnknown, kYes, kNo };

Result<std::string> ReadFile(const std::string& path) {
  const auto failed = [&path] { return Status::Io(path + ": " + std::strerror(errno)); };
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return Status::Io(path + ": expected a regular file");
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return errno == ENOENT ? Status::NotFound(path + ": no such file; a model folder needs a tokenizer.json")
                           : failed();
  }
  std::string content;
  std::array<char, 1 << 16> block;
  while (true) {
    const size_t count = std::fread(block.data(), 1, block.size(), file.get());
    content.append(block.data(), count);
    if (count < block.size()) break;
  }
  if (std::ferror(file.get()) != 0) return failed();
  return content;
}

}  // namespace

struct Tokenizer::State {
  TokenizerVocabulary vocabulary;
  TokenizerMerges merges;
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> added_by_text;    // ids of added tokens, sorted by text
  std::array<bool, 256> starts_added{};  // first bytes of added tokens
  std::unique_ptr<std::atomic<uint8_t>[]>
      whole_token;  // [vocabulary.size()] WholeToken, a cache: see thread-safety below

  bool IsWholeToken(int32_t id, std::string_view piece, TokenizerMerges::Scratch* scratch) const {
    // Relaxed is enough: every thread computes the same answer, and nothing else is published by it.
    const uint8_t known = whole_token[id].load(std::memory_order_relaxed);
    if (known != kUnknown) return known == kYes;
    std::vector<int32_t> ids;
    merges.Apply(piece, scratch, &ids);
    const bool whole = ids.size() == 1 && ids[0] == id;
    whole_token[id].store(whole ? kYes : kNo, std::memory_order_relaxed);
    return whole;
  }

  // `text` is well-formed UTF-8.
  Status EncodePlain(std::string_view text, std::vector<int32_t>* out) const {
    TokenizerMerges::Scratch scratch;
    return pre_tokenizer.ForEachPiece(text, [&](std::string_view piece) {
      const int32_t id = vocabulary.Find(piece);
      if (id != TokenizerVocabulary::kAbsent && IsWholeToken(id, piece, &scratch)) {
        out->push_back(id);
      } else {
        merges.Apply(piece, &scratch, out);
      }
    });
  }

  // The longest added token that `text` starts with, or kAbsent.
  int32_t LongestAddedPrefix(std::string_view text) const {
    int32_t longest = TokenizerVocabulary::kAbsent;
    auto low = added_by_text.begin();
    auto high = added_by_text.end();
    // All in [low, high) agree with `text` in their first `length` bytes.
    for (size_t length = 0; low != high; ++length) {
      if (vocabulary.Bytes(*low).size() == length) longest = *low++;
      if (length == text.size()) break;
      const auto byte = static_cast<unsigned char>(text[length]);
      const auto byte_of = [&](int32_t id) { return static_cast<unsigned char>(vocabulary.Bytes(id)[length]); };
      low = std::lower_bound(low, high, byte, [&](int32_t id, unsigned char b) { return byte_of(id) < b; });
      high = std::upper_bound(low, high, byte, [&](unsigned char b, int32_t id) { return b < byte_of(id); });
    }
    return longest;
  }

  Status EncodeSpecial(std::string_view text, std::vector<int32_t>* out) const {
    size_t plain = 0;
    for (size_t at = 0; at < text.size();) {
      if (!starts_added[static_cast<unsigned char>(text[at])]) {
        ++at;
        continue;
      }
      const int32_t id = LongestAddedPrefix(text.substr(at));
      if (id == TokenizerVocabulary::kAbsent) {
        ++at;
        continue;
      }
      DEEPINFER_RETURN_IF_ERROR(EncodePlain(text.substr(plain, at - plain), out));
      out->push_back(id);
      at += vocabulary.Bytes(id).size();
      plain = at;
    }
    return EncodePlain(text.substr(plain), out);
  }

  // Repairs and bounds the text, and leaves `out` alone when encoding fails.
  template <typename EncodeValid>
  static Status Guarded(std::string_view text, std::vector<int32_t>* out, EncodeValid&& encode_valid) {
    if (text.size() > kMaxTextBytes) {
      return Status::InvalidArgument("text of " + std::to_string(text.size()) + " bytes: at most " +
                                     std::to_string(kMaxTextBytes) + " can be encoded at once");
    }
    const size_t before = out->size();
    Status status = IsValidUtf8(text) ? encode_valid(text) : encode_valid(std::string_view(RepairUtf8(text)));
    if (!status.ok()) out->resize(before);
    return status;
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  return FromJson(json, path);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json, const std::string& name) {
  DEEPINFER_ASSIGN_OR_RETURN(const TokenizerDefinition definition, ParseTokenizerJson(json, name));
  auto state = std::make_unique<State>();
  DEEPINFER_ASSIGN_OR_RETURN(state->vocabulary, TokenizerVocabulary::Build(definition, name));
  DEEPINFER_ASSIGN_OR_RETURN(state->merges, TokenizerMerges::Build(definition, state->vocabulary, name));
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::Create(definition.split_patterns);
  if (!pre_tokenizer.ok()) {
    return Status(pre_tokenizer.status().code(), name + ": pre_tokenizer: " + pre_tokenizer.status().message());
  }
  state->pre_tokenizer = std::move(pre_tokenizer).value();
  for (const AddedToken& token : definition.added_tokens) {
    state->added_by_text.push_back(token.id);
    state->starts_added[static_cast<unsigned char>(token.content[0])] = true;
  }
  const TokenizerVocabulary& vocabulary = state->vocabulary;
  auto& sorted = state->added_by_text;
  std::sort(sorted.begin(), sorted.end(),
            [&](int32_t a, int32_t b) { return vocabulary.Bytes(a) < vocabulary.Bytes(b); });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (vocabulary.Bytes(sorted[i - 1]) == vocabulary.Bytes(sorted[i])) {
      return Status::Corruption(name + ": added_tokens: " + QuotedExcerpt(vocabulary.Bytes(sorted[i])) + " has ids " +
                                std::to_string(sorted[i - 1]) + " and " + std::to_string(sorted[i]));
    }
  }
  state->whole_token = std::make_unique<std::atomic<uint8_t>[]>(vocabulary.size());
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

int32_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }

Status Tokenizer::Encode(std::string_view text, std::vector<int32_t>* out) const {
  return State::Guarded(text, out, [&](std::string_view valid) { return state_->EncodePlain(valid, out); });
}

Status Tokenizer::EncodeWithSpecial(std::string_view text, std::vector<int32_t>* out) const {
  return State::Guarded(text, out, [&](std::string_view valid) { return state_->EncodeSpecial(valid, out); });
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return state_->vocabulary.Contains(id) ? state_->vocabulary.Bytes(id) : std::string_view();
}

std::string Tokenizer::TokenText(int32_t id) const {
  const std::string_view bytes = TokenBytes(id);
  return bytes.empty() || !state_->vocabulary.IsOrdinary(id) ? std::string(bytes) : SpellingOfBytes(bytes);
}

std::optional<int32_t> Tokenizer::IdOfAddedToken(std::string_view text) const {
  const int32_t id = state_->LongestAddedPrefix(text);
  if (id == TokenizerVocabulary::kAbsent || state_->vocabulary.Bytes(id) != text) return std::nullopt;
  return id;
}

bool Tokenizer::IsAdded(int32_t id) const { return state_->vocabulary.Contains(id) && state_->vocabulary.IsAdded(id); }

bool Tokenizer::IsSpecial(int32_t id) const {
  return state_->vocabulary.Contains(id) && state_->vocabulary.IsSpecial(id);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    bytes += TokenBytes(id);
  }
  return IsValidUtf8(bytes) ? bytes : RepairUtf8(bytes);
}

}  // namespace deepinfer
