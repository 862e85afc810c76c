#include "grammar/token_trie.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace deepinfer {
namespace {

// Lengths up to which a part has one length only, and the bounds of the parts after that.
constexpr int kSingleLengths = 8;
constexpr int kLengthBounds[] = {10, 12, 16, 24, 32, 256};
constexpr size_t kMaxTokenBytes = 60'000;
constexpr size_t kMaxControlTokens = 128;
constexpr std::string_view kMarkCharacter = "\xEF\xBD\x9C";  // U+FF5C

}  // namespace

bool IsPlainText(std::string_view text, int* count) {
  *count = 0;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x20 || first == '"' || first == '\\') return false;
    const Utf8Unit unit = FirstUtf8Unit(text);
    if (unit.kind != Utf8Unit::Kind::kCharacter || text.starts_with(kMarkCharacter)) return false;
    text.remove_prefix(unit.length);
    ++*count;
  }
  return true;
}

Result<std::shared_ptr<const TokenTrie>> TokenTrie::Build(const Tokenizer& tokenizer, int32_t width,
                                                          const std::vector<int32_t>& control_tokens) {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (!tokenizer.IsAdded(token)) tokens[static_cast<size_t>(token)] = tokenizer.TokenBytes(token);
  }
  return FromTokens(std::move(tokens), width, control_tokens);
}

Result<std::shared_ptr<const TokenTrie>> TokenTrie::FromTokens(std::vector<std::string> tokens, int32_t width,
                                                               const std::vector<int32_t>& control_tokens) {
  if (width < 0 || static_cast<size_t>(width) < tokens.size()) {
    return Status::InvalidArgument(
        fmt::format("the logits are {} wide, the vocabulary has {} tokens", width, tokens.size()));
  }
  if (control_tokens.size() > kMaxControlTokens) {
    return Status::InvalidArgument(fmt::format("a grammar can name {} control tokens", kMaxControlTokens));
  }
  for (std::string& bytes : tokens) {
    if (bytes.find_first_of("\xFE\xFF") != std::string::npos) bytes.clear();
  }
  for (size_t number = 0; number < control_tokens.size(); ++number) {
    const int32_t token = control_tokens[number];
    if (token < 0 || static_cast<size_t>(token) >= tokens.size()) {
      return Status::InvalidArgument(fmt::format("the control token {} is not in the vocabulary", token));
    }
    tokens[static_cast<size_t>(token)] = ControlSpelling(static_cast<int>(number));
  }
  std::shared_ptr<TokenTrie> trie(new TokenTrie());
  trie->control_tokens_ = control_tokens;
  trie->width_ = width;
  trie->offsets_.assign(1, 0);
  constexpr size_t kBounds = std::size(kLengthBounds);
  std::vector<std::vector<int32_t>> members(1 + kSingleLengths + kBounds);
  for (int32_t token = 0; token < width; ++token) {
    std::string_view bytes;
    if (static_cast<size_t>(token) < tokens.size()) bytes = tokens[static_cast<size_t>(token)];
    if (bytes.size() > kMaxTokenBytes) bytes = {};
    trie->bytes_ += bytes;
    trie->offsets_.push_back(static_cast<uint32_t>(trie->bytes_.size()));
    if (bytes.empty()) continue;
    trie->longest_token_ = std::max(trie->longest_token_, bytes.size());
    int count = 0;
    size_t part = 0;
    if (IsPlainText(bytes, &count) && count <= kLengthBounds[kBounds - 1]) {
      part = static_cast<size_t>(count);
      if (count > kSingleLengths) {
        part = kSingleLengths + 1;
        while (kLengthBounds[part - kSingleLengths - 1] < count) ++part;
      }
    }
    members[part].push_back(token);
  }
  trie->AddPart(0, 0, std::move(members[0]));
  for (int length = 1; length <= kSingleLengths; ++length) {
    trie->AddPart(length, length, std::move(members[static_cast<size_t>(length)]));
  }
  int least = kSingleLengths + 1;
  for (size_t i = 0; i < kBounds; ++i) {
    trie->AddPart(least, kLengthBounds[i], std::move(members[kSingleLengths + 1 + i]));
    least = kLengthBounds[i] + 1;
  }
  return std::shared_ptr<const TokenTrie>(std::move(trie));
}

std::string_view TokenTrie::BytesOf(int32_t token) const {
  if (token < 0 || token >= width_) return {};
  const uint32_t begin = offsets_[static_cast<size_t>(token)];
  return std::string_view(bytes_).substr(begin, offsets_[static_cast<size_t>(token) + 1] - begin);
}

void TokenTrie::AddPart(int least, int most, std::vector<int32_t> tokens) {
  if (tokens.empty()) return;
  Part part;
  part.least_characters = least;
  part.most_characters = most;
  part.bits.assign(words(), 0);
  std::ranges::sort(tokens, [&](int32_t a, int32_t b) {
    const int order = BytesOf(a).compare(BytesOf(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // nodes from the root to the last one added
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      part.nodes[path.back()].skip = static_cast<uint32_t>(part.nodes.size());
  };
  std::string_view last;
  for (const int32_t token : tokens) {
    part.bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    const std::string_view bytes = BytesOf(token);
    size_t common = 0;
    while (common < last.size() && common < bytes.size() && last[common] == bytes[common]) ++common;
    if (common == bytes.size()) --common;  // the bytes of another token once more: a node of its own beside it
    close(common);
    for (size_t depth = common; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(part.nodes.size()));
      part.nodes.push_back({0, -1, static_cast<uint16_t>(depth), static_cast<uint8_t>(bytes[depth])});
    }
    part.nodes.back().token = token;
    last = bytes;
  }
  close(0);
  parts_.push_back(std::move(part));
}

}  // namespace deepinfer
