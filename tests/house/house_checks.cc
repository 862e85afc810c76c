#include "house_checks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace deepinfer::house {
namespace {

/// From the top down; docs/architecture.md, "The rooms".
constexpr std::array<std::string_view, 12> kRooms = {"app",  "server", "cluster", "api", "engine",     "grammar",
                                                     "text", "cache",  "model",   "ops", "checkpoint", "base"};
constexpr size_t kLongestFile = 600;              // lines
constexpr int64_t kLargestTree = 54 * (1 << 20);  // bytes

/// Place in the list, -1 for what is no room.
int Rank(std::string_view room) {
  const auto found = std::find(kRooms.begin(), kRooms.end(), room);
  return found == kRooms.end() ? -1 : static_cast<int>(found - kRooms.begin());
}

/// "src/ops/cpu/x.cc" -> "ops".
std::string_view RoomOf(std::string_view path) {
  if (!path.starts_with("src/")) return {};
  path.remove_prefix(4);
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool HasSuffix(const SourceFile& file, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](std::string_view suffix) { return file.path.ends_with(suffix); });
}

/// Data that others wrote.
bool IsData(const SourceFile& file) {
  return file.path.starts_with("models/") || file.path.starts_with("tests/data/") ||
         file.path.starts_with("third_party/") || file.path.starts_with("fuzz/corpus/");
}

bool IsText(const SourceFile& file) { return file.text.find('\0') == std::string::npos; }

bool IsWordCharacter(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Place(const SourceFile& file, size_t line_index) {
  return file.path + ":" + std::to_string(line_index + 1) + ": ";
}

/// Position of `word` in `line` as a word of its own.
bool ContainsWord(const std::string& line, const std::string& word) {
  for (size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    const bool starts = at == 0 || !IsWordCharacter(line[at - 1]);
    const size_t end = at + word.size();
    if (starts && (end == line.size() || !IsWordCharacter(line[end]))) return true;
  }
  return false;
}

void CheckIncludesOf(const SourceFile& file, std::string_view room, Findings* findings) {
  constexpr std::string_view kInclude = "#include \"";
  const std::vector<std::string> lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with(kInclude)) continue;
    const std::string path = lines[i].substr(kInclude.size(), lines[i].rfind('"') - kInclude.size());
    const std::string target = path.substr(0, path.find('/'));
    if (path.find("..") != std::string::npos || path.starts_with("src/")) {
      findings->push_back(Place(file, i) + "includes are written from src/, found " + path);
    } else if (target != room && Rank(target) >= 0 && Rank(target) < Rank(room)) {
      findings->push_back(Place(file, i) + "include runs up, from " + std::string(room) + " to " + target);
    }
  }
}

void CheckLinksOf(const SourceFile& file, std::string_view room, Findings* findings) {
  constexpr std::string_view kPrefix = "deepinfer_";
  const std::vector<std::string> lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string line = lines[i].substr(0, lines[i].find('#'));
    for (size_t at = line.find(kPrefix); at != std::string::npos; at = line.find(kPrefix, at + 1)) {
      size_t end = at + kPrefix.size();
      while (end < line.size() && IsWordCharacter(line[end])) ++end;
      const std::string target = line.substr(at + kPrefix.size(), end - at - kPrefix.size());
      if (Rank(target) >= 0 && Rank(target) < Rank(room)) {
        findings->push_back(Place(file, i) + "link runs up, from " + std::string(room) + " to " + target);
      }
    }
  }
}

std::vector<std::string> TrackedPaths(const std::string& root) {
  std::vector<std::string> paths;
  const std::string command = "git -C '" + root + "' ls-files -z 2>/dev/null";
  std::string list;
  if (std::FILE* pipe = popen(command.c_str(), "r"); pipe != nullptr) {
    std::array<char, 4096> buffer;
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) list.append(buffer.data(), count);
    if (pclose(pipe) != 0) list.clear();
  }
  std::istringstream stream(list);
  for (std::string path; std::getline(stream, path, '\0');) paths.push_back(path);
  if (!paths.empty()) return paths;

  for (auto entry = std::filesystem::recursive_directory_iterator(root); entry != std::filesystem::end(entry);
       ++entry) {
    const std::string path = std::filesystem::relative(entry->path(), root).string();
    if (path == ".git" || path == "build") entry.disable_recursion_pending();
    if (entry->is_regular_file()) paths.push_back(path);
  }
  return paths;
}

}  // namespace

std::vector<SourceFile> ReadTree(const std::string& root) {
  std::vector<SourceFile> files;
  for (const std::string& path : TrackedPaths(root)) {
    const std::filesystem::path whole = std::filesystem::path(root) / path;
    std::error_code error;
    const auto status = std::filesystem::symlink_status(whole, error);
    // Not what is deleted, but not yet from the index; not links, which travel as links: their targets are listed.
    if (error || !std::filesystem::is_regular_file(status)) continue;
    std::ifstream stream(whole, std::ios::binary);
    SourceFile file{path, std::string(std::istreambuf_iterator<char>(stream), {}), false};
    file.executable = (status.permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none;
    files.push_back(std::move(file));
  }
  return files;
}

Findings CheckLayering(const std::vector<SourceFile>& files) {
  Findings findings;
  for (const SourceFile& file : files) {
    const std::string_view room = RoomOf(file.path);
    if (room.empty()) continue;
    if (Rank(room) < 0) {
      findings.push_back(file.path + ": " + std::string(room) + " is no room of docs/architecture.md");
    } else if (file.path.ends_with("CMakeLists.txt")) {
      CheckLinksOf(file, room, &findings);
    } else {
      CheckIncludesOf(file, room, &findings);
    }
  }
  return findings;
}

Findings CheckLength(const std::vector<SourceFile>& files) {
  Findings findings;
  for (const SourceFile& file : files) {
    if (IsData(file) || !HasSuffix(file, {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".ts"})) continue;
    const size_t lines = static_cast<size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
    if (lines > kLongestFile) findings.push_back(file.path + ": " + std::to_string(lines) + " lines, at most 600");
  }
  return findings;
}

Findings CheckContracts(const std::vector<SourceFile>& files) {
  Findings findings;
  for (const SourceFile& file : files) {
    const bool is_ours = file.path.starts_with("src/") || file.path.starts_with("include/");
    if (is_ours && file.path.ends_with(".h") && !file.text.starts_with("//")) {
      findings.push_back(file.path + ": a header begins with its contract as a comment");
    }
  }
  return findings;
}

Findings CheckLeftOvers(const std::vector<SourceFile>& files) {
  // Put together here, so that this file does not find itself.
  const std::string marks[] = {std::string("TO") + "DO", std::string("FIX") + "ME", std::string("XX") + "X",
                               std::string("HA") + "CK"};
  const std::string evasions[] = {std::string("GTEST") + "_SKIP();", std::string("DISAB") + "LED_",
                                  std::string("sleep") + "_for", std::string("usl") + "eep("};
  Findings findings;
  for (const SourceFile& file : files) {
    if (IsData(file) || !HasSuffix(file, {".h", ".cc", ".cu", ".cuh"})) continue;
    const bool is_test = file.path.starts_with("tests/");
    const std::vector<std::string> lines = Lines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const std::string& mark : marks) {
        if (ContainsWord(lines[i], mark)) findings.push_back(Place(file, i) + "left over: " + mark);
      }
      for (const std::string& evasion : evasions) {
        if (is_test && lines[i].find(evasion) != std::string::npos) {
          findings.push_back(Place(file, i) + "a test that sleeps or is switched off: " + evasion);
        }
      }
    }
  }
  return findings;
}

Findings CheckPlaces(const std::vector<SourceFile>& files) {
  const std::string places[] = {std::string("deb.deb") + "ian.org", std::string("py") + "pi.org",
                                std::string("npm") + "js.org",      std::string("cra") + "tes.io",
                                std::string("proxy.go") + "lang",   std::string("/wo") + "rk/",
                                std::string("/roo") + "t/",         std::string("/ho") + "me/"};
  Findings findings;
  for (const SourceFile& file : files) {
    if (IsData(file) || !IsText(file)) continue;
    const std::vector<std::string> lines = Lines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const std::string& place : places) {
        if (lines[i].find(place) != std::string::npos) findings.push_back(Place(file, i) + "names " + place);
      }
    }
  }
  return findings;
}

Findings CheckCommands(const std::vector<SourceFile>& files) {
  const auto find = [&files](std::string_view path) {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const SourceFile& file) { return file.path == path; });
    return found == files.end() ? nullptr : &*found;
  };
  Findings findings;
  for (std::string_view path : {"run", "test", ".ci/run"}) {
    const SourceFile* file = find(path);
    if (file == nullptr || !file->executable) findings.push_back(std::string(path) + ": expected an executable file");
  }
  const SourceFile* ci = find(".ci/run");
  if (ci != nullptr && ci->text.find("./test") == std::string::npos) findings.push_back(".ci/run: does not run ./test");
  const SourceFile* readme = find("README.md");
  for (const std::string command : {"./run", "./test"}) {
    if (readme == nullptr || readme->text.find(command) == std::string::npos) {
      findings.push_back("README.md: does not show " + command);
    }
  }
  return findings;
}

Findings CheckSize(const std::vector<SourceFile>& files) {
  int64_t bytes = 0;
  for (const SourceFile& file : files) bytes += static_cast<int64_t>(file.text.size());
  if (bytes < kLargestTree) return {};
  return {"all files: " + std::to_string(bytes) + " bytes, below " + std::to_string(kLargestTree) + " expected"};
}

}  // namespace deepinfer::house
