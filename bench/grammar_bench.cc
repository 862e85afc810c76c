// Speed of structured output on one core: compiling, and masks along random walks, with the released vocabulary.
//   grammar_bench TOKENIZER_JSON FOLDER_OF_SCHEMAS [WALKS_FOLDER]
// Prints the share of schemas that compile, times of compilation and of masks (each grammar cold, as for the first
// request that uses it), and writes the texts of the walks as JSON lines to WALKS_FOLDER for an independent validator.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"

namespace deepinfer {
namespace {

constexpr int kWalks = 5;
constexpr int kMaxTokens = 4000;
constexpr int32_t kLogitsWidth = 129280;

/// Time of this thread on a core: others on the machine do not count.
double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) return 0;
  std::ranges::sort(*values);
  return (*values)[std::min(values->size() - 1, static_cast<size_t>(share * static_cast<double>(values->size())))];
}

void Print(const char* name, std::vector<double> seconds) {
  std::printf("%-22s %7zu  p50 %9.1f us  p90 %9.1f us  p99 %9.1f us  max %9.1f us\n", name, seconds.size(),
              1e6 * Percentile(&seconds, 0.5), 1e6 * Percentile(&seconds, 0.9), 1e6 * Percentile(&seconds, 0.99),
              1e6 * Percentile(&seconds, 1));
}

struct Figures {
  std::vector<double> compile;
  std::vector<double> first_mask;
  std::vector<double> mask;
  std::vector<double> accept;
  int ended = 0;
  int walks = 0;
};

/// The token of each byte, and those that lead to the end of a text, the best first: in a string, whose sign is that a
/// letter may come, and outside.
struct ByteTokens {
  explicit ByteTokens(const TokenTrie& trie) {
    for (int32_t token = 0; token < trie.width(); ++token) {
      const std::string_view bytes = trie.BytesOf(token);
      if (bytes.size() == 1) of[static_cast<uint8_t>(bytes[0])] = token;
      if (bytes == "null" || bytes == "false") outside.push_back(token);
    }
    for (const char c : std::string_view(":[")) outside.push_back(of[static_cast<uint8_t>(c)]);
    std::vector<int32_t> closing;
    for (const char c : std::string_view("}],\"0")) closing.push_back(of[static_cast<uint8_t>(c)]);
    outside.insert(outside.begin(), closing.begin(), closing.end());
    for (const char c : std::string_view("\"a0-:/.@Z")) inside.push_back(of[static_cast<uint8_t>(c)]);
  }
  std::array<int32_t, 256> of{};
  std::vector<int32_t> inside;
  std::vector<int32_t> outside;
};

/// A short end of a text that began with `text`, by breadth first search, white space only where nothing else can
/// follow; nullopt when that is too far.
std::optional<std::string> ShortEnd(const Grammar& grammar, std::string_view text) {
  constexpr size_t kMaxStates = 50'000;
  RecogniserLimits limits;
  limits.max_bytes = size_t{1} << 30;
  limits.max_regex_nodes = 10'000'000;
  Recogniser recogniser(&grammar, limits);
  struct Visit {
    int32_t state;
    int32_t from;
    char byte;
  };
  std::vector<Visit> visits = {{recogniser.Walk(recogniser.start(), text), -1, 0}};
  std::unordered_set<int32_t> seen = {visits[0].state};
  for (size_t at = 0; at < visits.size() && visits.size() < kMaxStates && !recogniser.exhausted(); ++at) {
    if (recogniser.Accepts(visits[at].state)) {
      std::string end;
      for (auto i = static_cast<int32_t>(at); visits[static_cast<size_t>(i)].from >= 0;
           i = visits[static_cast<size_t>(i)].from) {
        end.push_back(visits[static_cast<size_t>(i)].byte);
      }
      std::ranges::reverse(end);
      return end;
    }
    bool lives = false;
    for (int i = 0; i < 256; ++i) {
      const int byte = (i + '!') % 256;  // white space comes last
      if (lives && byte <= ' ') break;
      const int32_t next = recogniser.Step(visits[at].state, static_cast<uint8_t>(byte));
      lives = lives || next != Recogniser::kDead;
      if (next == Recogniser::kDead || !seen.insert(next).second) continue;
      visits.push_back({next, static_cast<int32_t>(at), static_cast<char>(byte)});
    }
  }
  return std::nullopt;
}

bool Has(const std::vector<uint32_t>& words, int32_t token) {
  return (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

int32_t RandomToken(const std::vector<uint32_t>& words, std::mt19937* random) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    const auto token = static_cast<int32_t>((*random)() % (words.size() * 32));
    if (Has(words, token)) return token;
  }
  std::vector<int32_t> tokens;
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint32_t bits = words[word]; bits != 0; bits &= bits - 1) {
      tokens.push_back(static_cast<int32_t>(word * 32) + __builtin_ctz(bits));
    }
  }
  return tokens.empty() ? -1 : tokens[(*random)() % tokens.size()];
}

/// One text by random admitted tokens. After a while closing tokens come first, and then a short end that is searched
/// for, byte by byte.
bool Walk(const std::shared_ptr<const CompiledGrammar>& grammar, const ByteTokens& bytes, std::mt19937* random,
          Figures* figures, std::string* text) {
  constexpr int kPatience = 60;
  std::optional<std::string> rest;
  const int32_t end = kLogitsWidth - 1;
  Matcher matcher(grammar, {end});
  std::vector<uint32_t> words(grammar->trie().words());
  for (int step = 0; step < kMaxTokens; ++step) {
    const double start = Now();
    const Status status = matcher.FillMask(words);
    const double seconds = Now() - start;
    (step == 0 && figures->walks % kWalks == 0 ? figures->first_mask : figures->mask).push_back(seconds);
    if (!status.ok()) return false;
    if (step >= 2 * kPatience && step % (4 * kPatience) == 2 * kPatience && !rest)
      rest = ShortEnd(grammar->grammar(), *text);
    int32_t token = RandomToken(words, random);
    if (step > kPatience && Has(words, end)) token = end;
    const bool in_string = Has(words, bytes.of['x']) || Has(words, bytes.of['Z']);
    for (const int32_t better : in_string ? bytes.inside : bytes.outside) {
      if (step <= kPatience || token == end || !Has(words, better)) continue;
      token = better;
      // A string that cannot end yet wants some of these, who knows which.
      if (!in_string || better == bytes.inside[0] || (*random)() % 3 == 0) break;
    }
    // Where closing tokens lead in a circle, any byte may lead out of it.
    for (int i = 0; step > 2 * kPatience && step % 4 == 0 && token != end && i < 64; ++i) {
      const int32_t other = bytes.of[(*random)() % 128];
      if (!Has(words, other)) continue;
      token = other;
      break;
    }
    if (rest) {
      token = rest->empty() ? end : bytes.of[static_cast<uint8_t>(rest->front())];
      if (!rest->empty()) rest->erase(0, 1);
      if (!Has(words, token)) return false;
    }
    if (token == end) return true;
    const double accept = Now();
    const auto accepted = matcher.Accept(token);
    figures->accept.push_back(Now() - accept);
    if (!accepted.ok() || !*accepted) return false;
    *text += grammar->trie().BytesOf(token);
  }
  return false;
}

int Run(const std::string& tokenizer_path, const std::string& folder, const std::string& walks_folder) {
  const auto tokenizer = Tokenizer::Load(tokenizer_path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  const double trie_start = Now();
  const auto trie = TokenTrie::Build(**tokenizer, kLogitsWidth);
  if (!trie.ok()) {
    std::fprintf(stderr, "%s\n", trie.status().message().c_str());
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("token trie             %.1f ms\n", 1e3 * (Now() - trie_start));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  const ByteTokens bytes(**trie);
  JsonSchemaOptions options;
  options.plain_integers = true;  // as generation has it
  Figures figures;
  std::mt19937 random(3);
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string schema(std::istreambuf_iterator<char>(file), {});
    const double start = Now();
    auto grammar = CompileJsonSchema(schema, options);
    const double seconds = Now() - start;
    if (!grammar.ok()) {
      std::printf("refused %s: %s\n", path.lexically_relative(folder).c_str(), grammar.status().message().c_str());
      continue;
    }
    figures.compile.push_back(seconds);
    if (seconds > 0.05)
      std::printf("slow to compile %s: %.0f ms\n", path.lexically_relative(folder).c_str(), 1e3 * seconds);
    const auto compiled = CompiledGrammar::Make(std::move(*grammar), *trie);
    std::ofstream walks;
    if (!walks_folder.empty()) {
      std::string name = path.lexically_relative(folder).string();
      std::ranges::replace(name, '/', '_');
      walks.open(walks_folder + "/" + name + "l", std::ios::binary);
    }
    const size_t earlier = figures.mask.size();
    for (int walk = 0; walk < kWalks; ++walk) {
      std::string text;
      const bool ended = Walk(compiled, bytes, &random, &figures, &text);
      ++figures.walks;
      figures.ended += ended ? 1 : 0;
      if (!ended) std::printf("no end %s: %zu bytes\n", path.lexically_relative(folder).c_str(), text.size());
      for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;  // white space between parts, in JSON
      if (ended) walks << text << "\n";
    }
    const double worst = std::accumulate(figures.mask.begin() + static_cast<ptrdiff_t>(earlier), figures.mask.end(),
                                         0.0, [](double a, double b) { return std::max(a, b); });
    if (worst > 0.01) std::printf("slow mask %s: %.1f ms\n", path.lexically_relative(folder).c_str(), 1e3 * worst);
  }
  std::printf("%zu of %zu schemas compile, %d of %d walks end within %d tokens\n", figures.compile.size(), files.size(),
              figures.ended, figures.walks, kMaxTokens);
  Print("compile", figures.compile);
  Print("first mask", figures.first_mask);
  Print("later masks", figures.mask);
  Print("accept", figures.accept);
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: grammar_bench TOKENIZER_JSON FOLDER_OF_SCHEMAS [WALKS_FOLDER]\n");
    return 2;
  }
  return deepinfer::Run(argv[1], argv[2], argc > 3 ? argv[3] : "");
}
