#include "server/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/app/temporary_folder.h"

namespace deepinfer {
namespace {

Status AddFlag(ApiKeys* keys, std::string text) { return keys->AddFlag(&text); }

/// The name of the key that the headers hold, "-" for none.
std::string NameOf(const ApiKeys& keys, std::optional<std::string_view> authorization,
                   std::optional<std::string_view> x_api_key = std::nullopt) {
  const ApiKey* key = keys.Find(authorization, x_api_key);
  return key == nullptr ? "-" : key->name;
}

class ApiKeyFile : public testing::Test {
 protected:
  Status Add(const std::string& text) {
    std::ofstream(path_) << text;
    return keys_.AddFile(path_);
  }
  /// The message of a refused file without its place.
  std::string Refusal(const std::string& text, int line = 1) {
    const Status status = Add(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    const std::string place = "--api-key-file " + path_ + ":" + std::to_string(line) + ": ";
    EXPECT_TRUE(status.message().starts_with(place)) << status.message();
    return status.message().substr(std::min(place.size(), status.message().size()));
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "keys").string();
  ApiKeys keys_;
};

TEST(ApiKeys, WithoutKeysEverybodyIsAnonymous) {
  const ApiKeys keys;
  EXPECT_TRUE(keys.open());
  for (const std::optional<std::string_view> header : {std::optional<std::string_view>(), {"Bearer anything"}}) {
    const ApiKey* key = keys.Find(header, std::nullopt);
    ASSERT_NE(key, nullptr);
    EXPECT_EQ(key->name, "anonymous");
    EXPECT_EQ(key->cache_salt, "");
    EXPECT_EQ(key->limits.concurrency, 0);
  }
}

TEST(ApiKeys, FindsTheKeyInEitherHeader) {
  ApiKeys keys;
  ASSERT_TRUE(AddFlag(&keys, "sk-first").ok());
  ASSERT_TRUE(AddFlag(&keys, "team=sk-second").ok());
  EXPECT_FALSE(keys.open());
  EXPECT_EQ(NameOf(keys, "Bearer sk-first"), "key-1");
  EXPECT_EQ(NameOf(keys, "bearer   sk-second "), "team");
  EXPECT_EQ(NameOf(keys, std::nullopt, "sk-second"), "team");
  EXPECT_EQ(NameOf(keys, std::nullopt, " sk-first\t"), "key-1");
  // Clients that send both may leave a dummy in one.
  EXPECT_EQ(NameOf(keys, "Bearer unused", "sk-second"), "team");
  EXPECT_EQ(NameOf(keys, "Bearer sk-first", "unused"), "key-1");

  EXPECT_EQ(NameOf(keys, std::nullopt), "-");
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Basic sk-first", "sk-first", "Bearersk-first", "Bearer sk-firs", "Bearer sk-first2",
        "Bearer SK-FIRST", "Bearer sk-first sk-first", "Bearer team=sk-second"}) {
    EXPECT_EQ(NameOf(keys, wrong), "-") << wrong;
  }
  EXPECT_EQ(NameOf(keys, std::nullopt, ""), "-");
}

TEST(ApiKeys, SaltsAndOwnersDifferAndHideTheKey) {
  ApiKeys keys, reordered;
  ASSERT_TRUE(AddFlag(&keys, "one").ok());
  ASSERT_TRUE(AddFlag(&keys, "two").ok());
  ASSERT_TRUE(AddFlag(&keys, "team=three").ok());
  ASSERT_TRUE(AddFlag(&reordered, "two").ok());
  const ApiKey* one = keys.Find(std::nullopt, "one");
  const ApiKey* two = keys.Find(std::nullopt, "two");
  const ApiKey* team = keys.Find(std::nullopt, "three");
  EXPECT_EQ(one->cache_salt.size(), 32u);
  EXPECT_NE(one->cache_salt, two->cache_salt);
  EXPECT_NE(one->owner, two->owner);
  EXPECT_NE("key:" + one->cache_salt, one->owner);
  EXPECT_EQ(team->owner, "team");
  // The same key without a name owns the same responses wherever it stands.
  EXPECT_EQ(reordered.Find(std::nullopt, "two")->owner, two->owner);
  EXPECT_NE(reordered.Find(std::nullopt, "two")->name, two->name);
  // SHA-256 of "one" begins so.
  EXPECT_EQ(one->cache_salt.find("7692c3ad"), std::string::npos);
  EXPECT_EQ(one->owner.find("7692c3ad"), std::string::npos);
}

TEST(ApiKeys, NamesEndAtTheFirstEqualsSignButPaddingIsPartOfTheKey) {
  ApiKeys keys;
  ASSERT_TRUE(AddFlag(&keys, "YWJjZA==").ok());
  ASSERT_TRUE(AddFlag(&keys, "a.b-c_1=YWJjZQ==").ok());
  EXPECT_EQ(NameOf(keys, "Bearer YWJjZA=="), "key-1");
  EXPECT_EQ(NameOf(keys, "Bearer YWJjZQ=="), "a.b-c_1");
}

TEST(ApiKeys, BadFlagsAreRefusedWithoutTheKeyAndWiped) {
  ApiKeys keys;
  ASSERT_TRUE(AddFlag(&keys, "team=secret1").ok());
  for (const std::string text : {"", "=secret", "two words=secret", "a/b=secret", "team=secret2", "other=secret1",
                                 "secret with blanks", "n\xC3\xA4me=secret", "name=secret\xC3\xA4", "name=secret\n"}) {
    std::string wiped = text;
    const Status status = keys.AddFlag(&wiped);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(status.message().starts_with("--api-key: ")) << status.message();
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
    EXPECT_EQ(wiped, "");
  }
  std::string good = "a-rather-long-secret-of-the-heap-0123456789";
  const char* bytes = good.data();
  const size_t size = good.size();
  ASSERT_TRUE(keys.AddFlag(&good).ok());
  for (size_t i = 0; i < size; ++i) EXPECT_EQ(bytes[i], '\0');
}

TEST_F(ApiKeyFile, ReadsNamesKeysAndLimits) {
  ASSERT_TRUE(Add("# who may come in\n"
                  "\n"
                  "alice:sk:with:colons concurrency=3 requests_per_minute=60 tokens_per_minute=100000 priority=-2\r\n"
                  "  bob:sk-#bob   salt=shared  # the intern\n"
                  "carol:sk-carol salt=shared\n"
                  "dave:sk-dave salt=")
                  .ok());
  const ApiKey* alice = keys_.Find("Bearer sk:with:colons", std::nullopt);
  ASSERT_NE(alice, nullptr);
  EXPECT_EQ(alice->name, "alice");
  EXPECT_EQ(alice->owner, "alice");
  EXPECT_EQ(alice->limits.concurrency, 3);
  EXPECT_EQ(alice->limits.requests_per_minute, 60);
  EXPECT_EQ(alice->limits.tokens_per_minute, 100000);
  EXPECT_EQ(alice->priority, -2);
  EXPECT_EQ(alice->cache_salt.size(), 32u);
  EXPECT_EQ(keys_.Find("Bearer sk-#bob", std::nullopt)->cache_salt, "shared");
  EXPECT_EQ(keys_.Find("Bearer sk-carol", std::nullopt)->cache_salt, "shared");
  EXPECT_EQ(keys_.Find("Bearer sk-dave", std::nullopt)->cache_salt, "");
}

TEST_F(ApiKeyFile, ErrorsNameTheLineAndNeverTheKey) {
  const std::string hint =
      "after name:key expected concurrency=N, requests_per_minute=N, tokens_per_minute=N, priority=N or salt=TEXT";
  EXPECT_EQ(Refusal("\n#\nsecret\n", 3), "expected name:key with a name of 1 to 64 letters, digits, '-', '_' and '.'");
  EXPECT_EQ(Refusal("a:secret secret2"), hint);
  EXPECT_EQ(Refusal("a:secret sekrit=5"), hint);
  EXPECT_EQ(Refusal("a:secret concurrency=0"), "concurrency: expected an integer from 1 to 1099511627776");
  EXPECT_EQ(Refusal("a:secret tokens_per_minute=1e6"),
            "tokens_per_minute: expected an integer from 1 to 1099511627776");
  EXPECT_EQ(Refusal("a:secret priority=99999999999"), "priority: expected an integer from -2147483647 to 2147483647");
  EXPECT_EQ(Refusal("a:secret salt=" + std::string(65, 's')), "salt: expected at most 64 bytes");
  EXPECT_EQ(Refusal("a:"), "expected a key of 1 to 1024 printable ASCII characters without blanks");
  EXPECT_EQ(Refusal("b:secret\nb:other", 2), "the name b is given twice");
  EXPECT_EQ(Refusal("c:secret", 1), "the same key as b's");
}

TEST_F(ApiKeyFile, FilesThatCannotBeReadAreNamed) {
  const Status missing = keys_.AddFile(path_);
  EXPECT_EQ(missing.code(), StatusCode::kIo);
  EXPECT_EQ(missing.message(), "--api-key-file " + path_ + ": No such file or directory");
  EXPECT_EQ(keys_.AddFile(folder_.path().string()).code(), StatusCode::kIo);
  EXPECT_EQ(Add(std::string((1 << 20) + 1, '#')).message(), "--api-key-file " + path_ + ": larger than 1 MiB");
  EXPECT_TRUE(keys_.open());
}

}  // namespace
}  // namespace deepinfer
