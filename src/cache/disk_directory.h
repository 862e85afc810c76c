// DiskDirectory: the names in the folder of a disk tier, which several processes share:
//
//   DIR/lock                                  held (flock) by whoever makes room or takes it
//   DIR/<namespace>/namespace.json            what the namespace is, for people and `deepinfer kv`
//   DIR/<namespace>/<scope>/<day>-<writer>-<number>.open    being written; its writer holds its lock
//   DIR/<namespace>/<scope>/<day>-<writer>-<number>.seg     sealed; never written again
//
// namespace and scope: the first 16 hexadecimal digits of fingerprint and root; writer: 16 digits; day: that of expiry,
// since 1970-01-01, 1000000 at most. Files with other names are nobody's business; they count as space, no more.
// Special files and links below DIR are not looked at, and folders that cannot be read are left out.
//
// Thread-safety: one thread at a time. Ownership: the file system outlives it.
#ifndef DEEPINFER_CACHE_DISK_DIRECTORY_H_
#define DEEPINFER_CACHE_DISK_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cache/file_system.h"
#include "cache/kv_key.h"
#include "cache/segment_file.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Which segment; the same before and after it is sealed.
struct SegmentId {
  std::string scope;  ///< folder
  int64_t expiry_day = 0;
  uint64_t writer = 0;
  uint32_t number = 0;

  friend bool operator==(const SegmentId&, const SegmentId&) = default;
  friend bool operator<(const SegmentId& a, const SegmentId& b) {
    return std::tie(a.scope, a.expiry_day, a.writer, a.number) < std::tie(b.scope, b.expiry_day, b.writer, b.number);
  }
};

struct SegmentOnDisk {
  std::string name_space;  ///< folder
  SegmentId id;
  bool sealed = false;
  FileInfo info;
};

class DiskDirectory {
 public:
  /// writer: of this process, different from all others.
  DiskDirectory(FileSystem* files, std::string folder, const KvNamespace& name_space, uint64_t writer);

  /// Makes the folders, the lock and namespace.json where they are missing.
  Status Prepare();

  /// All segments with their sizes, of all namespaces, sorted; and the bytes of every file that there is. Errors are
  /// those of DIR itself.
  struct Contents {
    std::vector<SegmentOnDisk> segments;
    std::vector<std::string> empty_scopes;  ///< paths of scope folders without a file
    std::set<std::string> unreadable;       ///< paths of files and folders that the system does not let us look at
    int64_t bytes = 0;
  };
  Result<Contents> List();

  /// The lock of the folder, within `seconds`.
  Status Lock(double seconds);
  void Unlock();

  const std::string& name_space() const { return name_space_folder_; }
  std::string ScopePath(std::string_view scope) const;
  std::string Path(const SegmentOnDisk& segment) const;
  /// Of this namespace.
  std::string Path(const SegmentId& id, bool sealed) const;

  static std::string FolderOf(const KvKey& key) { return ToHex(key, 8); }

 private:
  FileSystem* files_;
  std::string folder_;
  KvNamespace name_space_;
  uint64_t writer_;
  std::string name_space_folder_;
  std::shared_ptr<File> lock_;
};

/// The name of the file, and back; nothing: no segment has that name.
std::string FileName(const SegmentId& id, bool sealed);
std::optional<SegmentOnDisk> ParseFileName(std::string_view name);

/// The header says what its file's name and folders say; any other segment is left alone.
bool IsAtItsPlace(const SegmentHeader& header, const KvKey& name_space, const SegmentId& id);

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_DIRECTORY_H_
