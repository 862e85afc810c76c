// Tokenizer speed on one core: encoding of prose and of the texts that make careless tokenizers quadratic, and loading.
//
//     tokenizer_bench [TOKENIZER_JSON [TEXT_FILE]]
//
// Without arguments: models/nano/tokenizer.json and English prose made up here from a word list with a long tail, so
// that no figure rests on a handful of words. Each text is encoded a few times; the fastest time counts, the first one
// is printed too because it starts with cold caches.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "text/token_map.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

constexpr size_t kTextBytes = 1 << 20;

// Processor time of this thread, so that other work on the machine does not count.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string Repeat(const std::vector<std::string>& parts, size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) text += parts[i % parts.size()];
  return text;
}

// Words of one to four syllables, drawn so that a few are frequent and most are rare, in sentences and paragraphs.
std::string MadeUpProse(size_t bytes) {
  std::mt19937 random(1);
  const std::vector<std::string> common = {
      "the", "of",   "and",   "to",  "a",   "in",   "that", "is",  "was", "he",    "for",   "it",   "with", "as",
      "his", "on",   "be",    "at",  "by",  "I",    "this", "had", "not", "are",   "but",   "from", "or",   "have",
      "an",  "they", "which", "one", "you", "were", "her",  "all", "she", "there", "would", "their"};
  const std::vector<std::string> start = {"b", "c", "d", "f", "g",  "h",  "l",  "m",  "n", "p",
                                          "r", "s", "t", "w", "st", "pr", "ch", "tr", ""};
  const std::vector<std::string> middle = {"a", "e", "i", "o", "u", "ea", "ou", "ai", "io"};
  const std::vector<std::string> end = {"",   "n",  "r",  "s",    "t",    "l",  "nd",
                                        "ng", "ck", "st", "ment", "tion", "ly", "ed"};
  const auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
  std::vector<std::string> words = common;
  while (words.size() < 30000) {
    std::string word;
    for (uint32_t syllables = 1 + random() % 3; syllables > 0; --syllables)
      word += pick(start) + pick(middle) + pick(end);
    words.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    const uint32_t length = 4 + random() % 18;
    for (uint32_t i = 0; i < length; ++i) {
      const double u = (random() + 1.0) / 4294967297.0;
      std::string word = words[static_cast<size_t>(std::pow(static_cast<double>(words.size()), u)) - 1];  // Zipf
      if (i == 0 && word[0] >= 'a') word[0] = static_cast<char>(word[0] - 'a' + 'A');
      if (i != 0) text += random() % 12 == 0 ? ", " : " ";
      text += word;
    }
    text += random() % 8 == 0 ? ".\n\n" : ". ";
  }
  return text;
}

void Measure(const Tokenizer& tokenizer, const char* name, const std::string& text) {
  std::vector<int32_t> ids;
  double first = 0;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    ids.clear();
    const double start = Now();
    const Status status = tokenizer.Encode(text, &ids);
    const double seconds = Now() - start;
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", name, status.message().c_str());
      return;
    }
    if (i == 0) first = seconds;
    best = std::min(best, seconds);
  }
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%-28s %8.2f MB %9zu ids %8.1f MB/s (first time %.1f)\n", name, megabytes, ids.size(), megabytes / best,
              megabytes / first);
}

int Run(const std::string& path, const std::string& text_path) {
  const double start = Now();
  const auto tokenizer = Tokenizer::Load(path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  std::printf("load                         %.1f ms\n", 1e3 * (Now() - start));
  const double map_start = Now();
  const auto map = BuildTokenMap(**tokenizer);
  if (!map.ok()) {
    std::fprintf(stderr, "%s\n", map.status().message().c_str());
    return 1;
  }
  std::printf("token map                    %.1f ms\n", 1e3 * (Now() - map_start));
  if (!text_path.empty()) {
    std::ifstream file(text_path, std::ios::binary);
    Measure(**tokenizer, text_path.c_str(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
  std::mt19937 random(2);
  std::string letters;
  std::string ideographs;
  while (letters.size() < kTextBytes) letters.push_back(static_cast<char>('a' + random() % 26));
  while (ideographs.size() < kTextBytes) {
    const uint32_t point = 0x4E00 + random() % 3000;
    ideographs += {static_cast<char>(0xE0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 0x3F)),
                   static_cast<char>(0x80 | (point & 0x3F))};
  }
  Measure(**tokenizer, "English-like prose", MadeUpProse(4 * kTextBytes));
  Measure(**tokenizer, "one letter", std::string(kTextBytes, 'a'));
  Measure(**tokenizer, "random letters", letters);
  Measure(**tokenizer, "spaces", std::string(kTextBytes, ' '));
  Measure(**tokenizer, "spaces, then a letter", std::string(kTextBytes, ' ') + "x");
  Measure(**tokenizer, "newlines", std::string(kTextBytes, '\n'));
  Measure(**tokenizer, "newlines and spaces", Repeat({" \n", "  \n"}, kTextBytes));
  Measure(**tokenizer, "one ideograph", Repeat({"的"}, kTextBytes));
  Measure(**tokenizer, "random ideographs", ideographs);
  Measure(**tokenizer, "Chinese sentences",
          Repeat({"我们今天去公园散步，", "天气很好。", "孩子们在湖边放风筝，"}, kTextBytes));
  Measure(**tokenizer, "exclamation marks", std::string(kTextBytes, '!'));
  Measure(**tokenizer, "mixed punctuation", Repeat({"()", "[]", "{}", "::", "->"}, kTextBytes));
  Measure(**tokenizer, "digits", Repeat({"31415926535"}, kTextBytes));
  Measure(**tokenizer, "control characters", std::string(kTextBytes, '\x01'));
  Measure(**tokenizer, "combining marks", Repeat({"\xCC\x81"}, kTextBytes));
  Measure(**tokenizer, "emoji", Repeat({"😀", "👩‍👩‍👧"}, kTextBytes));
  Measure(**tokenizer, "invalid UTF-8", std::string(kTextBytes, '\xFF'));
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  return deepinfer::Run(argc > 1 ? argv[1] : DEEPINFER_SOURCE_DIR "/models/nano/tokenizer.json",
                        argc > 2 ? argv[2] : "");
}
