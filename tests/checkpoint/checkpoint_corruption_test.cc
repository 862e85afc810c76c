// Checkpoints that are wrong in one way each: Open() must say which file, which tensor, what it expected and found.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/weights.h"
#include "test_files.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;
using testing_files::kTiny2;
using testing_files::ReadText;
using testing_files::TemporaryFolder;
using testing_files::WriteText;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

uint64_t HeaderLength(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return length;
}

// The headers of tiny2 with data areas of zeros (sparse): zero scales are finite, so it opens.
struct Folder {
  Json config, index;
  std::map<std::string, Json> headers;              // file name -> header
  std::map<std::string, uint64_t> data_bytes;       // file name -> bytes after the header
  std::map<std::string, std::string> written_over;  // file name -> bytes put at the given place
  std::map<std::string, uint64_t> written_at;

  std::string FileOf(const std::string& name) const { return index["weight_map"][name]; }
  Json& Tensor(const std::string& name) { return headers.at(FileOf(name)).at(name); }

  // Puts bytes `at` bytes behind the first of a tensor.
  void WriteInto(const std::string& name, uint64_t at, const std::string& bytes) {
    written_at[FileOf(name)] = Tensor(name)["data_offsets"][0].get<uint64_t>() + at;
    written_over[FileOf(name)] = bytes;
  }

  void Rename(const std::string& from, const std::string& to) {
    Json& header = headers.at(FileOf(from));
    header[to] = Json(header[from]);
    header.erase(from);
    index["weight_map"][to] = FileOf(from);
    index["weight_map"].erase(from);
  }

  // Gives a tensor another dtype and shape of as many bytes as `bytes`, and moves what lies behind it.
  void Reshape(const std::string& name, const char* dtype, const Json& shape, int64_t bytes) {
    const std::string file = FileOf(name);
    Json& changed = Tensor(name);
    const uint64_t begin = changed["data_offsets"][0], end = changed["data_offsets"][1];
    const int64_t delta = bytes - static_cast<int64_t>(end - begin);
    for (auto& [other, entry] : headers.at(file).items()) {
      if (entry["data_offsets"][0].get<uint64_t>() < end) continue;
      for (Json& offset : entry["data_offsets"]) offset = offset.get<int64_t>() + delta;
    }
    changed = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, begin + static_cast<uint64_t>(bytes)}}};
    data_bytes.at(file) += static_cast<uint64_t>(delta);
  }

  // One more tensor at the end of a file.
  void Append(const char* file, const char* name, const char* dtype, const Json& shape, uint64_t bytes) {
    headers.at(file)[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_bytes.at(file), data_bytes.at(file) + bytes}}};
    data_bytes.at(file) += bytes;
  }

  void Write(const std::filesystem::path& directory) const {
    if (!config.is_null())
      WriteText(directory / "config.json", config.is_string() ? config.get<std::string>() : config.dump());
    if (!index.is_null())
      WriteText(directory / "model.safetensors.index.json",
                index.is_string() ? index.get<std::string>() : index.dump());
    for (const auto& [file, header] : headers) {
      const std::string text = header.dump();
      testing_files::WriteSparseSafetensors(directory / file, text, data_bytes.at(file));
      if (!written_over.contains(file)) continue;
      std::fstream stream(directory / file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(static_cast<std::streamoff>(8 + text.size() + written_at.at(file)));
      stream << written_over.at(file);
    }
  }
};

Folder Tiny2() {
  static const Folder original = [] {
    Folder folder;
    folder.config = Json::parse(ReadText(kTiny2 / "config.json"));
    folder.index = Json::parse(ReadText(kTiny2 / "model.safetensors.index.json"));
    for (const char* name : {kFirst, kSecond}) {
      const std::string file = ReadText(kTiny2 / name);
      folder.headers[name] = Json::parse(file.substr(8, HeaderLength(file)));
      folder.data_bytes[name] = file.size() - 8 - HeaderLength(file);
    }
    return folder;
  }();
  return original;
}

std::string OpenError(const Folder& folder, const CheckpointOptions& options = {}) {
  const TemporaryFolder directory;
  folder.Write(directory.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(directory.path(), options);
  if (checkpoint.ok()) return "ok";
  std::string message = checkpoint.status().message();
  const std::string prefix = directory.path().string();
  for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
    message.replace(at, prefix.size(), "DIR");
  }
  return message;
}

struct Corruption {
  const char* name;
  void (*apply)(Folder&);
  const char* message;  // exact, with DIR for the folder
};
std::ostream& operator<<(std::ostream& out, const Corruption& corruption) { return out << corruption.name; }

class CorruptionTest : public ::testing::TestWithParam<Corruption> {};

TEST_P(CorruptionTest, IsNamed) {
  Folder folder = Tiny2();
  GetParam().apply(folder);
  EXPECT_EQ(OpenError(folder), GetParam().message);
}

constexpr Corruption kCorruptions[] = {
    {"Nothing", [](Folder&) {}, "ok"},
    // Tensors.
    {"MissingTensor", [](Folder& f) { f.Rename("layers.6.attn.wq_b.weight", "layers.6.attn.wq_b.w"); },
     "DIR/model.safetensors.index.json: tensor layers.6.attn.wq_b.weight: expected F8_E4M3 [384, 64], found in no "
     "file"},
    {"MissingScale", [](Folder& f) { f.Rename("layers.6.attn.wq_b.scale", "x"); },
     "DIR/model.safetensors.index.json: tensor layers.6.attn.wq_b.scale: expected F8_E8M0 [12, 2], found in no file"},
    {"ExtraTensor",
     [](Folder& f) {
       f.Append(kFirst, "layers.0.attn.compressor.ape", "BF16", {2, 3}, 12);
       f.index["weight_map"]["layers.0.attn.compressor.ape"] = kFirst;
     },
     "DIR/model-00001-of-00002.safetensors: tensor layers.0.attn.compressor.ape: expected no such tensor with this "
     "config.json, found BF16 [2, 3]"},
    {"VisionTensorWithoutVisionConfig",
     [](Folder& f) {
       f.Append(kFirst, "image_start", "BF16", {96}, 192);
       f.index["weight_map"]["image_start"] = kFirst;
     },
     "DIR/model-00001-of-00002.safetensors: tensor image_start: expected no such tensor with this config.json, found "
     "BF16 [96]"},
    {"WrongShape", [](Folder& f) { f.Reshape("layers.0.attn_norm.weight", "BF16", {95}, 190); },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.attn_norm.weight: expected BF16 [96], found BF16 [95]"},
    {"TransposedMatrix",
     [](Folder& f) {
       f.Tensor("layers.0.attn.wq_a.weight")["shape"] = {96, 64};
     },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.attn.wq_a.weight: expected F8_E4M3 [64, 96], found "
     "F8_E4M3 [96, 64]"},
    {"WrongRank",
     [](Folder& f) {
       f.Tensor("layers.0.attn_norm.weight")["shape"] = {1, 96};
     },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.attn_norm.weight: expected BF16 [96], found BF16 [1, 96]"},
    {"ScaleOfOtherBlocks",
     [](Folder& f) {
       f.Reshape("layers.0.attn.wq_a.scale", "F8_E8M0", {64, 3}, 192);
     },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.attn.wq_a.scale: expected F8_E8M0 [2, 3], found F8_E8M0 "
     "[64, 3]"},
    {"WrongDtypeOfExpert", [](Folder& f) { f.Tensor("layers.0.ffn.experts.0.w1.weight")["dtype"] = "F8_E4M3"; },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.ffn.experts.0.w1.weight: expected I8 [32, 48], found "
     "F8_E4M3 [32, 48]"},
    {"WrongDtypeOfNorm", [](Folder& f) { f.Reshape("layers.0.attn_norm.weight", "F32", {96}, 384); },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.attn_norm.weight: expected BF16 [96], found F32 [96]"},
    {"UnknownDtype", [](Folder& f) { f.Tensor("layers.0.attn_norm.weight")["dtype"] = "F16"; },
     "DIR/model-00002-of-00002.safetensors: header: tensor layers.0.attn_norm.weight: dtype: expected F32, BF16, "
     "F8_E4M3, F8_E8M0 or I8, found F16"},
    {"HyperConnectionProjectionInBf16",  // spec e.8
     [](Folder& f) {
       f.Reshape("layers.0.hc_attn_fn", "BF16", {8, 192}, 8 * 192 * 2);
     },
     "ok"},
    {"HyperConnectionProjectionInFp8",
     [](Folder& f) {
       f.Reshape("layers.0.hc_attn_fn", "F8_E4M3", {8, 192}, 8 * 192);
     },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.hc_attn_fn: expected F32 or BF16 [8, 192], found F8_E4M3 "
     "[8, 192]"},
    {"HyperConnectionBaseInBf16", [](Folder& f) { f.Reshape("layers.0.hc_attn_base", "BF16", {8}, 16); },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.hc_attn_base: expected F32 [8], found BF16 [8]"},
    {"NanScale", [](Folder& f) { f.WriteInto("layers.0.ffn.experts.3.w2.scale", 7, "\xff"); },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.ffn.experts.3.w2.scale: expected finite scales (bytes 0 to "
     "254), found 255 (NaN) at [7, 0]"},
    {"NanScaleOfAnEngramTableIsNotLookedFor", [](Folder& f) { f.WriteInto("layers.2.engram.embed.scale", 0, "\xff"); },
     "ok"},
    // Offsets.
    {"Overlap",
     [](Folder& f) {
       Json& entry = f.Tensor("layers.0.attn_norm.weight");
       for (Json& offset : entry["data_offsets"]) offset = offset.get<int64_t>() - 2;
     },
     "DIR/model-00002-of-00002.safetensors: header: tensor layers.0.attn_norm.weight: data_offsets: expected to begin "
     "at "
     "byte 58705, where tensor layers.0.attn.wq_b.scale ends, found 58703 (they overlap)"},
    {"Hole",
     [](Folder& f) {
       f.data_bytes.at(kFirst) += 1;  // skipped by the tensor that follows
       f.Append(kFirst, "late", "I8", {1}, 1);
     },
     "DIR/model-00001-of-00002.safetensors: header: tensor late: data_offsets: expected to begin at byte 3145728, "
     "found 3145729 (a hole)"},
    {"PastTheEnd", [](Folder& f) { f.data_bytes.at(kSecond) -= 1; },
     "DIR/model-00002-of-00002.safetensors: header: tensor norm.weight: data_offsets: expected an end of at most "
     "2223715, the bytes in the file, found 2223716"},
    {"TruncatedToTheHeader", [](Folder& f) { f.data_bytes.at(kSecond) = 0; },
     "DIR/model-00002-of-00002.safetensors: header: tensor layers.0.attn.attn_sink: data_offsets: expected an end of "
     "at "
     "most 0, the bytes in the file, found 24"},
    {"TrailingBytes", [](Folder& f) { f.data_bytes.at(kSecond) += 5; },
     "DIR/model-00002-of-00002.safetensors: header: expected 2223716 bytes of tensors after it, found 2223721"},
    // Index.
    {"IndexNamesAbsentFile",
     [](Folder& f) { f.index["weight_map"]["embed.weight"] = "model-00003-of-00002.safetensors"; },
     "DIR/model.safetensors.index.json: expected the file model-00003-of-00002.safetensors, found none"},
    {"IndexNamesAbsentTensor",
     [](Folder& f) {
       f.index["weight_map"]["ghost.b"] = kSecond;
       f.index["weight_map"]["ghost.a"] = kFirst;
     },
     "DIR/model.safetensors.index.json: tensor ghost.a: expected in model-00001-of-00002.safetensors, found in no "
     "file"},
    {"IndexNamesTheOtherFile", [](Folder& f) { f.index["weight_map"]["embed.weight"] = kSecond; },
     "DIR/model-00001-of-00002.safetensors: tensor embed.weight: expected in model-00002-of-00002.safetensors, as "
     "model.safetensors.index.json says, found here"},
    {"IndexLacksATensor", [](Folder& f) { f.index["weight_map"].erase("embed.weight"); },
     "DIR/model-00001-of-00002.safetensors: tensor embed.weight: expected an entry in model.safetensors.index.json, "
     "found none"},
    {"TensorInTwoFiles",
     [](Folder& f) {
       f.Append(kSecond, "embed.weight", "BF16", {8192, 96}, 8192 * 96 * 2);
     },
     "DIR/model-00002-of-00002.safetensors: tensor embed.weight: expected in one file, found in "
     "model-00001-of-00002.safetensors too"},
    {"IndexPointsOutside", [](Folder& f) { f.index["weight_map"]["embed.weight"] = "../" + std::string(kFirst); },
     "DIR/model.safetensors.index.json: tensor embed.weight: expected the name of a file in this folder, found "
     "../model-00001-of-00002.safetensors"},
    {"IndexWithoutMap",
     [](Folder& f) {
       f.index = {{"metadata", {}}};
     },
     "DIR/model.safetensors.index.json: expected the key weight_map, found none"},
    {"IndexNotJson", [](Folder& f) { f.index = "{\"weight_map\": {\"a\" \"b\"}}"; },
     "DIR/model.safetensors.index.json: byte 20: expected ':', found '\"'"},
    {"IndexTwice", [](Folder& f) { f.index = "{\"weight_map\": {\"a\": \"f\", \"a\": \"f\"}}"; },
     "DIR/model.safetensors.index.json: tensor a: expected once, found twice"},
    // config.json against the files.
    {"ConfigAsksForMoreExperts", [](Folder& f) { f.config["text_config"]["n_routed_experts"] = 8; },
     "DIR/model-00002-of-00002.safetensors: tensor layers.0.ffn.gate.weight: expected BF16 [8, 96], found BF16 [7, "
     "96]"},
    {"ConfigAsksForAbsurdlyManyExperts", [](Folder& f) { f.config["text_config"]["n_routed_experts"] = 4096; },
     "DIR/model.safetensors.index.json: expected at least 221256 tensors for the 36876 routed experts of config.json, "
     "found 834"},
    {"ConfigNotJson", [](Folder& f) { f.config = "not json"; },
     "DIR/config.json: expected a JSON object, found text that is not one"},
    {"NoConfig", [](Folder& f) { f.config = nullptr; }, "DIR/config.json: cannot open: No such file or directory"},
    {"NoFiles",
     [](Folder& f) {
       f.index = nullptr;
       f.headers.clear();
     },
     "DIR: expected model.safetensors.index.json or model.safetensors, found neither"},
};
INSTANTIATE_TEST_SUITE_P(All, CorruptionTest, ::testing::ValuesIn(kCorruptions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CheckpointOpen, ScalesAreNotReadWhenNotAsked) {
  Folder folder = Tiny2();
  folder.WriteInto("layers.0.ffn.experts.3.w2.scale", 0, "\xff");
  EXPECT_NE(OpenError(folder), "ok");
  EXPECT_EQ(OpenError(folder, {.check_scales = false}), "ok");
}

TEST(CheckpointOpen, SingleFileWithoutIndex) {
  Folder folder = Tiny2();
  for (const auto& [name, entry] : folder.headers.at(kSecond).items()) {
    Json moved = entry;
    for (Json& offset : moved["data_offsets"]) offset = offset.get<uint64_t>() + folder.data_bytes.at(kFirst);
    folder.headers.at(kFirst)[name] = moved;
  }
  folder.headers = {{"model.safetensors", folder.headers.at(kFirst)}};
  folder.data_bytes = {{"model.safetensors", folder.data_bytes.at(kFirst) + folder.data_bytes.at(kSecond)}};
  folder.index = nullptr;
  EXPECT_EQ(OpenError(folder), "ok");
  folder.headers.at("model.safetensors").erase("norm.weight");
  EXPECT_NE(OpenError(folder), "ok");
}

TEST(CheckpointOpen, VisionTensorsAreKeptByName) {
  Folder folder = Tiny2();
  folder.config["vision_config"] = {{"num_hidden_layers", 1}, {"hidden_size", 8}, {"num_attention_heads", 2},
                                    {"intermediate_size", 6}, {"patch_size", 2},  {"downsample_ratio", 2}};
  const std::vector<std::pair<const char*, std::vector<uint64_t>>> tensors = {
      {"vision.patch_embed.proj.weight", {8, 12}},
      {"vision.patch_embed.proj.bias", {8}},
      {"vision.blocks.0.norm1.weight", {8}},
      {"vision.blocks.0.norm2.weight", {8}},
      {"vision.blocks.0.attn.wqkv.weight", {24, 8}},
      {"vision.blocks.0.attn.wqkv.bias", {24}},
      {"vision.blocks.0.attn.wo.weight", {8, 8}},
      {"vision.blocks.0.attn.wo.bias", {8}},
      {"vision.blocks.0.mlp.w1.weight", {12, 8}},
      {"vision.blocks.0.mlp.w2.weight", {8, 6}},
      {"vision.norm.weight", {8}},
      {"aligner.w1.weight", {96, 32}},
      {"aligner.w1.bias", {96}},
      {"aligner.w2.weight", {96, 96}},
      {"aligner.w2.bias", {96}},
      {"image_start", {96}},
      {"image_end", {96}},
      {"image_newline", {96}},
  };
  for (const auto& [name, shape] : tensors) {
    const bool wide = std::string_view(name) == "vision.norm.weight";  // F32 is fine for norms
    uint64_t bytes = wide ? 4 : 2;
    for (const uint64_t extent : shape) bytes *= extent;
    folder.Append(kSecond, name, wide ? "F32" : "BF16", shape, bytes);
    folder.index["weight_map"][name] = kSecond;
  }
  const TemporaryFolder directory;
  folder.Write(directory.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->weights().vision.size(), tensors.size());
  EXPECT_EQ(checkpoint->weights().vision[10].name, "vision.norm.weight");
  EXPECT_EQ(checkpoint->weights().vision[10].info.dtype, DType::kF32);

  folder.headers.at(kSecond).erase("image_newline");
  folder.data_bytes.at(kSecond) -= 192;
  folder.index["weight_map"].erase("image_newline");
  EXPECT_EQ(OpenError(folder),
            "DIR/model.safetensors.index.json: tensor image_newline: expected BF16 [96], found in no file");
}

}  // namespace
}  // namespace deepinfer
