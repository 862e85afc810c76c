#include "text/tokenizer_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

Status WrongMerge(const std::string& name, uint32_t rank, const std::pair<std::string, std::string>& merge,
                  const std::string& what) {
  return Status::Corruption(name + ": model.merges[" + std::to_string(rank) + "] (" + QuotedExcerpt(merge.first) +
                            ", " + QuotedExcerpt(merge.second) + "): " + what);
}

}  // namespace

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
    if (vocabulary.IsAdded(table.byte_id_[byte])) {
      return Status::Unsupported(name + ": added_tokens lists " + QuotedExcerpt({&text, 1}) +
                                 ", the token of a single byte, so that plain text could become a control token");
    }
  }
  if (static_cast<size_t>(vocabulary.size()) > kMaxTokens || definition.merges.size() > kMaxRules) {
    return Status::Unsupported(name + ": model has " + std::to_string(vocabulary.size()) + " tokens and " +
                               std::to_string(definition.merges.size()) + " merges; at most " +
                               std::to_string(kMaxTokens) + " and " + std::to_string(kMaxRules) + " are implemented");
  }
  // At least two slots, so that one stays empty and every search ends.
  table.slots_.assign(std::bit_ceil(2 * definition.merges.size() + 2), kEmptySlot);
  table.mask_ = table.slots_.size() - 1;
  table.shift_ = 64 - std::countr_zero(table.slots_.size());
  table.result_.reserve(definition.merges.size());
  std::vector<std::array<int32_t, 2>> rules;
  rules.reserve(definition.merges.size());
  std::vector<uint32_t> last_rank_of(vocabulary.size(), kNoRule);  // of the rules that make a token
  for (uint32_t rank = 0; rank < definition.merges.size(); ++rank) {
    const auto& merge = definition.merges[rank];
    const auto wrong = [&](const std::string& what) { return WrongMerge(name, rank, merge, what); };
    std::string joined;
    std::array<int32_t, 2> sides;
    for (int side = 0; side < 2; ++side) {
      const std::string& spelling = side == 0 ? merge.first : merge.second;
      const std::optional<std::string> bytes = BytesOfSpelling(spelling);
      sides[side] = bytes.has_value() ? vocabulary.Find(*bytes) : TokenizerVocabulary::kAbsent;
      if (sides[side] == TokenizerVocabulary::kAbsent) return wrong(QuotedExcerpt(spelling) + " is not in model.vocab");
      joined += *bytes;
    }
    const int32_t result = vocabulary.Find(joined);
    if (result == TokenizerVocabulary::kAbsent) return wrong("the merged token is not in model.vocab");
    if (vocabulary.IsAdded(result)) {
      return wrong("makes an added token, so that plain text could become a control token; remove the merge");
    }
    const uint64_t key = PairKey(sides[0], sides[1]);
    size_t at = table.Home(key);
    for (; table.slots_[at] != kEmptySlot; at = (at + 1) & table.mask_) {
      if (table.slots_[at] >> kRankBits == key) {
        return wrong("is the same as model.merges[" + std::to_string(table.Rank(sides[0], sides[1])) + "]");
      }
    }
    table.slots_[at] = key << kRankBits | rank;
    table.result_.push_back(result);
    rules.push_back(sides);
    last_rank_of[result] = rank;
  }
  for (uint32_t rank = 0; rank < rules.size(); ++rank) {
    for (const int32_t side : rules[rank]) {
      if (last_rank_of[side] != kNoRule && last_rank_of[side] >= rank) table.ranks_ascend_ = false;
    }
  }
  table.byte_pair_rank_.resize(256 * 256);
  for (size_t pair = 0; pair < table.byte_pair_rank_.size(); ++pair) {
    table.byte_pair_rank_[pair] = table.Rank(table.byte_id_[pair >> 8], table.byte_id_[pair & 0xFF]);
  }
  return table;
}

void TokenizerMerges::Apply(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out, Method method) const {
  if (piece.empty()) return;
  if (method == Method::kFastest) {
    method = piece.size() <= kLongestScan   ? Method::kScan
             : piece.size() <= kLongestHeap ? Method::kHeap
                                            : Method::kBuckets;
  }
  // A method that does not fit the piece or the table gives way to the heap, which always does.
  if (method == Method::kScan && piece.size() <= kLongestScan) return ApplyWithScan(piece, out);
  if (method == Method::kBuckets && ranks_ascend_) return ApplyWithBuckets(piece, scratch, out);
  ApplyWithHeap(piece, scratch, out);
}

void TokenizerMerges::ApplyWithScan(std::string_view piece, std::vector<int32_t>* out) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  size_t count = piece.size();
  int32_t ids[kLongestScan];
  uint32_t ranks[kLongestScan];  // ranks[i]: of the pair (i, i+1); kNoRule for the last
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

void TokenizerMerges::StartSymbols(std::string_view piece, Scratch* scratch) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  const auto count = static_cast<uint32_t>(piece.size());
  scratch->symbols.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const uint32_t rank = last ? kNoRule : byte_pair_rank_[bytes[i] << 8 | bytes[i + 1]];
    scratch->symbols[i] = {byte_id_[bytes[i]], rank, i == 0 ? kNone : i - 1, last ? kNone : i + 1};
  }
}

template <typename Push>
void TokenizerMerges::Merge(uint32_t at, std::vector<Scratch::Symbol>* symbols, Push&& push) const {
  Scratch::Symbol& symbol = (*symbols)[at];
  Scratch::Symbol& merged = (*symbols)[symbol.next];
  symbol.id = result_[symbol.rank];
  symbol.next = merged.next;
  symbol.rank = kNoRule;
  merged.rank = kNoRule;
  if (symbol.next != kNone) {
    Scratch::Symbol& after = (*symbols)[symbol.next];
    after.previous = at;
    symbol.rank = Rank(symbol.id, after.id);
    if (symbol.rank != kNoRule) push(symbol.rank, at);
  }
  if (symbol.previous != kNone) {
    Scratch::Symbol& before = (*symbols)[symbol.previous];
    before.rank = Rank(before.id, symbol.id);
    if (before.rank != kNoRule) push(before.rank, symbol.previous);
  }
}

void TokenizerMerges::ApplyWithHeap(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  StartSymbols(piece, scratch);
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  heap.clear();
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].rank != kNoRule) heap.push_back(static_cast<uint64_t>(symbols[i].rank) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (symbols[at].rank != top >> 32) continue;  // one of its two symbols has been merged since
    Merge(at, &symbols, [&heap](uint32_t rank, uint32_t position) {
      heap.push_back(static_cast<uint64_t>(rank) << 32 | position);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    });
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out->push_back(symbols[i].id);
}

void TokenizerMerges::ApplyWithBuckets(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  StartSymbols(piece, scratch);
  auto& symbols = scratch->symbols;
  auto& bucket = scratch->bucket;
  auto& entries = scratch->entries;
  auto& ranks = scratch->ranks;
  auto& batch = scratch->batch;
  bucket.resize(result_.size(), kNone);
  entries.clear();
  const auto push = [&](uint32_t rank, uint32_t position) {
    if (bucket[rank] == kNone) {
      ranks.push_back(rank);
      std::push_heap(ranks.begin(), ranks.end(), std::greater<>());
    }
    entries.push_back({position, bucket[rank]});
    bucket[rank] = static_cast<uint32_t>(entries.size() - 1);
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].rank != kNoRule) push(symbols[i].rank, i);
  }
  while (!ranks.empty()) {
    const uint32_t rank = ranks.front();
    std::pop_heap(ranks.begin(), ranks.end(), std::greater<>());
    ranks.pop_back();
    batch.clear();
    for (uint32_t entry = bucket[rank]; entry != kNone; entry = entries[entry].next) {
      batch.push_back(entries[entry].position);
    }
    bucket[rank] = kNone;
    // Newest first: turned round, the positions are few long ascending runs, often a single one.
    std::reverse(batch.begin(), batch.end());
    if (!std::is_sorted(batch.begin(), batch.end())) std::sort(batch.begin(), batch.end());
    // As ranks ascend, nothing that this batch makes comes before the rest of it.
    for (const uint32_t at : batch) {
      if (symbols[at].rank == rank) Merge(at, &symbols, push);
    }
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace deepinfer
