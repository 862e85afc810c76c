// Identifiers that nobody can guess. Thread-safety: any thread.
#ifndef DEEPINFER_SERVER_RANDOM_ID_H_
#define DEEPINFER_SERVER_RANDOM_ID_H_

#include <string>
#include <string_view>

namespace deepinfer {

/// `prefix` and 24 hexadecimal digits.
std::string RandomId(std::string_view prefix);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_RANDOM_ID_H_
