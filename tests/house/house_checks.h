// The house rules of docs/architecture.md that a program can check. Each check returns one line for every departure.
//
// Thread-safety: pure functions of their arguments, but for ReadTree. Ownership: values.
#ifndef DEEPINFER_TESTS_HOUSE_HOUSE_CHECKS_H_
#define DEEPINFER_TESTS_HOUSE_HOUSE_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer::house {

struct SourceFile {
  std::string path;  ///< from the root of the repository
  std::string text;
  bool executable = false;
};
using Findings = std::vector<std::string>;

/// The tracked files below `root`; without git every file but the build folder's.
std::vector<SourceFile> ReadTree(const std::string& root);

/// `#include "room/..."` and the deepinfer_ROOM of a room's CMakeLists.txt name only the room itself or one below it.
Findings CheckLayering(const std::vector<SourceFile>& files);
/// Sources have at most 600 lines.
Findings CheckLength(const std::vector<SourceFile>& files);
/// Headers begin with a comment: their contract.
Findings CheckContracts(const std::vector<SourceFile>& files);
/// No unfinished marks; tests neither sleep nor are switched off nor skip without saying why.
Findings CheckLeftOvers(const std::vector<SourceFile>& files);
/// No names of package registries, no absolute paths of a developer's machine.
Findings CheckPlaces(const std::vector<SourceFile>& files);
/// The two commands exist and can be executed, CI runs ./test, the README shows both.
Findings CheckCommands(const std::vector<SourceFile>& files);
/// All files together stay below 54 MiB.
Findings CheckSize(const std::vector<SourceFile>& files);

}  // namespace deepinfer::house

#endif  // DEEPINFER_TESTS_HOUSE_HOUSE_CHECKS_H_
