#include "server/random_id.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <array>

namespace deepinfer {

std::string RandomId(std::string_view prefix) {
  std::array<unsigned char, 12> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  std::string id(prefix);
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace deepinfer
