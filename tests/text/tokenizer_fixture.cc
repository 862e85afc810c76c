#include "tokenizer_fixture.h"

#include <zlib.h>

#include <cstdlib>
#include <iostream>

#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace deepinfer::testing {
namespace {

const std::string kSource = DEEPINFER_SOURCE_DIR;

[[noreturn]] void Give(const std::string& message) {
  std::cerr << message << std::endl;
  std::abort();
}

const Tokenizer& OrGive(const Result<std::unique_ptr<Tokenizer>>& tokenizer) {
  if (!tokenizer.ok()) Give(tokenizer.status().message());
  return **tokenizer;
}

}  // namespace

const std::string& ReleasedTokenizerJson() {
  static const std::string json = [] {
    const std::string path = kSource + "/tests/data/text/deepseek_v41_tokenizer.json.gz";
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) Give("cannot open " + path);
    std::string content;
    char block[1 << 16];
    int count = 0;
    while ((count = gzread(file, block, sizeof(block))) > 0) content.append(block, count);
    if (count < 0 || gzclose(file) != Z_OK) Give("cannot unpack " + path);
    return content;
  }();
  return json;
}

const Tokenizer& ReleasedTokenizer() {
  static const auto tokenizer = Tokenizer::FromJson(ReleasedTokenizerJson(), "released tokenizer.json");
  return OrGive(tokenizer);
}

const Tokenizer& NanoTokenizer() {
  static const auto tokenizer = Tokenizer::Load(kSource + "/models/nano/tokenizer.json");
  return OrGive(tokenizer);
}

nlohmann::ordered_json SmallTokenizerJson(const std::vector<std::string>& merges) {
  using Json = nlohmann::ordered_json;
  Json splits = Json::array();
  for (const std::string& pattern : DeepSeekSplitPatterns()) {
    splits.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  splits.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  Json vocabulary = Json::object();
  int32_t next = 0;
  for (int byte = 0; byte < 256; ++byte) vocabulary[SpellingOfBytes(std::string(1, static_cast<char>(byte)))] = next++;
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    if (!vocabulary.contains(joined)) vocabulary[joined] = next++;
  }
  const auto added = [](int32_t id, const std::string& content, bool special) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(next, "<bos>", true), added(next + 1, "<|tool|>", false)}},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", splits}}},
          {"post_processor", {{"type", "ByteLevel"}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"dropout", nullptr}, {"vocab", vocabulary}, {"merges", merges}}}};
}

std::string RandomText(std::mt19937* random, size_t length) {
  const auto below = [random](uint32_t limit) { return static_cast<uint32_t>((*random)() % limit); };
  // Ranges in which classes alternate, so that every border between two classes turns up.
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  static constexpr Range kRanges[] = {
      {'a', 'z'},         {'a', 'e'},         {'A', 'Z'},           {'0', '9'},         {' ', ' '},
      {' ', ' '},         {'\n', '\n'},       {'\r', '\r'},         {'\t', '\r'},       {0x00, 0x1F},
      {'!', '/'},         {':', '@'},         {'[', '`'},           {'{', 0x7F},        {0x80, 0xFF},
      {0x300, 0x36F},     {0x370, 0x52F},     {0x590, 0x6FF},       {0x900, 0x97F},     {0xE00, 0xE7F},
      {0x1680, 0x1680},   {0x2000, 0x206F},   {0x2070, 0x209F},     {0x20A0, 0x20F0},   {0x2150, 0x218F},
      {0x2460, 0x24FF},   {0x3000, 0x303F},   {0x3040, 0x309F},     {0x30A0, 0x30FF},   {0x3400, 0x3410},
      {0x4E00, 0x4E10},   {0x9FA0, 0x9FAF},   {0xAC00, 0xAC20},     {0xE000, 0xE001},   {0xFE00, 0xFE0F},
      {0xFEFF, 0xFEFF},   {0xFF00, 0xFF5F},   {0xFFF0, 0xFFFF},     {0x1D400, 0x1D7FF}, {0x1F600, 0x1F64F},
      {0x20000, 0x20010}, {0xE0100, 0xE0110}, {0x10FFFE, 0x10FFFF},
  };
  std::string text;
  for (size_t made = 0; made < length;) {
    const Range range = kRanges[below(std::size(kRanges))];
    const uint32_t run = 1 + (below(3) == 0 ? below(8) : below(2));
    const bool repeat = below(2) == 0;
    uint32_t point = range.first + below(range.last - range.first + 1);
    for (uint32_t i = 0; i < run; ++i, ++made) {
      if (!repeat) point = range.first + below(range.last - range.first + 1);
      AppendUtf8(point, &text);
    }
  }
  return text;
}

}  // namespace deepinfer::testing
