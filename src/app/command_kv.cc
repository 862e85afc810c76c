// kv ...: what is kept in the folder of a disk tier: counted, listed, checked, copied, thrown away.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "app/command.h"
#include "app/flags.h"
#include "app/kv_flags.h"
#include "app/progress_bar.h"
#include "app/terminal.h"
#include "base/machine.h"
#include "cache/disk_inspector.h"
#include "engine/kv_tiers.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

int64_t SystemSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What all of them share: the folder, and which segments are meant.
class KvCommand : public Command {
 public:
  void AddFlags(CLI::App& flags) override {
    AddPathFlag(flags, "--kv-disk,--kv-shared", &folder_, "DIR", "Folder of the tier")->required();
    flags.add_option("--namespace", name_space_, "Only of this model: the name of its folder, or how it begins")
        ->type_name("HEX");
    flags.add_option("--scope", scope_, "Only of this scope (model, replay mode and salt)")->type_name("HEX");
    salt_flag_ = flags.add_option("--salt", salt_, "Only what requests of this cache_salt have left; '' is no salt")
                     ->type_name("TEXT");
  }

  Status Check() override {
    if (folder_.find("://") != folder_.npos) {
      return Status::InvalidArgument(
          "--kv-shared: expected a folder; records in Redis are listed and deleted with redis-cli, and expire there");
    }
    for (const auto& [flag, text] : {std::pair("--namespace", &name_space_), std::pair("--scope", &scope_)}) {
      if (text->size() > 16 || text->find_first_not_of("0123456789abcdef") != text->npos) {
        return Status::InvalidArgument(
            fmt::format("{}: expected at most 16 digits of 0-9 and a-f, found '{}'", flag, *text));
      }
    }
    return Status::Ok();
  }

 protected:
  bool selects() const { return !name_space_.empty() || !scope_.empty() || salt_flag_->count() > 0; }

  Result<DiskInspector> Open() {
    files_ = MakePosixFileSystem();
    Result<DiskInspector> inspector = DiskInspector::Open(files_.get(), folder_);
    if (!inspector.ok()) {
      return Status(inspector.status().code(),
                    "--kv-disk: expected a folder that can be read: " + inspector.status().message());
    }
    const std::set<std::string>& unreadable = inspector->unreadable();
    if (!unreadable.empty()) {
      DEEPINFER_RETURN_IF_ERROR(
          WriteAll(2, fmt::format("deepinfer: {} files or folders cannot be read, such as {}; run "
                                  "this as their owner\n",
                                  unreadable.size(), *unreadable.begin())));
    }
    return inspector;
  }

  std::vector<SegmentOnDisk> Selected(const DiskInspector& inspector) const {
    std::vector<std::string> of_salt;
    if (salt_flag_->count() > 0) of_salt = inspector.ScopesOfSalt(salt_);
    // That is what the server makes of a request's own salt where its key has none.
    if (!salt_.empty()) std::ranges::copy(inspector.ScopesOfSalt("/" + salt_), std::back_inserter(of_salt));
    std::vector<SegmentOnDisk> selected;
    for (const SegmentOnDisk& segment : inspector.segments()) {
      if (!segment.name_space.starts_with(name_space_) || !segment.id.scope.starts_with(scope_)) continue;
      const std::string scope = segment.name_space + "/" + segment.id.scope;
      if (salt_flag_->count() > 0 && std::ranges::find(of_salt, scope) == of_salt.end()) continue;
      selected.push_back(segment);
    }
    return selected;
  }

  static Result<bool> IsFolder(const std::string& path) {
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(path, error);
    if (error && error != std::errc::no_such_file_or_directory) return Status::Io(path + ": " + error.message());
    return is_folder;
  }

  /// Calls `visit` for each, with a progress bar.
  static Status ForEach(const std::string& label, const std::vector<SegmentOnDisk>& segments,
                        const std::function<Status(const SegmentOnDisk& segment)>& visit) {
    ProgressBar bar(label, std::ssize(segments));
    int64_t done = 0;
    for (const SegmentOnDisk& segment : segments) {
      DEEPINFER_RETURN_IF_ERROR(visit(segment));
      bar.Update(++done);
    }
    return Status::Ok();
  }

  static std::string NameOf(const SegmentOnDisk& segment) {
    return fmt::format("{}/{}/{}", segment.name_space, segment.id.scope, FileName(segment.id, segment.sealed));
  }

  /// Seconds since 1970 of the last second of its records.
  static int64_t EndOf(const SegmentOnDisk& segment) { return segment.id.expiry_day * kSecondsPerDay; }

  /// Removes them and says what has become free.
  static Result<int> RemoveAll(const DiskInspector& inspector, const std::vector<SegmentOnDisk>& segments) {
    int64_t bytes = 0;
    DEEPINFER_RETURN_IF_ERROR(ForEach("removing", segments, [&](const SegmentOnDisk& segment) {
      bytes += segment.info.bytes;
      return inspector.Remove(segment);
    }));
    DEEPINFER_RETURN_IF_ERROR(
        WriteAll(1, fmt::format("removed {} segments, {}\n", segments.size(), HumanBytes(bytes))));
    return kExitOk;
  }

  std::string folder_;

 private:
  std::string name_space_;
  std::string scope_;
  std::string salt_;
  CLI::Option* salt_flag_ = nullptr;
  std::unique_ptr<FileSystem> files_;
};

class KvStatsCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv stats"; }
  std::string_view summary() const override { return "Count what a disk tier keeps, by model and scope"; }
  void AddFlags(CLI::App& flags) override {
    KvCommand::AddFlags(flags);
    flags.add_flag("--json", json_, "As JSON");
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    std::map<std::pair<std::string, std::string>, Sum> sums;
    DEEPINFER_RETURN_IF_ERROR(ForEach("reading", Selected(inspector), [&](const SegmentOnDisk& segment) {
      const Result<SegmentFacts> facts = inspector.Look(segment);
      if (facts.status().code() == StatusCode::kNotFound) return Status::Ok();
      if (!facts.ok()) return facts.status();
      Sum& sum = sums[{segment.name_space, segment.id.scope}];
      ++sum.segments;
      sum.bytes += segment.info.bytes;
      sum.unknown += facts->state == SegmentState::kGood || facts->state == SegmentState::kEmpty ? 0 : 1;
      sum.blocks += facts->blocks;
      sum.rings += facts->rings;
      sum.tokens += facts->tokens;
      return Status::Ok();
    }));
    Json scopes = Json::array();
    std::string text;
    for (const auto& [key, sum] : sums) {
      const KvNamespace* const name_space = inspector.FindNamespace(key.first);
      scopes.push_back(
          {{"namespace", key.first},
           {"description", name_space == nullptr ? Json() : Json::parse(name_space->description, nullptr, false)},
           {"scope", key.second},
           {"segments", sum.segments},
           {"blocks", sum.blocks},
           {"rings", sum.rings},
           {"tokens", sum.tokens},
           {"bytes", sum.bytes},
           {"unreadable_segments", sum.unknown}});
      text += fmt::format("{}/{}: {} tokens in {} blocks, {} rings, {} segments, {}{}\n", key.first, key.second,
                          sum.tokens, sum.blocks, sum.rings, sum.segments, HumanBytes(sum.bytes),
                          sum.unknown > 0 ? fmt::format(", {} of another version or damaged", sum.unknown) : "");
    }
    if (json_) text = Json{{"bytes", inspector.bytes()}, {"scopes", scopes}}.dump(2) + "\n";
    if (!json_) text += fmt::format("{} in the folder\n", HumanBytes(inspector.bytes()));
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, text));
    return kExitOk;
  }

 private:
  struct Sum {
    int64_t segments = 0;
    int64_t unknown = 0;
    int64_t blocks = 0;
    int64_t rings = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;
  };
  bool json_ = false;
};

class KvListCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv list"; }
  std::string_view summary() const override { return "List the segments of a disk tier"; }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    const int64_t now = SystemSeconds();
    for (const SegmentOnDisk& segment : Selected(inspector)) {
      const Result<SegmentFacts> facts = inspector.Look(segment);
      if (facts.status().code() == StatusCode::kNotFound) continue;
      DEEPINFER_RETURN_IF_ERROR(facts.status());
      const double hours = static_cast<double>(EndOf(segment) - now) / 3600;
      DEEPINFER_RETURN_IF_ERROR(WriteAll(
          1,
          fmt::format("{}  {:>10}  {:>8} tokens  {:>4} rings  {}{}\n", NameOf(segment), HumanBytes(segment.info.bytes),
                      facts->tokens, facts->rings, hours > 0 ? fmt::format("gone in {:.0f} h", hours) : "expired",
                      facts->state == SegmentState::kGood || facts->state == SegmentState::kEmpty
                          ? ""
                          : "  of another version or damaged")));
    }
    return kExitOk;
  }
};

class KvVerifyCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv verify"; }
  std::string_view summary() const override { return "Read everything that a disk tier keeps and check it"; }
  void AddFlags(CLI::App& flags) override {
    KvCommand::AddFlags(flags);
    AddPathFlag(flags, "--kv-key-file", &key_file_, "FILE", "The key, where records are encrypted");
  }

  Result<int> Run() override {
    std::optional<KvKey> secret;
    if (!key_file_.empty()) {
      const Result<KvKey> read = ReadKvSecret(key_file_);
      if (!read.ok()) return NameFlags(read.status());
      secret = *read;
    }
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    SegmentCheck sum;
    int64_t skipped = 0;
    int64_t locked = 0;  // segments of another key
    std::string text;
    DEEPINFER_RETURN_IF_ERROR(ForEach("checking", Selected(inspector), [&](const SegmentOnDisk& segment) {
      const KvNamespace* const name_space = inspector.FindNamespace(segment.name_space);
      if (name_space == nullptr) {
        ++skipped;
        return Status::Ok();
      }
      if (secret.has_value() && !MayBeEncryptedWith(*secret, *name_space)) {
        ++locked;
        return Status::Ok();
      }
      const Result<SegmentCheck> check = inspector.Verify(segment, secret);
      if (check.status().code() == StatusCode::kNotFound) return Status::Ok();
      if (!check.ok()) return check.status();
      sum.good += check->good;
      sum.bad += check->bad;
      skipped += check->foreign ? 1 : 0;
      if (check->bad > 0) text += fmt::format("{}: {} bad records\n", NameOf(segment), check->bad);
      return Status::Ok();
    }));
    text += fmt::format("{} good records, {} bad", sum.good, sum.bad);
    if (skipped > 0) text += fmt::format("; {} segments of another version were left alone", skipped);
    if (locked > 0) {
      text += fmt::format("; {} segments are encrypted with another key than that of --kv-key-file and were not read",
                          locked);
    }
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, text + "\n"));
    // What could not be read is not known to be good.
    return sum.bad == 0 && locked == 0 && inspector.unreadable().empty() ? kExitOk : kExitError;
  }

 private:
  std::string key_file_;
};

class KvExportCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv export"; }
  std::string_view summary() const override { return "Copy sealed segments into another folder"; }
  void AddFlags(CLI::App& flags) override {
    KvCommand::AddFlags(flags);
    AddPathFlag(flags, "--to", &to_, "DIR", "Folder that gets them; an engine can use it as --kv-disk")->required();
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(KvCommand::Check());
    std::error_code error;  // one of them does not exist: Run says so
    if (!std::filesystem::equivalent(to_, folder_, error)) return Status::Ok();
    return Status::InvalidArgument("--to: expected another folder than that of --kv-disk");
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    DEEPINFER_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(to_));
    if (!is_folder) return Status::NotFound(fmt::format("--to: expected a folder that exists, found '{}'", to_));
    int64_t copied = 0;
    int64_t left = 0;
    DEEPINFER_RETURN_IF_ERROR(ForEach("copying", Selected(inspector), [&](const SegmentOnDisk& segment) {
      if (!segment.sealed || inspector.FindNamespace(segment.name_space) == nullptr) {
        ++left;
        return Status::Ok();
      }
      const Status status = inspector.Export(segment, to_);
      if (status.code() == StatusCode::kNotFound) return Status::Ok();
      ++copied;
      return status;
    }));
    DEEPINFER_RETURN_IF_ERROR(WriteAll(
        1, fmt::format("copied {} segments, left {} that are being written or of another version\n", copied, left)));
    return kExitOk;
  }

 private:
  std::string to_;
};

class KvPruneCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv prune"; }
  std::string_view summary() const override { return "Remove what has expired, or what was used least recently"; }
  void AddFlags(CLI::App& flags) override {
    KvCommand::AddFlags(flags);
    to_flag_ = AddGibFlag(flags, "--to-gib", &to_bytes_, "Remove the least recently used until so much is left");
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    std::vector<SegmentOnDisk> segments = Selected(inspector);
    std::ranges::stable_sort(segments, {}, [](const SegmentOnDisk& segment) { return segment.info.accessed; });
    const int64_t now = SystemSeconds();
    int64_t left = 0;
    for (const SegmentOnDisk& segment : segments) left += segment.info.bytes;
    std::vector<SegmentOnDisk> doomed;
    for (const bool expired : {true, false}) {
      for (const SegmentOnDisk& segment : segments) {
        if (expired != (EndOf(segment) <= now)) continue;
        if (!expired && (to_flag_->count() == 0 || left <= to_bytes_)) continue;
        left -= segment.info.bytes;
        doomed.push_back(segment);
      }
    }
    return RemoveAll(inspector, doomed);
  }

 private:
  int64_t to_bytes_ = 0;
  CLI::Option* to_flag_ = nullptr;
};

class KvDeleteCommand : public KvCommand {
 public:
  std::string_view name() const override { return "kv delete"; }
  std::string_view summary() const override {
    return "Remove what a model, a scope or a salt has left, or what is old";
  }
  void AddFlags(CLI::App& flags) override {
    KvCommand::AddFlags(flags);
    older_flag_ = AddDurationFlag(flags, "--older-than", &older_seconds_, "Only segments begun longer ago, such as 2d");
    flags.add_flag("--all", all_, "Everything");
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(KvCommand::Check());
    if (all_ || selects() || older_flag_->count() > 0) return Status::Ok();
    return Status::InvalidArgument("say what to remove: --namespace, --scope, --salt, --older-than or --all");
  }

  Result<int> Run() override {
    DEEPINFER_ASSIGN_OR_RETURN(const DiskInspector inspector, Open());
    std::vector<SegmentOnDisk> doomed;
    const int64_t before = SystemSeconds() - older_seconds_;
    for (const SegmentOnDisk& segment : Selected(inspector)) {
      if (older_flag_->count() > 0) {
        const Result<SegmentFacts> facts = inspector.Look(segment);
        if (!facts.ok() || facts->created == 0 || facts->created > before) continue;
      }
      doomed.push_back(segment);
    }
    return RemoveAll(inspector, doomed);
  }

 private:
  int64_t older_seconds_ = 0;
  CLI::Option* older_flag_ = nullptr;
  bool all_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Command>> MakeKvCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(std::make_unique<KvStatsCommand>());
  commands.push_back(std::make_unique<KvListCommand>());
  commands.push_back(std::make_unique<KvVerifyCommand>());
  commands.push_back(std::make_unique<KvExportCommand>());
  commands.push_back(std::make_unique<KvPruneCommand>());
  commands.push_back(std::make_unique<KvDeleteCommand>());
  return commands;
}

}  // namespace deepinfer
