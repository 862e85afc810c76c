// Encoding and decoding against the recorded vectors, and the properties that hold for any text.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "text/utf8.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using testing::NanoTokenizer;
using testing::RandomText;
using testing::ReleasedTokenizer;

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  std::vector<int32_t> ids;
  const Status status = special ? tokenizer.EncodeWithSpecial(text, &ids) : tokenizer.Encode(text, &ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

TEST(TokenizerVectors, ReleasedTokenizerIsExact) {
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/text/tokenizer_vectors.jsonl");
  size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const auto vector = nlohmann::json::parse(line);
    const auto text = vector["text"].get<std::string>();
    const auto expected = vector["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(Encode(ReleasedTokenizer(), text, vector["mode"] == "special"), expected) << vector["name"];
    EXPECT_EQ(ReleasedTokenizer().Decode(expected, /*skip_special=*/false), text) << vector["name"];
  }
  EXPECT_EQ(count, 122u);
}

}  // namespace
}  // namespace deepinfer
