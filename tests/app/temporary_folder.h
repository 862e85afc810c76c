// A folder of a test's own, removed with everything in it at the end.
//
// Thread-safety: one thread.
#ifndef DEEPINFER_TESTS_APP_TEMPORARY_FOLDER_H_
#define DEEPINFER_TESTS_APP_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace deepinfer {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_APP_TEMPORARY_FOLDER_H_
