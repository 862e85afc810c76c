// Any bytes as tokenizer.json: refused with a one-line message or loaded into a tokenizer that holds its promises.
#include <cstdint>
#include <cstdlib>

#include "text/token_map.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using deepinfer::Tokenizer;
  const auto tokenizer = Tokenizer::FromJson({reinterpret_cast<const char*>(data), size});
  if (!tokenizer.ok()) {
    const std::string message = tokenizer.status().message();
    Require(!message.empty() && message.find('\n') == std::string::npos);
    return 0;
  }
  const std::string text = "ab abc  a\n1234 é中文の<bos><|tool|>!?\x01";
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    const auto status = special ? (*tokenizer)->EncodeWithSpecial(text, &ids) : (*tokenizer)->Encode(text, &ids);
    if (!status.ok()) continue;  // a pattern that exhausts the engine
    for (const int32_t id : ids) Require(id >= 0 && id < (*tokenizer)->vocab_size());
    Require((*tokenizer)->Decode(ids, /*skip_special=*/false) == text);
  }
  const auto map = deepinfer::BuildTokenMap(**tokenizer);
  Require(map.ok() && map->size() == static_cast<size_t>((*tokenizer)->vocab_size()));
  return 0;
}
