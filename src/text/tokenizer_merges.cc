#include "text/tokenizer_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "text/byte_alphabet.h"

namespace deepinfer {

Result<TokenizerMerges> TokenizerMerges::Build(const TokenizerDefinition& definition,
                                               const TokenizerVocabulary& vocabulary, const std::string& name) {
  TokenizerMerges table;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    table.byte_id_[byte] = vocabulary.Find({&text, 1});
    if (table.byte_id_[byte] == TokenizerVocabulary::kAbsent) {
      return Status::Unsupported(name + ": model.vocab has no token \"" + SpellingOfBytes({&text, 1}) + "\" for byte " +
                                 std::to_string(byte) + "; byte-level BPE needs all 256");
    }
  }
  if (definition.merges.size() >= kNoRule) return Status::Corruption(name + ": model.merges is too long");
  table.slots_.resize(std::bit_ceil(2 * definition.merges.size() + 1));
  table.mask_ = table.slots_.size() - 1;
  table.result_.reserve(definition.merges.size());
  for (const auto& [left_spelling, right_spelling] : definition.merges) {
    const auto rank = static_cast<uint32_t>(table.result_.size());
    const std::string where =
        name + ": model.merges[" + std::to_string(rank) + "] (\"" + left_spelling + "\", \"" + right_spelling + "\"): ";
    std::string joined;
    int32_t sides[2];
    for (int side = 0; side < 2; ++side) {
      const std::string& spelling = side == 0 ? left_spelling : right_spelling;
      const std::optional<std::string> bytes = BytesOfSpelling(spelling);
      sides[side] = bytes.has_value() ? vocabulary.Find(*bytes) : TokenizerVocabulary::kAbsent;
      if (sides[side] == TokenizerVocabulary::kAbsent) {
        return Status::Corruption(where + "\"" + spelling + "\" is not in model.vocab");
      }
      joined += *bytes;
    }
    const int32_t result = vocabulary.Find(joined);
    if (result == TokenizerVocabulary::kAbsent) {
      return Status::Corruption(where + "the merged token is not in model.vocab");
    }
    size_t at = Hash(sides[0], sides[1]) & table.mask_;
    for (; table.slots_[at].left >= 0; at = (at + 1) & table.mask_) {
      if (table.slots_[at].left == sides[0] && table.slots_[at].right == sides[1]) {
        return Status::Corruption(where + "is the same as model.merges[" + std::to_string(table.slots_[at].rank) + "]");
      }
    }
    table.slots_[at] = {sides[0], sides[1], rank};
    table.result_.push_back(result);
  }
  table.byte_pair_rank_.resize(256 * 256);
  for (size_t pair = 0; pair < table.byte_pair_rank_.size(); ++pair) {
    table.byte_pair_rank_[pair] = table.Rank(table.byte_id_[pair >> 8], table.byte_id_[pair & 0xFF]);
  }
  return table;
}

void TokenizerMerges::Apply(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  if (piece.size() <= kLongestScan) {
    ApplyWithScan(piece, out);
  } else {
    ApplyWithHeap(piece, scratch, out);
  }
}

void TokenizerMerges::ApplyWithScan(std::string_view piece, std::vector<int32_t>* out) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  int32_t ids[kLongestScan];
  uint32_t ranks[kLongestScan];  // ranks[i]: of the pair (i, i+1); kNoRule for the last
  size_t count = piece.size();
  if (count == 0) return;
  for (size_t i = 0; i < count; ++i) ids[i] = byte_id_[bytes[i]];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = byte_pair_rank_[bytes[i] << 8 | bytes[i + 1]];
  ranks[count - 1] = kNoRule;
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == kNoRule) break;
    ids[best] = result_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
    }
    ranks[best] = best + 1 < count ? Rank(ids[best], ids[best + 1]) : kNoRule;
    if (best > 0) ranks[best - 1] = Rank(ids[best - 1], ids[best]);
  }
  out->insert(out->end(), ids, ids + count);
}

void TokenizerMerges::ApplyWithHeap(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  const auto count = static_cast<uint32_t>(piece.size());
  if (count == 0) return;
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  symbols.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t rank = i + 1 < count ? byte_pair_rank_[bytes[i] << 8 | bytes[i + 1]] : kNoRule;
    symbols[i] = {byte_id_[bytes[i]], rank, i - 1, i + 1};  // the first `previous` wraps around to kNone below
    if (rank != kNoRule) heap.push_back(static_cast<uint64_t>(rank) << 32 | i);
  }
  constexpr uint32_t kNone = UINT32_MAX;
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&heap](uint32_t rank, uint32_t at) {
    if (rank == kNoRule) return;
    heap.push_back(static_cast<uint64_t>(rank) << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    auto& symbol = symbols[at];
    const auto rank = static_cast<uint32_t>(top >> 32);
    if (symbol.rank != rank) continue;  // one of its two symbols has been merged since
    symbol.id = result_[rank];
    symbols[symbol.next].rank = kNoRule;
    symbol.next = symbols[symbol.next].next;
    symbol.rank = kNoRule;
    if (symbol.next < count) {
      symbols[symbol.next].previous = at;
      symbol.rank = Rank(symbol.id, symbols[symbol.next].id);
      push(symbol.rank, at);
    }
    if (symbol.previous != kNone) {
      auto& before = symbols[symbol.previous];
      before.rank = Rank(before.id, symbol.id);
      push(before.rank, symbol.previous);
    }
  }
  for (uint32_t i = 0; i < count; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace deepinfer
