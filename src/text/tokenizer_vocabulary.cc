#include "text/tokenizer_vocabulary.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace deepinfer {

uint64_t TokenizerVocabulary::Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Result<TokenizerVocabulary> TokenizerVocabulary::Build(const TokenizerDefinition& definition, const std::string& name) {
  // Without gaps and duplicates there are at most as many ids as entries, which bounds every allocation below.
  const size_t most = definition.vocabulary.size() + definition.added_tokens.size();
  if (most == 0) return Status::Corruption(name + ": model.vocab and added_tokens are empty");
  if (most > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Status::Corruption(name + ": model.vocab has more entries than there are token ids");
  }
  std::vector<const std::string*> spelling(most, nullptr);
  std::vector<const AddedToken*> added(most, nullptr);
  for (const auto& [text, id] : definition.vocabulary) {
    if (id < 0 || id >= static_cast<int64_t>(most)) {
      return Status::Corruption(name + ": model.vocab[" + QuotedExcerpt(text) + "]: id " + std::to_string(id) +
                                " is out of range; with " + std::to_string(most) + " entries ids end at " +
                                std::to_string(most - 1));
    }
    if (spelling[id] != nullptr) {
      return Status::Corruption(name + ": model.vocab gives id " + std::to_string(id) + " to both " +
                                QuotedExcerpt(*spelling[id]) + " and " + QuotedExcerpt(text));
    }
    spelling[id] = &text;
  }
  for (const AddedToken& token : definition.added_tokens) {
    const std::string where =
        name + ": added_tokens: id " + std::to_string(token.id) + " (" + QuotedExcerpt(token.content) + ") ";
    if (static_cast<size_t>(token.id) >= most) {
      return Status::Corruption(where + "is out of range; with " + std::to_string(most) + " entries ids end at " +
                                std::to_string(most - 1));
    }
    if (added[token.id] != nullptr) return Status::Corruption(where + "occurs twice");
    if (spelling[token.id] != nullptr && *spelling[token.id] != token.content) {
      return Status::Corruption(where + "is " + QuotedExcerpt(*spelling[token.id]) + " in model.vocab");
    }
    added[token.id] = &token;
  }
  while (spelling.back() == nullptr && added.back() == nullptr) {
    spelling.pop_back();
    added.pop_back();
  }

  TokenizerVocabulary table;
  const auto size = static_cast<int32_t>(spelling.size());
  table.flags_.resize(size);
  table.begin_.reserve(size + 1);
  table.begin_.push_back(0);
  for (int32_t id = 0; id < size; ++id) {
    if (spelling[id] == nullptr && added[id] == nullptr) {
      return Status::Corruption(name + ": no token has id " + std::to_string(id) + ", but larger ids exist");
    }
    const std::optional<std::string> bytes = spelling[id] != nullptr ? BytesOfSpelling(*spelling[id]) : std::nullopt;
    if (bytes.has_value() && bytes->empty()) {
      return Status::Corruption(name + ": model.vocab: the token with id " + std::to_string(id) + " is empty");
    }
    if (bytes.has_value() && (added[id] == nullptr || *bytes == added[id]->content)) {
      table.flags_[id] |= kOrdinary;
      table.longest_ = std::max(table.longest_, bytes->size());
    }
    if (added[id] != nullptr) table.flags_[id] |= kAdded | (added[id]->special ? kSpecial : 0);
    // An added token is its text even where the alphabet would read it otherwise.
    table.bytes_ += added[id] != nullptr ? added[id]->content : bytes.has_value() ? *bytes : *spelling[id];
    if (table.bytes_.size() > std::numeric_limits<uint32_t>::max()) {
      return Status::Corruption(name + ": model.vocab is larger than 4 GiB");
    }
    table.begin_.push_back(static_cast<uint32_t>(table.bytes_.size()));
  }

  table.slots_.resize(std::bit_ceil(2 * spelling.size() + 1));
  table.mask_ = table.slots_.size() - 1;
  for (int32_t id = 0; id < size; ++id) {
    if (!table.IsOrdinary(id)) continue;
    const uint64_t hash = Hash(table.Bytes(id));
    size_t at = hash & table.mask_;
    for (; table.slots_[at].id != kAbsent; at = (at + 1) & table.mask_) {
      if (table.Bytes(table.slots_[at].id) == table.Bytes(id)) {
        return Status::Corruption(name + ": model.vocab has the token " + QuotedExcerpt(*spelling[id]) +
                                  " twice, as ids " + std::to_string(table.slots_[at].id) + " and " +
                                  std::to_string(id));
      }
    }
    table.slots_[at] = {static_cast<uint32_t>(hash >> 32), id};
  }
  return table;
}

}  // namespace deepinfer
