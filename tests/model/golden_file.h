// GoldenFile: the tensors of one golden file, a safetensors file of F32 and I32 tensors only.
//
// Thread-safety: immutable after Open(). Ownership: owns its values.
#ifndef DEEPINFER_TESTS_MODEL_GOLDEN_FILE_H_
#define DEEPINFER_TESTS_MODEL_GOLDEN_FILE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer::test {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> floats;  // of an F32 tensor
  std::vector<int32_t> ints;  // of an I32 tensor
};

class GoldenFile {
 public:
  static Result<GoldenFile> Open(const std::filesystem::path& path);

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  /// The test ends with a readable message when the tensor is missing.
  const GoldenTensor& tensor(const std::string& name) const;
  const std::vector<float>& floats(const std::string& name) const { return tensor(name).floats; }
  const std::vector<int32_t>& ints(const std::string& name) const { return tensor(name).ints; }

 private:
  std::map<std::string, GoldenTensor> tensors_;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_MODEL_GOLDEN_FILE_H_
