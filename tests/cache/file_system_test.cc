// The system's file system: with rings and without, past the page cache and not.
#include "cache/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <tuple>

#include "cache/io_ring.h"
#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

/// Rings, O_DIRECT.
class FileSystemTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  bool direct() const { return std::get<1>(GetParam()); }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::shared_ptr<File> Make(const std::string& name) {
    return files_->Open(Path(name), OpenMode::kCreate, direct()).value();
  }
  static void Fill(const IoMemory& memory, uint32_t seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < memory->size(); ++i) (*memory)[i] = static_cast<uint8_t>(random());
  }

  TemporaryFolder folder_;
  std::unique_ptr<FileSystem> files_ = MakePosixFileSystem({.rings = std::get<0>(GetParam())});
};

INSTANTIATE_TEST_SUITE_P(Ways, FileSystemTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Rings" : "Calls") +
                                  (std::get<1>(info.param) ? "Direct" : "Cached");
                         });

TEST_P(FileSystemTest, ManyOperationsInOneCall) {
  constexpr int64_t kBytes = 3 * (1 << 20) + 8192;  // several pieces
  constexpr int kFiles = 7;
  const IoMemory written = MakeIoMemory(kFiles * kBytes);
  const IoMemory read_back = MakeIoMemory(kFiles * kBytes);
  Fill(written, 1);
  std::vector<FileOperation> operations;
  for (int i = 0; i < kFiles; ++i) {
    operations.push_back({.kind = IoKind::kWrite,
                          .file = Make(std::to_string(i)),
                          .offset = 4096 * i,
                          .memory = written,
                          .memory_offset = i * kBytes,
                          .bytes = kBytes});
  }
  const std::unique_ptr<FileSystem::Transfer> transfer = files_->Start(operations);
  // Another list at the same time.
  FileOperation other{.kind = IoKind::kWrite, .file = Make("other"), .memory = written, .bytes = 8192};
  EXPECT_TRUE(files_->RunOne(&other).ok());
  transfer->Finish();
  transfer->Finish();
  for (FileOperation& operation : operations) {
    EXPECT_TRUE(operation.status.ok()) << operation.status.message();
    EXPECT_EQ(operation.done, kBytes);
    operation.kind = IoKind::kRead;
    operation.memory = read_back;
  }
  files_->Run(operations);
  for (const FileOperation& operation : operations) EXPECT_EQ(operation.done, kBytes);
  EXPECT_TRUE(
      std::ranges::equal(std::span(written->data(), kFiles * kBytes), std::span(read_back->data(), kFiles * kBytes)));
}

TEST_P(FileSystemTest, NothingToDoIsDone) {
  files_->Run({});
  files_->Start({})->Finish();
}

TEST_P(FileSystemTest, ReadsEndWhereTheFileEnds) {
  const std::shared_ptr<File> file = Make("a");
  const IoMemory memory = MakeIoMemory(4 << 20);
  Fill(memory, 1);
  FileOperation write{.kind = IoKind::kWrite, .file = file, .memory = memory, .bytes = 2 << 20};
  ASSERT_TRUE(files_->RunOne(&write).ok());
  for (const int64_t size :
       {int64_t{2} << 20, int64_t{1} << 20, int64_t{1500000}, int64_t{4096}, int64_t{5}, int64_t{0}}) {
    ASSERT_TRUE(files_->Truncate(*file, size).ok());
    FileOperation read{.file = file, .memory = memory, .bytes = 4 << 20};
    ASSERT_TRUE(files_->RunOne(&read).ok()) << read.status.message();
    EXPECT_EQ(read.done, size);
    FileOperation behind{.file = file, .offset = 8 << 20, .memory = memory, .bytes = 4096};
    ASSERT_TRUE(files_->RunOne(&behind).ok());
    EXPECT_EQ(behind.done, 0);
  }
}

TEST_P(FileSystemTest, NamesAndModes) {
  EXPECT_EQ(files_->Open(Path("none"), OpenMode::kRead, direct()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Open(Path("none/none"), OpenMode::kCreate, direct()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Info(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->List(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Unlink(Path("none")).code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Rename(Path("none"), Path("other")).code(), StatusCode::kNotFound);

  ASSERT_TRUE(files_->MakeFolder(Path("folder")).ok());
  ASSERT_TRUE(files_->MakeFolder(Path("folder")).ok());
  const std::shared_ptr<File> file = Make("b");
  EXPECT_EQ(files_->Open(Path("b"), OpenMode::kCreate, direct()).status().code(), StatusCode::kIo);
  struct stat info = {};
  ASSERT_EQ(stat(Path("b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(Path("folder").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  const std::vector<FolderEntry> entries = files_->List(folder_.path().string()).value();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_FALSE(entries[0].is_folder);
  EXPECT_TRUE(entries[1].is_folder);

  ASSERT_TRUE(files_->Rename(Path("b"), Path("folder/c")).ok());
  ASSERT_TRUE(files_->SyncFolder(Path("folder")).ok());
  EXPECT_EQ(files_->RemoveFolder(Path("folder")).code(), StatusCode::kIo);  // not empty
  EXPECT_EQ(files_->Info(*file)->links, 1);
  ASSERT_TRUE(files_->Unlink(Path("folder/c")).ok());
  EXPECT_EQ(files_->Info(*file)->links, 0);
  EXPECT_TRUE(files_->RemoveFolder(Path("folder")).ok());
}

// A FIFO that nobody writes to would keep the thread for ever.
TEST_P(FileSystemTest, OnlyRegularFilesAndFoldersAreThere) {
  ASSERT_TRUE(files_->MakeFolder(Path("folder")).ok());
  Make("file");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("file", Path("link").c_str()), 0);
  ASSERT_EQ(symlink("none", Path("dangling").c_str()), 0);
  ASSERT_EQ(symlink("folder", Path("folder link").c_str()), 0);
  for (const std::string name : {"fifo", "link", "dangling", "folder", "folder link"}) {
    for (const OpenMode mode : {OpenMode::kRead, OpenMode::kWrite, OpenMode::kCreate}) {
      EXPECT_EQ(files_->Open(Path(name), mode, direct()).status().code(), StatusCode::kIo) << name;
    }
  }
  for (const std::string name : {"file", "fifo", "link", "dangling", "folder link"}) {
    EXPECT_EQ(files_->MakeFolder(Path(name)).code(), StatusCode::kIo) << name;
    EXPECT_FALSE(files_->List(Path(name)).ok()) << name;
  }
  const std::vector<FolderEntry> entries = files_->List(folder_.path().string()).value();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "file");
  EXPECT_FALSE(entries[0].is_folder);
  EXPECT_EQ(entries[1].name, "folder");
  EXPECT_TRUE(entries[1].is_folder);
  // Who asks for what is behind the link gets it.
  EXPECT_TRUE(files_->MakeFolder(Path("folder link/")).ok());
  EXPECT_TRUE(files_->List(Path("folder link/")).ok());
  EXPECT_TRUE(files_->MakeFolder(Path("new/")).ok());
}

TEST_P(FileSystemTest, SizesAndTimes) {
  const std::shared_ptr<File> file = Make("a");
  ASSERT_TRUE(files_->Preallocate(*file, 100000).ok());
  EXPECT_EQ(files_->Info(*file)->bytes, 100000);
  ASSERT_TRUE(files_->Truncate(*file, 4096).ok());
  EXPECT_EQ(files_->Info(Path("a"))->bytes, 4096);
  const int64_t modified = files_->Info(*file)->modified;
  ASSERT_TRUE(files_->SetAccessed(*file, 12345).ok());
  ASSERT_TRUE(files_->Sync(*file).ok());
  EXPECT_EQ(files_->Info(*file)->accessed, 12345);
  EXPECT_EQ(files_->Info(*file)->modified, modified);
  // Reading does not change what SetAccessed said.
  FileOperation read{
      .file = files_->Open(Path("a"), OpenMode::kRead, direct()).value(), .memory = MakeIoMemory(4096), .bytes = 4096};
  ASSERT_TRUE(files_->RunOne(&read).ok());
  EXPECT_EQ(files_->Info(*file)->accessed, 12345);
}

TEST_P(FileSystemTest, OneOpenFileHoldsTheLock) {
  const std::shared_ptr<File> one = Make("a");
  std::shared_ptr<File> two = files_->Open(Path("a"), OpenMode::kWrite, direct()).value();
  EXPECT_TRUE(*files_->TryLock(*one));
  EXPECT_FALSE(*files_->TryLock(*two));
  EXPECT_EQ(files_->Lock(*two, 0.01).code(), StatusCode::kIo);
  files_->Unlock(*one);
  EXPECT_TRUE(files_->Lock(*two, 0.01).ok());
  EXPECT_FALSE(*files_->TryLock(*one));
  two = nullptr;  // closes it
  EXPECT_TRUE(*files_->TryLock(*one));
}

TEST_P(FileSystemTest, ErrorsAreOfTheirOperation) {
  const std::shared_ptr<File> good = Make("a");
  ASSERT_TRUE(files_->Preallocate(*good, 8192).ok());
  const std::shared_ptr<File> only_read = files_->Open(Path("a"), OpenMode::kRead, direct()).value();
  const IoMemory memory = MakeIoMemory(8192);
  FileOperation operations[3] = {
      {.kind = IoKind::kWrite, .file = good, .memory = memory, .bytes = 4096},
      {.kind = IoKind::kWrite, .file = only_read, .offset = 4096, .memory = memory, .bytes = 4096},
      {.kind = IoKind::kRead,
       .file = only_read,
       .offset = 4096,
       .memory = memory,
       .memory_offset = 4096,
       .bytes = 4096}};
  files_->Run(operations);
  EXPECT_TRUE(operations[0].status.ok());
  EXPECT_EQ(operations[1].status.code(), StatusCode::kIo);
  EXPECT_NE(operations[1].status.message().find(Path("a")), std::string::npos);
  EXPECT_TRUE(operations[2].status.ok());
}

TEST_P(FileSystemTest, ManyThreadsAtOnce) {
  const std::shared_ptr<File> file = Make("a");
  constexpr int64_t kBytes = 1 << 18;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      const IoMemory written = MakeIoMemory(kBytes);
      const IoMemory read_back = MakeIoMemory(kBytes);
      for (int round = 0; round < 8; ++round) {
        Fill(written, static_cast<uint32_t>(100 * thread + round));
        FileOperation operation{
            .kind = IoKind::kWrite, .file = file, .offset = thread * kBytes, .memory = written, .bytes = kBytes};
        if (!files_->RunOne(&operation).ok()) return;
        operation.kind = IoKind::kRead;
        operation.memory = read_back;
        if (!files_->RunOne(&operation).ok()) return;
        if (!std::equal(written->data(), written->data() + kBytes, read_back->data())) return;
      }
      ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6);
}

TEST_P(FileSystemTest, TextIsWrittenOnce) {
  ASSERT_TRUE(files_->WriteText(Path("text"), "one line\n").ok());
  EXPECT_EQ(ReadFile(Path("text")), "one line\n");
  EXPECT_EQ(files_->WriteText(Path("text"), "another").code(), StatusCode::kIo);
  EXPECT_EQ(ReadFile(Path("text")), "one line\n");
}

// A pipe never ends a read.
TEST(IoRing, AReadThatDoesNotEndGivesUp) {
  std::unique_ptr<IoRing> ring = IoRing::Create();
  if (ring == nullptr) GTEST_SKIP() << "the kernel refuses io_uring";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<uint8_t> bytes(10);
  IoPiece piece{.descriptor = ends[0], .offset = -1, .data = bytes.data(), .bytes = 10};
  ring->Start({&piece, 1});
  EXPECT_FALSE(ring->Finish(0.02));
  EXPECT_FALSE(ring->Drain());
  ASSERT_EQ(write(ends[1], "0123456789", 10), 10);
  while (!ring->Drain()) std::this_thread::yield();
  EXPECT_EQ(bytes[9], '9');
  close(ends[0]);
  close(ends[1]);
}

TEST(IoPiece, PartsAreContinuedAndEndsAreSeen) {
  IoPiece read{.bytes = 3 * 4096};
  EXPECT_FALSE(EndsPiece(&read, -EINTR));
  EXPECT_FALSE(EndsPiece(&read, 4096));
  EXPECT_TRUE(EndsPiece(&read, 0));
  EXPECT_EQ(read.done, 4096);
  EXPECT_EQ(read.error, 0);
  IoPiece odd{.bytes = 3 * 4096};
  EXPECT_TRUE(EndsPiece(&odd, 5000));
  EXPECT_EQ(odd.error, 0);
  IoPiece write{.write = true, .bytes = 3 * 4096};
  EXPECT_FALSE(EndsPiece(&write, 4096));
  EXPECT_TRUE(EndsPiece(&write, 0));
  EXPECT_EQ(write.error, EIO);
  IoPiece failed{.bytes = 4096};
  EXPECT_TRUE(EndsPiece(&failed, -ENOSPC));
  EXPECT_EQ(failed.error, ENOSPC);
}

}  // namespace
}  // namespace deepinfer::test
