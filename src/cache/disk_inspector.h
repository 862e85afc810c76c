// DiskInspector: what is in the folder of a disk tier, for people (`deepinfer kv`). Works beside engines that use the
// folder: it holds no lock, and what vanishes while it looks is not there.
//
// Thread-safety: one thread. Ownership: the file system outlives it.
#ifndef DEEPINFER_CACHE_DISK_INSPECTOR_H_
#define DEEPINFER_CACHE_DISK_INSPECTOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/disk_directory.h"
#include "cache/file_system.h"
#include "cache/kv_record.h"
#include "cache/segment_file.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// What a segment says of itself: its footer, or the headers of its records while it is open.
struct SegmentFacts {
  SegmentState state = SegmentState::kGood;
  int64_t created = 0;  ///< seconds since 1970
  int64_t blocks = 0;
  int64_t rings = 0;
  int64_t tokens = 0;  ///< of the blocks
  int64_t record_bytes = 0;
};

struct SegmentCheck {
  int64_t good = 0;
  int64_t bad = 0;         ///< records that do not prove themselves
  int64_t torn_bytes = 0;  ///< behind the last good record of an open segment
  bool foreign = false;    ///< of another version: nothing was checked
};

class DiskInspector {
 public:
  /// kNotFound, kIo: the folder cannot be read.
  static Result<DiskInspector> Open(FileSystem* files, const std::string& folder);

  const std::vector<SegmentOnDisk>& segments() const { return contents_.segments; }
  int64_t bytes() const { return contents_.bytes; }
  /// Files and folders that the system does not let us look at.
  const std::set<std::string>& unreadable() const { return contents_.unreadable; }
  /// Null: namespace.json is missing, of another version or wrong.
  const KvNamespace* FindNamespace(const std::string& folder) const;

  /// Folders, "namespace/scope", of those who use this salt, in all namespaces and replay modes.
  std::vector<std::string> ScopesOfSalt(std::string_view salt) const;

  Result<SegmentFacts> Look(const SegmentOnDisk& segment) const;
  /// Reads every byte. `secret`: of encrypted records; without it only their headers are checked.
  Result<SegmentCheck> Verify(const SegmentOnDisk& segment, const std::optional<KvKey>& secret) const;

  /// Copies a sealed segment into another folder of the same layout, under the same name.
  Status Export(const SegmentOnDisk& segment, const std::string& to) const;

  /// Engines that still read it go on; those that write it lose what they wrote.
  Status Remove(const SegmentOnDisk& segment) const;

 private:
  DiskInspector(FileSystem* files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  std::string PathOf(const SegmentOnDisk& segment) const;
  Result<SegmentContents> Contents(const SegmentOnDisk& segment) const;

  FileSystem* files_;
  std::string folder_;
  DiskDirectory::Contents contents_;
  std::map<std::string, KvNamespace> namespaces_;  // by folder
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_INSPECTOR_H_
