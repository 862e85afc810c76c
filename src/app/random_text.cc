#include "app/random_text.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

constexpr std::array<std::string_view, 64> kWords = {
    "the",  "of",   "and", "to",    "in",   "is",   "that", "for",   "was",   "on",    "with",  "as",    "it",
    "be",   "at",   "by",  "this",  "have", "from", "or",   "one",   "had",   "not",   "but",   "what",  "all",
    "were", "when", "we",  "there", "can",  "an",   "your", "which", "they",  "if",    "will",  "each",  "about",
    "how",  "up",   "out", "them",  "then", "she",  "many", "some",  "so",    "these", "would", "other", "into",
    "has",  "more", "her", "two",   "like", "him",  "see",  "time",  "could", "no",    "make",  "than"};

}  // namespace

RandomText::RandomText() : counts_(kWords.size(), 1) {}

std::span<const std::string_view> RandomText::Words() { return kWords; }

void RandomText::SetTokenCounts(std::vector<int64_t> counts) {
  counts_ = std::move(counts);
  shortest_ = static_cast<size_t>(std::ranges::min_element(counts_) - counts_.begin());
}

std::string RandomText::Make(int64_t seed, uint64_t stream, int64_t tokens) const {
  std::mt19937_64 random(CounterBits(static_cast<uint64_t>(seed), stream, 1, RandomPurpose::kSeed));
  std::string text;
  int64_t left = tokens;
  do {
    // Modulo keeps the draw the same everywhere, which std::uniform_int_distribution does not promise.
    size_t word = random() % kWords.size();
    if (counts_[word] > left) word = shortest_;
    if (counts_[word] > left && !text.empty()) break;
    if (!text.empty()) text += ' ';
    text += kWords[word];
    left -= counts_[word];
  } while (left > 0);
  return text;
}

}  // namespace deepinfer
