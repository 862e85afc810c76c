#include "grammar/token_mask.h"

#include <algorithm>

namespace deepinfer {
namespace {

// A list of this many tokens is smaller than most bit masks.
constexpr size_t kMaxListed = 1024;
// Sets of states larger than this are not followed: the parts are walked instead.
constexpr size_t kMaxFront = 16;

// The well-formed UTF-8 sequences of several bytes but U+FF5C (EF BD 9C), as ranges of each byte; 0 behind the last.
struct Sequence {
  struct {
    uint8_t first, last;
  } bytes[4];
};
constexpr Sequence kSequences[] = {{{{0xC2, 0xDF}, {0x80, 0xBF}, {}, {}}},
                                   {{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}, {}}},
                                   {{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}, {}}},
                                   {{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}, {}}},
                                   {{{0xEE, 0xEE}, {0x80, 0xBF}, {0x80, 0xBF}, {}}},
                                   {{{0xEF, 0xEF}, {0x80, 0xBC}, {0x80, 0xBF}, {}}},
                                   {{{0xEF, 0xEF}, {0xBD, 0xBD}, {0x80, 0x9B}, {}}},
                                   {{{0xEF, 0xEF}, {0xBD, 0xBD}, {0x9D, 0xBF}, {}}},
                                   {{{0xEF, 0xEF}, {0xBE, 0xBF}, {0x80, 0xBF}, {}}},
                                   {{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                   {{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                   {{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}}};

void Insert(std::vector<int32_t>* set, int32_t value) {
  const auto place = std::ranges::lower_bound(*set, value);
  if (place == set->end() || *place != value) set->insert(place, value);
}

}  // namespace

void TokenMask::CopyTo(std::span<uint32_t> words) const {
  if (!bits.empty()) {
    std::ranges::copy(bits, words.begin());
    return;
  }
  std::ranges::fill(words, 0);
  for (const int32_t token : tokens) words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

MaskBuilder::MaskBuilder(std::shared_ptr<const TokenTrie> trie, Recogniser* recogniser, size_t max_bytes)
    : trie_(std::move(trie)), recogniser_(recogniser), max_bytes_(max_bytes), path_(trie_->longest_token() + 1) {}

void MaskBuilder::Clear() {
  masks_.clear();
  steps_.clear();
  bytes_ = 0;
}

const TokenMask& MaskBuilder::MaskOf(int32_t state) {
  state = recogniser_->WithoutHighCounts(state, trie_->longest_token());
  const auto known = masks_.find(state);
  if (known != masks_.end()) return known->second;
  if (bytes_ > max_bytes_) {
    masks_.clear();
    bytes_ = 0;
  }
  TokenMask mask = Compute(state);
  bytes_ += 64 + mask.tokens.size() * 4 + mask.bits.size() * 4;
  return masks_.emplace(state, std::move(mask)).first->second;
}

const MaskBuilder::CharacterStep& MaskBuilder::StepOf(int32_t state) {
  const auto known = steps_.find(state);
  if (known != steps_.end()) return known->second;
  CharacterStep step;
  const auto add_range = [&](const std::vector<int32_t>& from, int first, int last) {
    std::vector<int32_t> reached;
    for (const int32_t source : from) {
      int32_t previous = -2;
      for (int byte = first; byte <= last; ++byte) {
        const int32_t next = recogniser_->Step(source, static_cast<uint8_t>(byte));
        if (next == previous) continue;
        previous = next;
        if (next == Recogniser::kDead) {
          step.all_live = false;
        } else {
          Insert(&reached, next);
        }
      }
    }
    return reached;
  };
  const std::vector<int32_t> here = {state};
  for (const auto& [first, last] : {std::pair(0x20, 0x21), std::pair(0x23, 0x5B), std::pair(0x5D, 0x7F)}) {
    for (const int32_t next : add_range(here, first, last)) Insert(&step.next, next);
  }
  for (const Sequence& sequence : kSequences) {
    std::vector<int32_t> front = here;
    for (const auto& [first, last] : sequence.bytes) {
      if (first != 0) front = add_range(front, first, last);
    }
    for (const int32_t next : front) Insert(&step.next, next);
  }
  return steps_.emplace(state, std::move(step)).first->second;
}

std::vector<MaskBuilder::Verdict> MaskBuilder::Judge(int32_t state) {
  const auto& parts = trie_->parts();
  std::vector<Verdict> verdicts(parts.size(), Verdict::kSome);
  std::vector<int32_t> front = {state};
  int length = 0;  // characters that lead to `front`; none was refused so far
  bool settled = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].least_characters == 0) continue;
    while (!settled && length < parts[i].most_characters) {
      std::vector<int32_t> next;
      bool all_live = true;
      for (const int32_t from : front) {
        const CharacterStep& step = StepOf(from);
        all_live = all_live && step.all_live;
        for (const int32_t to : step.next) Insert(&next, to);
      }
      if (next.empty() && !recogniser_->exhausted()) {
        // No text of plain characters is longer: a walk would find that out soon too, but it is known here.
        for (size_t j = i; j < parts.size(); ++j) {
          if (parts[j].least_characters > length) verdicts[j] = Verdict::kNone;
        }
        return verdicts;
      }
      // From here on some character is refused, so the walks are short.
      if (!all_live || next.size() > kMaxFront || recogniser_->exhausted()) return verdicts;
      ++length;
      settled = next == front;
      front = std::move(next);
    }
    verdicts[i] = Verdict::kAll;
  }
  return verdicts;
}

void MaskBuilder::WalkPart(const TokenTrie::Part& part, int32_t state) {
  path_[0] = state;
  const TokenTrie::Node* nodes = part.nodes.data();
  const auto count = static_cast<uint32_t>(part.nodes.size());
  for (uint32_t i = 0; i < count;) {
    const TokenTrie::Node& node = nodes[i];
    const int32_t next = recogniser_->Step(path_[node.depth], node.byte);
    if (next == Recogniser::kDead) {
      i = node.skip;
      continue;
    }
    path_[node.depth + 1u] = next;
    if (node.token >= 0) found_.push_back(node.token);
    ++i;
  }
}

TokenMask MaskBuilder::Compute(int32_t state) {
  const auto& parts = trie_->parts();
  const std::vector<Verdict> verdicts = Judge(state);
  TokenMask mask;
  found_.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (verdicts[i] == Verdict::kSome) {
      WalkPart(parts[i], state);
    } else if (verdicts[i] == Verdict::kAll) {
      mask.bits.resize(trie_->words());
      for (size_t word = 0; word < mask.bits.size(); ++word) mask.bits[word] |= parts[i].bits[word];
    }
  }
  if (mask.bits.empty() && found_.size() <= kMaxListed) {
    mask.tokens = found_;
    std::ranges::sort(mask.tokens);
    return mask;
  }
  mask.bits.resize(trie_->words());
  for (const int32_t token : found_) mask.bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  return mask;
}

}  // namespace deepinfer
