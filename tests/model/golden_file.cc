#include "golden_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace deepinfer::test {

Result<GoldenFile> GoldenFile::Open(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return Status::NotFound("cannot read golden file " + path.string());
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::string_view data = std::string_view(bytes).substr(sizeof(header_bytes) + header_bytes);
  const auto header = nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes));

  GoldenFile file;
  for (const auto& [name, entry] : header.items()) {
    GoldenTensor tensor;
    tensor.shape = entry["shape"].get<std::vector<int64_t>>();
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    if (entry["dtype"] == "F32") {
      tensor.floats.resize((end - begin) / sizeof(float));
      std::memcpy(tensor.floats.data(), data.data() + begin, end - begin);
    } else {
      tensor.ints.resize((end - begin) / sizeof(int32_t));
      std::memcpy(tensor.ints.data(), data.data() + begin, end - begin);
    }
    file.tensors_.emplace(name, std::move(tensor));
  }
  return file;
}

const GoldenTensor& GoldenFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("golden file without tensor " + name);
  return found->second;
}

}  // namespace deepinfer::test
