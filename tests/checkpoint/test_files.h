// Files for the checkpoint tests: a folder that removes itself, safetensors files from JSON headers.
//
// Thread-safety: none needed, one test at a time. Ownership: a TemporaryFolder deletes what is in it.
#ifndef DEEPINFER_TESTS_CHECKPOINT_TEST_FILES_H_
#define DEEPINFER_TESTS_CHECKPOINT_TEST_FILES_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace deepinfer::testing_files {

inline const std::filesystem::path kSource = DEEPINFER_SOURCE_DIR;
inline const std::filesystem::path kNano = kSource / "models/nano";
inline const std::filesystem::path kTiny2 = kSource / "tests/data/models/tiny2";
inline const std::filesystem::path kReleaseConfig = kSource / "tests/data/checkpoint/release_config.json";

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

/// Writes a header and a data area of `data_bytes` zeros, as a hole.
inline void WriteSparseSafetensors(const std::filesystem::path& path, std::string_view header, uint64_t data_bytes) {
  WriteText(path, LittleEndian64(header.size()) + std::string(header));
  std::filesystem::resize_file(path, 8 + header.size() + data_bytes);
}

}  // namespace deepinfer::testing_files

#endif  // DEEPINFER_TESTS_CHECKPOINT_TEST_FILES_H_
