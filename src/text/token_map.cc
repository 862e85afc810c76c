#include "text/token_map.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "text/utf8.h"

namespace deepinfer {
namespace {

// NFKD is NFC after NFKC undone, that is NFD of NFKC: one pass for the two of the specification.
Result<const icu::Normalizer2*> Decomposer() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* decomposer = icu::Normalizer2::getNFKDInstance(error);
  if (U_FAILURE(error)) return Status::Internal(std::string("ICU cannot load its NFKD data: ") + u_errorName(error));
  return decomposer;
}

// ASCII and the unified ideographs decompose to themselves and, ASCII capitals apart, have no lower case. They make up
// most of a vocabulary; nothing for a text with any other character.
std::optional<std::string> LowerSimpleText(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t point = NextCodePoint(text.data(), &at);
    if (point < 0x80) {
      lower.push_back(static_cast<char>(point >= 'A' && point <= 'Z' ? point - 'A' + 'a' : point));
    } else if (point >= 0x4E00 && point <= 0x9FFF) {
      lower.append(text.substr(begin, at - begin));
    } else {
      return std::nullopt;
    }
  }
  return lower;
}

Result<std::string> LowerDecomposed(std::string_view text) {
  DEEPINFER_ASSIGN_OR_RETURN(const icu::Normalizer2* decomposer, Decomposer());
  std::string decomposed;
  icu::StringByteSink<std::string> sink(&decomposed);
  UErrorCode error = U_ZERO_ERROR;
  decomposer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  if (U_FAILURE(error)) return Status::Internal(std::string("ICU cannot decompose a token: ") + u_errorName(error));
  std::string lower;
  lower.reserve(decomposed.size());
  for (size_t at = 0; at < decomposed.size();) {
    const auto point = static_cast<UChar32>(NextCodePoint(decomposed.data(), &at));
    if ((U_GET_GC_MASK(point) & U_GC_M_MASK) != 0) continue;
    // Character by character: a capital sigma at the end of a word becomes the ordinary small one, as in Hugging Face.
    AppendUtf8(static_cast<uint32_t>(u_tolower(point)), &lower);
  }
  return lower;
}

std::string CollapseBlanks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_run = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) out.push_back(c);
    if (blank && !in_run) out.push_back(' ');
    in_run = blank;
  }
  return out;
}

std::string_view StripWhiteSpace(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (u_isUWhiteSpace(static_cast<UChar32>(NextCodePoint(text.data(), &at)))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  return end == 0 ? std::string_view() : text.substr(begin, end - begin);
}

}  // namespace

Result<std::string> FoldTokenText(std::string_view text) {
  std::optional<std::string> lower = LowerSimpleText(text);
  if (!lower.has_value()) {
    DEEPINFER_ASSIGN_OR_RETURN(lower, LowerDecomposed(text));
  }
  const std::string collapsed = CollapseBlanks(*lower);
  return collapsed == " " ? collapsed : std::string(StripWhiteSpace(collapsed));
}

Result<std::vector<int32_t>> BuildTokenMap(const Tokenizer& tokenizer) {
  std::vector<int32_t> map;
  map.reserve(tokenizer.vocab_size());
  std::unordered_map<std::string, int32_t> seen;
  seen.reserve(tokenizer.vocab_size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.TokenBytes(id);
    std::string key;
    if (!IsValidUtf8(text) || text.find(kReplacementCharacter) != std::string_view::npos) {
      key = tokenizer.TokenText(id);
    } else {
      DEEPINFER_ASSIGN_OR_RETURN(key, FoldTokenText(text));
      if (key.empty()) key = text;
    }
    map.push_back(seen.try_emplace(std::move(key), static_cast<int32_t>(seen.size())).first->second);
  }
  return map;
}

}  // namespace deepinfer
