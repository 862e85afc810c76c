#include "app/suggest.h"

#include <algorithm>

namespace deepinfer {

size_t EditDistance(std::string_view a, std::string_view b) {
  // Optimal string alignment: row i holds the distances of a's first i characters.
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kLongestWord = 64;  // a longer one is no typing error
  if (word.size() > kLongestWord) return {};
  std::string best;
  size_t smallest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    // "--temp" for "--temperature": a beginning beats any typing error.
    const bool begins = word.size() >= 4 && candidate.starts_with(word);
    const size_t distance = begins ? 0 : EditDistance(word, candidate);
    if (distance < smallest) {
      smallest = distance;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

}  // namespace deepinfer
