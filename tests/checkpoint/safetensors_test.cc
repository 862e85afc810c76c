#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "test_files.h"

namespace deepinfer {
namespace {

using testing_files::LittleEndian64;
using testing_files::TemporaryFolder;
using testing_files::WriteText;

std::string HeaderError(std::string_view json, uint64_t data_bytes) {
  const Result<std::vector<TensorInfo>> parsed = ParseSafetensorsHeader(json, data_bytes);
  if (parsed.ok()) return "ok";
  EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption);
  return parsed.status().message();
}

TEST(SafetensorsHeader, Reads) {
  const Result<std::vector<TensorInfo>> parsed = ParseSafetensorsHeader(
      R"({"__metadata__":{"format":"pt"}, "b":{"data_offsets":[4,16],"shape":[2,3],"dtype":"BF16","extra":[{}]},
          "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}, "e":{"dtype":"I8","shape":[0,7],"data_offsets":[16,16]}})"
      "  \n",
      16);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->size(), 3u);
  const TensorInfo& b = (*parsed)[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(ShapeText(b.dimensions()), "[2, 3]");
  EXPECT_EQ(b.begin, 4u);
  EXPECT_EQ(b.end, 16u);
  EXPECT_EQ(ShapeText((*parsed)[1].dimensions()), "[]");
  EXPECT_EQ((*parsed)[2].begin, 16u);
}

TEST(SafetensorsHeader, MetadataAndPaddingAreNotJudged) {
  EXPECT_EQ(HeaderError(R"({"__metadata__":3})", 0), "ok");
  EXPECT_EQ(HeaderError(R"({"__metadata__":null,"__metadata__":[]})", 0), "ok");
  EXPECT_EQ(HeaderError(std::string("{}\t\r\n\0\0\0", 8), 0), "ok");
}

struct BadHeader {
  const char* json;
  uint64_t data_bytes;
  const char* message;  // exact
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, NamesTensorExpectedAndFound) {
  EXPECT_EQ(HeaderError(GetParam().json, GetParam().data_bytes), GetParam().message);
}

constexpr BadHeader kBadHeaders[] = {
    {"", 0, "header: byte 0: expected '{', found the end"},
    {"[]", 0, "header: byte 0: expected '{', found '['"},
    {"{", 0, "header: byte 1: expected '\"', found the end"},
    {"{}x", 0, "header: byte 2: expected nothing but padding after the closing '}', found 'x'"},
    {"{\"\xff\":1}", 0, "header: expected UTF-8, found other bytes"},
    {R"({"a":3})", 0, "header: byte 5: expected '{', found '3'"},
    {R"({"a":{}})", 0, "header: tensor a: the field dtype is missing"},
    {R"({"a":{"dtype":"F32"}})", 0, "header: tensor a: the field shape is missing"},
    {R"({"a":{"dtype":"F32","shape":[]}})", 0, "header: tensor a: the field data_offsets is missing"},
    {R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, "header: tensor a: the field dtype appears twice"},
    {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", 2,
     "header: tensor a: dtype: expected F32, BF16, F8_E4M3, F8_E8M0 or I8, found F16"},
    {R"({"a":{"dtype":7}})", 0, "header: byte 14: expected '\"', found '7'"},
    {R"({"a":{"dtype":"I8","shape":[-2],"data_offsets":[0,2]}})", 2,
     "header: tensor a: shape: expected no negative number, found -2"},
    {R"({"a":{"dtype":"I8","shape":[2.0],"data_offsets":[0,2]}})", 2,
     "header: tensor a: shape: byte 28: expected an integer, found '2'"},
    {R"({"a":{"dtype":"I8","shape":[1,1,1,1,1],"data_offsets":[0,1]}})", 1,
     "header: tensor a: shape: expected at most 4 entries, found more"},
    {R"({"a":{"dtype":"I8","shape":[99999999999999999999],"data_offsets":[0,2]}})", 2,
     "header: tensor a: shape: byte 28: expected an integer that fits 64 bits, found '9'"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "header: tensor a: shape: expected a size that fits 64 bits, found [4294967296, 4294967296]"},
    {R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,4]}})", 4,
     "header: tensor a: shape: expected a size that fits 64 bits, found [9223372036854775807]"},
    {R"({"a":{"dtype":"I8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "header: tensor a: shape: expected a size that fits 64 bits, found [0, 4294967296, 4294967296]"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", 1,
     "header: tensor a: data_offsets: expected 2 entries, found 1"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}})", 1,
     "header: tensor a: data_offsets: expected at most 2 entries, found more"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[-1,0]}})", 1,
     "header: tensor a: data_offsets: expected no negative number, found -1"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[1,0]}})", 1,
     "header: tensor a: data_offsets: expected begin <= end, found [1, 0]"},
    {R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})", 2,
     "header: tensor a: data_offsets: expected an end of at most 2, the bytes in the file, found 3"},
    {R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,3]}})", 3,
     "header: tensor a: data_offsets: expected 6 bytes for BF16 [3], found 3"},
    {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})", 3,
     "header: tensor a: data_offsets: expected to begin at byte 0, found 1 (a hole)"},
    {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})", 3,
     "header: tensor b: data_offsets: expected to begin at byte 2, where tensor a ends, found 1 (they overlap)"},
    {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 3,
     "header: expected 2 bytes of tensors after it, found 3"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})", 2,
     "header: tensor a: expected once, found twice"},
    {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
     2, "header: tensor a: expected once, found twice"},
    {R"({"a\n":{}})", 0, "header: tensor a\\x0a: the field dtype is missing"},
    {R"({"":{}})", 0, "header: tensor '': the field dtype is missing"},
};
INSTANTIATE_TEST_SUITE_P(All, BadHeaderTest, ::testing::ValuesIn(kBadHeaders));

TEST(SafetensorsFile, OpensAndPointsIntoTheFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  const std::string header = R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})";
  WriteText(path, LittleEndian64(header.size()) + header + "xyz");
  Result<SafetensorsFile> opened = SafetensorsFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsFile file = std::move(opened).value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data(file.tensors()[0])), 3), "xyz");
  EXPECT_EQ(file.file_bytes(), 8 + header.size() + 3);
}

TEST(SafetensorsFile, BadFiles) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  const auto error = [&](const std::string& bytes) {
    WriteText(path, bytes);
    const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
    const std::string prefix = path.string() + ": ";
    if (file.ok()) return std::string("ok");
    EXPECT_EQ(file.status().message().substr(0, prefix.size()), prefix);
    return file.status().message().substr(prefix.size());
  };
  EXPECT_EQ(error(""), "expected at least 8 bytes, found 0");
  EXPECT_EQ(error("1234567"), "expected at least 8 bytes, found 7");
  EXPECT_EQ(error(LittleEndian64(100'000'001)), "expected a header of at most 100000000 bytes, found 100000001");
  EXPECT_EQ(error(LittleEndian64(UINT64_MAX)),
            "expected a header of at most 100000000 bytes, found 18446744073709551615");
  EXPECT_EQ(error(LittleEndian64(10) + "{}"), "expected a header of 10 bytes, found 2 (a truncated file)");
  EXPECT_EQ(error(LittleEndian64(0)), "header: byte 0: expected '{', found the end");
  EXPECT_EQ(error(LittleEndian64(2) + "{}"), "ok");
}

TEST(SafetensorsFile, WhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(SafetensorsFile::Open(folder.path() / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(folder.path()).status().code(), StatusCode::kIo);
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::Open(pipe).status().message(), pipe.string() + ": expected a regular file");
}

TEST(PrintableName, IsShortAndOneLine) {
  EXPECT_EQ(PrintableName("layers.0.x"), "layers.0.x");
  EXPECT_EQ(PrintableName("a\x1b[31m"), "a\\x1b[31m");
  std::string accents = "x";
  for (int i = 0; i < 100; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(PrintableName(accents), accents.substr(0, 119) + "...");  // no half character
}

}  // namespace
}  // namespace deepinfer
