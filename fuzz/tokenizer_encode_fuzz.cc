// Any bytes as text: encoding ends, decoding undoes it, the scanner agrees with PCRE2, and the incremental detokeniser
// with the whole. The first byte chooses how the stream is cut.
#include <unicode/uchar.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/utf8_stream.h"

namespace {

using deepinfer::PreTokenizer;
using deepinfer::Tokenizer;

void Require(bool condition) {
  if (!condition) std::abort();
}

const Tokenizer& Nano() {
  static const auto tokenizer = Tokenizer::Load(DEEPINFER_SOURCE_DIR "/models/nano/tokenizer.json");
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    std::abort();
  }
  return **tokenizer;
}

// PCRE2 10.42 knows Unicode 14 only.
bool IsUnicode14(std::string_view text) {
  const UVersionInfo unicode_14 = {14, 0, 0, 0};
  for (size_t at = 0; at < text.size();) {
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(deepinfer::NextCodePoint(text.data(), &at)), age);
    if (std::memcmp(age, unicode_14, sizeof(age)) > 0) return false;
  }
  return true;
}

std::vector<std::string_view> Pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string_view> pieces;
  Require(pre_tokenizer.ForEachPiece(text, [&](std::string_view piece) { pieces.push_back(piece); }).ok());
  return pieces;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t chunk = 1 + data[0] % 7;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string repaired = deepinfer::RepairUtf8(text);
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    Require((special ? Nano().EncodeWithSpecial(text, &ids) : Nano().Encode(text, &ids)).ok());
    for (const int32_t id : ids) Require(special || !Nano().IsAdded(id));
    Require(Nano().Decode(ids, /*skip_special=*/false) == repaired);
  }
  static const auto scanner = PreTokenizer::Create(deepinfer::DeepSeekSplitPatterns(), PreTokenizer::Engine::kFastest);
  static const auto regex = PreTokenizer::Create(deepinfer::DeepSeekSplitPatterns(), PreTokenizer::Engine::kRegex);
  if (IsUnicode14(repaired)) Require(Pieces(*scanner, repaired) == Pieces(*regex, repaired));

  deepinfer::Utf8Stream stream;
  std::string streamed;
  for (size_t at = 0; at < text.size(); at += chunk) streamed += stream.Feed(text.substr(at, chunk));
  Require(streamed + stream.Flush() == repaired);
  return 0;
}
