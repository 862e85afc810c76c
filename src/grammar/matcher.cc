#include "grammar/matcher.h"

#include <algorithm>

#include "text/utf8.h"

namespace deepinfer {

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::vector<int32_t> end_tokens)
    : grammar_(std::move(grammar)),
      end_tokens_(std::move(end_tokens)),
      memory_(grammar_->Borrow()),
      states_{memory_->recogniser.start()} {}

Matcher::~Matcher() { grammar_->GiveBack(std::move(memory_)); }

Status Matcher::Recover(bool* retry) {
  *retry = false;
  Recogniser& recogniser = memory_->recogniser;
  if (!recogniser.exhausted()) return Status::Ok();
  // To begin again would not make it less work.
  if (recogniser.over_work()) return Status::ResourceExhausted("the grammar needs too much work for one token");
  DEEPINFER_RETURN_IF_ERROR(Replay(true));
  *retry = true;
  return Status::Ok();
}

Status Matcher::Restart() { return Replay(false); }

Status Matcher::Replay(bool limit_work) {
  Recogniser& recogniser = memory_->recogniser;
  memory_->masks.Clear();
  recogniser.Clear();
  states_.assign(1, recogniser.start());
  if (limit_work) recogniser.BeginWork();
  for (size_t i = 0; i < tokens_.size() - (ended_ ? 1 : 0); ++i) {
    states_.push_back(recogniser.Walk(states_.back(), grammar_->trie().BytesOf(tokens_[i])));
    if (states_.back() == Recogniser::kDead || recogniser.exhausted()) break;
  }
  if (recogniser.exhausted()) {
    return Status::ResourceExhausted("the grammar needs more memory at this place than one request may use");
  }
  recogniser.BeginWork();
  return Status::Ok();
}

Result<bool> Matcher::Accept(int32_t token) {
  if (ended_) return false;
  if (std::ranges::find(end_tokens_, token) != end_tokens_.end()) {
    if (!MayEnd()) return false;
    ended_ = true;
    tokens_.push_back(token);
    return true;
  }
  const std::string_view bytes = grammar_->trie().BytesOf(token);
  if (bytes.empty()) return false;
  memory_->recogniser.BeginWork();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t next = memory_->recogniser.Walk(states_.back(), bytes);
    bool retry = false;
    DEEPINFER_RETURN_IF_ERROR(Recover(&retry));
    if (retry) continue;
    if (next == Recogniser::kDead) return false;
    tokens_.push_back(token);
    states_.push_back(next);
    return true;
  }
  return Status::ResourceExhausted("one token needs more grammar states than one request may use");
}

Status Matcher::FillMask(std::span<uint32_t> words) {
  if (ended_) {
    std::ranges::fill(words, 0);
    return Status::Ok();
  }
  memory_->recogniser.BeginWork();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const TokenMask& mask = memory_->masks.MaskOf(states_.back());
    if (!memory_->recogniser.exhausted()) {
      mask.CopyTo(words);
      if (!MayEnd()) return Status::Ok();
      for (const int32_t token : end_tokens_) words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
      return Status::Ok();
    }
    bool retry = false;
    DEEPINFER_RETURN_IF_ERROR(Recover(&retry));
  }
  memory_->masks.Clear();
  return Status::ResourceExhausted("one mask needs more grammar states than one request may use");
}

void Matcher::Rollback(size_t count) {
  count = std::min(count, tokens_.size());
  if (count == 0) return;
  tokens_.resize(tokens_.size() - count);
  ended_ = false;
  states_.resize(tokens_.size() + 1);
}

Result<bool> Matcher::MustEnd() {
  if (ended_) return true;
  if (!MayEnd()) return false;
  std::vector<uint32_t> words(grammar_->trie().words());
  DEEPINFER_RETURN_IF_ERROR(FillMask(words));
  for (const int32_t token : end_tokens_) words[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  return std::ranges::all_of(words, [](uint32_t word) { return word == 0; });
}

Result<std::string> Matcher::ForcedBytes(size_t max_bytes) {
  std::string forced;
  if (ended_) return forced;
  memory_->recogniser.BeginWork();
  for (int attempt = 0; attempt < 2; ++attempt) {
    forced.clear();
    int32_t state = states_.back();
    while (forced.size() < max_bytes && !memory_->recogniser.Accepts(state)) {
      int only = -1;
      int32_t after = Recogniser::kDead;
      for (int byte = 0; byte < 256; ++byte) {
        const int32_t next = memory_->recogniser.Step(state, static_cast<uint8_t>(byte));
        if (next == Recogniser::kDead) continue;
        if (only >= 0) {
          only = -1;
          break;
        }
        only = byte;
        after = next;
      }
      if (only < 0) break;
      forced.push_back(static_cast<char>(only));
      state = after;
    }
    bool retry = false;
    DEEPINFER_RETURN_IF_ERROR(Recover(&retry));
    if (!retry) return forced;
  }
  return Status::ResourceExhausted("a forced text needs more grammar states than one request may use");
}

Result<std::vector<int32_t>> Matcher::ForcedTokens(const Tokenizer& tokenizer, size_t max_bytes) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string bytes, ForcedBytes(max_bytes));
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < bytes.size();) {
    const size_t mark = std::min(bytes.find(TokenTrie::kControlByte, at), bytes.size());
    std::string_view text = std::string_view(bytes).substr(at, mark - at);
    const bool last = mark == bytes.size();
    if (last) text = text.substr(0, ValidUtf8Prefix(text));
    // The position may be inside a character, whose rest is no text to a tokenizer.
    if (!IsValidUtf8(text)) break;
    const size_t before = tokens.size();
    DEEPINFER_RETURN_IF_ERROR(tokenizer.Encode(text, &tokens));
    if (last && tokens.size() > before) tokens.pop_back();
    if (mark + 1 >= bytes.size()) break;
    tokens.push_back(grammar_->trie().ControlToken(static_cast<unsigned char>(bytes[mark + 1])));
    at = mark + 2;
  }
  return tokens;
}

Result<bool> Matcher::Admits(std::string_view bytes) {
  if (ended_) return bytes.empty();
  memory_->recogniser.BeginWork();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t next = memory_->recogniser.Walk(states_.back(), bytes);
    bool retry = false;
    DEEPINFER_RETURN_IF_ERROR(Recover(&retry));
    if (!retry) return next != Recogniser::kDead;
  }
  return Status::ResourceExhausted("a text needs more grammar states than one request may use");
}

}  // namespace deepinfer
