// ResponseStore: what `store` of the Responses API keeps, in one SQLite file (docs/response-store.md).
//
// A response belongs to an owner; to all others it does not exist. Old ones disappear: beyond max_age at once, beyond
// max_bytes the oldest first. Every change is one transaction: after a crash a response is there whole or not at all.
// Thread-safety: any thread; calls wait for each other and for the disk, so not from an I/O thread. Several processes
// may share a file on a local disk. Ownership: owns the connection. Errors: kNotFound, kResourceExhausted (larger than
// max_bytes), kCorruption (the file is damaged), kUnsupported (of a newer version), kIo; all but kNotFound name the
// file.
#ifndef DEEPINFER_SERVER_RESPONSE_STORE_H_
#define DEEPINFER_SERVER_RESPONSE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "deepinfer/status.h"

namespace deepinfer {

/// Seconds since 1970.
int64_t UnixSeconds();

struct ResponseStoreOptions {
  std::string path = ":memory:";         ///< its folder is made with mode 0700, the file with 0600
  int64_t max_age_days = 30;             ///< 0: for ever
  int64_t max_bytes = int64_t{1} << 30;  ///< of all that is stored, 0: no limit; the file is somewhat larger
  std::function<int64_t()> clock = UnixSeconds;
};

struct StoredResponseRow {
  std::string id;
  std::string owner;        ///< ApiKey::owner
  int64_t created = 0;      ///< seconds since 1970
  std::string previous_id;  ///< empty: none
  std::string model;
  std::string items_json;     ///< array of all input items so far and this output: what the next response builds on
  std::string response_json;  ///< the response object as the client got it
};

class ResponseStore {
 public:
  static Result<std::unique_ptr<ResponseStore>> Open(const ResponseStoreOptions& options);
  ~ResponseStore();

  /// Adds a response or replaces the owner's of this id.
  Status Put(const StoredResponseRow& response);
  /// Nothing: the owner has none of this id.
  Result<std::optional<StoredResponseRow>> Get(const std::string& id, const std::string& owner);
  /// items_json alone.
  Result<std::optional<std::string>> Items(const std::string& id, const std::string& owner);
  /// False: there was none.
  Result<bool> Delete(const std::string& id, const std::string& owner);

  /// Responses and bytes of all owners.
  Result<int64_t> count();
  Result<int64_t> bytes();

 private:
  class Database;
  explicit ResponseStore(std::unique_ptr<Database> database);

  std::unique_ptr<Database> database_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_RESPONSE_STORE_H_
