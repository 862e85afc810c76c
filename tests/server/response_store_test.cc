#include "server/response_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/app/temporary_folder.h"

namespace deepinfer {
namespace {

constexpr int64_t kDay = 86400;

StoredResponseRow Row(const std::string& id, const std::string& owner = "alice", int64_t created = 1'000'000) {
  return {.id = id,
          .owner = owner,
          .created = created,
          .previous_id = "",
          .model = "nano",
          .items_json = "[\"items of " + id + "\"]",
          .response_json = "{\"id\":\"" + id + "\"}"};
}

class ResponseStoreTest : public testing::Test {
 protected:
  std::unique_ptr<ResponseStore> Open() {
    auto store = ResponseStore::Open(options_);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(store).value() : nullptr;
  }
  Status OpenStatus() { return ResponseStore::Open(options_).status(); }

  static bool Has(ResponseStore& store, const std::string& id, const std::string& owner = "alice") {
    const auto found = store.Get(id, owner);
    EXPECT_TRUE(found.ok()) << found.status().message();
    const auto items = store.Items(id, owner);
    EXPECT_TRUE(items.ok() && items->has_value() == found->has_value());
    return found->has_value();
  }
  static void Put(ResponseStore& store, const StoredResponseRow& row) {
    const Status status = store.Put(row);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  /// Runs statements on the file, past the store.
  void Tamper(const std::string& sql) {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(options_.path.c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(handle);
    sqlite3_close(handle);
  }
  std::string FileText() const {
    std::ifstream stream(options_.path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }

  TemporaryFolder folder_;
  int64_t now_ = 1'000'000;
  ResponseStoreOptions options_{.path = (folder_.path() / "store" / "responses.db").string(),
                                .clock = [this] { return now_; }};
};

TEST_F(ResponseStoreTest, GivesBackWhatWasPut) {
  for (const std::string& path : std::vector<std::string>{options_.path, ":memory:"}) {
    options_.path = path;
    const auto store = Open();
    StoredResponseRow row = Row("resp_1");
    row.previous_id = "resp_0";
    row.items_json = std::string("[\"\xC3\xA4 \0 nul\"]", 12);
    row.response_json = std::string(3'000'000, 'x');
    Put(*store, row);
    const auto found = store->Get("resp_1", "alice");
    ASSERT_TRUE(found.ok() && found->has_value());
    EXPECT_EQ((*found)->id, "resp_1");
    EXPECT_EQ((*found)->owner, "alice");
    EXPECT_EQ((*found)->created, 1'000'000);
    EXPECT_EQ((*found)->previous_id, "resp_0");
    EXPECT_EQ((*found)->model, "nano");
    EXPECT_EQ((*found)->items_json, row.items_json);
    EXPECT_EQ((*found)->response_json, row.response_json);
    EXPECT_EQ(**store->Items("resp_1", "alice"), row.items_json);
    EXPECT_FALSE(Has(*store, "resp_2"));
  }
}

TEST_F(ResponseStoreTest, OwnersSeeOnlyTheirOwn) {
  const auto store = Open();
  Put(*store, Row("resp_1", "alice"));
  Put(*store, Row("resp_2", ""));
  EXPECT_FALSE(Has(*store, "resp_1", "bob"));
  EXPECT_FALSE(Has(*store, "resp_1", ""));
  EXPECT_FALSE(*store->Delete("resp_1", "bob"));
  EXPECT_TRUE(Has(*store, "resp_1", "alice"));
  EXPECT_TRUE(Has(*store, "resp_2", ""));
  // An id of someone else's is neither taken nor changed.
  StoredResponseRow same = Row("resp_1", "bob");
  same.model = "other";
  Put(*store, same);
  EXPECT_EQ((*store->Get("resp_1", "alice"))->model, "nano");
  EXPECT_EQ((*store->Get("resp_1", "bob"))->model, "other");
}

TEST_F(ResponseStoreTest, PutReplacesAndDeleteRemoves) {
  const auto store = Open();
  StoredResponseRow row = Row("resp_1");
  Put(*store, row);
  row.items_json = "[]";
  Put(*store, row);
  EXPECT_EQ(*store->count(), 1);
  EXPECT_EQ(*store->bytes(), static_cast<int64_t>(5 + 6 + 4 + 2 + row.response_json.size()));
  EXPECT_EQ(**store->Items("resp_1", "alice"), "[]");
  EXPECT_TRUE(*store->Delete("resp_1", "alice"));
  EXPECT_FALSE(*store->Delete("resp_1", "alice"));
  EXPECT_FALSE(Has(*store, "resp_1"));
  EXPECT_EQ(*store->count(), 0);
  EXPECT_EQ(*store->bytes(), 0);
}

TEST_F(ResponseStoreTest, KeepsOverRestartsAndOverwritesWhatIsDeleted) {
  Put(*Open(), Row("resp_kept"));
  {
    const auto store = Open();
    EXPECT_TRUE(Has(*store, "resp_kept"));
    Put(*store, Row("resp_gone"));
  }
  EXPECT_NE(FileText().find("items of resp_gone"), std::string::npos);
  EXPECT_TRUE(*Open()->Delete("resp_gone", "alice"));
  EXPECT_EQ(FileText().find("items of resp_gone"), std::string::npos);
  EXPECT_TRUE(Has(*Open(), "resp_kept"));
}

TEST_F(ResponseStoreTest, OldResponsesExpire) {
  options_.max_age_days = 30;
  auto store = Open();
  Put(*store, Row("resp_old", "alice", now_ - 30 * kDay));
  Put(*store, Row("resp_new", "alice", now_));
  EXPECT_TRUE(Has(*store, "resp_old"));
  ++now_;
  EXPECT_FALSE(Has(*store, "resp_old"));  // although it is still there
  EXPECT_EQ(*store->count(), 2);
  EXPECT_FALSE(*store->Delete("resp_old", "alice"));
  Put(*store, Row("resp_old", "alice", now_ - 31 * kDay));  // gone as it comes
  Put(*store, Row("resp_more", "alice", now_));
  EXPECT_EQ(*store->count(), 2);
  store.reset();
  now_ += 31 * kDay;
  EXPECT_EQ(*Open()->count(), 0);  // opening sweeps

  options_.max_age_days = 0;
  store = Open();
  Put(*store, Row("resp_ever", "alice", 1));
  EXPECT_TRUE(Has(*store, "resp_ever"));
}

TEST_F(ResponseStoreTest, TheOldestMakeRoom) {
  const auto sized = [](const std::string& id, int64_t created, size_t bytes) {
    StoredResponseRow row = Row(id, "a", created);
    row.model = row.items_json = "";
    row.response_json = std::string(bytes - 1 - id.size(), 'x');
    return row;
  };
  options_.max_bytes = 1000;
  options_.max_age_days = 0;
  auto store = Open();
  Put(*store, sized("r1", 30, 400));
  Put(*store, sized("r2", 10, 400));
  Put(*store, sized("r3", 20, 200));
  EXPECT_EQ(*store->bytes(), 1000);
  Put(*store, sized("r4", 40, 100));  // r2 is the oldest
  EXPECT_FALSE(Has(*store, "r2", "a"));
  EXPECT_EQ(*store->bytes(), 700);
  Put(*store, sized("r5", 5, 900));  // it stays although it is older than the others
  EXPECT_TRUE(Has(*store, "r5", "a"));
  EXPECT_TRUE(Has(*store, "r4", "a"));
  EXPECT_EQ(*store->bytes(), 1000);

  const Status refused = store->Put(sized("r6", 50, 1001));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), options_.path + ": a response of 1001 bytes is larger than the whole store, 1000 bytes");
  EXPECT_EQ(*store->count(), 2);

  store.reset();
  options_.max_bytes = 100;  // less than before: opening makes room
  EXPECT_TRUE(Has(*Open(), "r4", "a"));
  EXPECT_EQ(*Open()->bytes(), 100);
}

TEST_F(ResponseStoreTest, FolderAndFilesAreForTheOwnerAlone) {
  const mode_t before = umask(0);
  const auto store = Open();
  umask(before);
  Put(*store, Row("resp_1"));
  const auto mode = [](const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777u;
  };
  EXPECT_EQ(mode(std::filesystem::path(options_.path).parent_path()), 0700u);
  EXPECT_EQ(mode(options_.path), 0600u);
  EXPECT_EQ(mode(options_.path + "-wal"), 0600u);
}

TEST_F(ResponseStoreTest, FilesThatAreNoneOfOursAreRefused) {
  std::filesystem::create_directories(folder_.path() / "store");
  std::ofstream(options_.path) << std::string(4096, 'x');
  Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_EQ(status.message(), options_.path +
                                  ": damaged (file is not a database); move the file away, the next start makes a new "
                                  "one");
  EXPECT_EQ(FileText(), std::string(4096, 'x'));

  std::filesystem::remove(options_.path);
  Tamper("CREATE TABLE theirs (x)");
  status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), options_.path + ": a database of another program; give another file");

  options_.path = (folder_.path() / "store").string();
  EXPECT_EQ(OpenStatus().code(), StatusCode::kIo);
}

TEST_F(ResponseStoreTest, ANewerSchemaIsRefusedAndLeftAlone) {
  Put(*Open(), Row("resp_1"));
  Tamper("PRAGMA user_version = 7");
  const Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(), options_.path +
                                  ": written by a newer version of DeepInfer (schema 7, this one knows 1); update, or "
                                  "give another file");
  Tamper("PRAGMA user_version = 1");
  EXPECT_TRUE(Has(*Open(), "resp_1"));
}

TEST_F(ResponseStoreTest, DamageIsReportedWithTheRemedy) {
  {
    const auto store = Open();
    for (int i = 0; i < 200; ++i) {
      StoredResponseRow row = Row("resp_" + std::to_string(i));
      row.response_json = std::string(5000, 'y');
      Put(*store, row);
    }
  }
  std::string text = FileText();
  ASSERT_GT(text.size(), 100'000u);
  std::fill(text.begin() + 4096, text.end(), '\xA5');  // all but the first page
  std::ofstream(options_.path, std::ios::binary) << text;
  const Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("move the file away"), std::string::npos) << status.message();
  EXPECT_TRUE(status.message().starts_with(options_.path + ": ")) << status.message();
}

// Every response that Put has acknowledged is there after a kill, and nothing is there by half.
TEST_F(ResponseStoreTest, SurvivesKillNine) {
  for (int round = 0; round < 3; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = ResponseStore::Open(options_);
      for (int i = 0; store.ok(); ++i) {
        StoredResponseRow row = Row("resp_" + std::to_string(round) + "_" + std::to_string(i));
        row.response_json = std::string(20'000, static_cast<char>('a' + i % 26));
        if (!(*store)->Put(row).ok() || write(pipe_ends[1], &i, sizeof(i)) != sizeof(i)) break;
      }
      _exit(1);
    }
    close(pipe_ends[1]);
    int last = -1;
    for (int i = 0; last < 20 + 30 * round && read(pipe_ends[0], &i, sizeof(i)) == sizeof(i);) last = i;
    kill(child, SIGKILL);
    for (int i = 0; read(pipe_ends[0], &i, sizeof(i)) == sizeof(i);) last = i;
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    ASSERT_GE(last, 20);

    const auto store = Open();
    int64_t bytes = 0, count = 0;
    for (int r = 0; r <= round; ++r) {
      for (int i = 0; i < 10'000; ++i) {
        const auto found = store->Get("resp_" + std::to_string(r) + "_" + std::to_string(i), "alice");
        ASSERT_TRUE(found.ok());
        if (!found->has_value()) {
          EXPECT_TRUE(r < round || i > last) << i;
          break;
        }
        EXPECT_EQ((*found)->response_json, std::string(20'000, static_cast<char>('a' + i % 26)));
        ++count;
        bytes += static_cast<int64_t>(5 + 4 + (*found)->id.size() + (*found)->items_json.size() + 20'000);
      }
    }
    EXPECT_EQ(*store->count(), count);
    EXPECT_EQ(*store->bytes(), bytes);
  }
}

TEST_F(ResponseStoreTest, ThreadsAndStoresShareAFile) {
  const auto first = Open(), second = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ResponseStore& store = t % 2 == 0 ? *first : *second;
      for (int i = 0; i < 50; ++i) {
        const std::string id = "resp_" + std::to_string(t) + "_" + std::to_string(i);
        Put(store, Row(id));
        EXPECT_TRUE(Has(store, id));
        EXPECT_EQ(*store.Delete(i % 2 == 0 ? id : "none", "alice"), i % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*first->count(), 100);
  EXPECT_EQ(*second->count(), 100);
}

}  // namespace
}  // namespace deepinfer
