#include "cache/file_system.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/clock.h"

namespace deepinfer {

IoMemory MakeIoMemory(int64_t bytes) {
  auto memory = std::make_shared<AlignedBuffer<uint8_t>>();
  if (!memory->Allocate(bytes)) return nullptr;
  // The kernel looks up each page of a direct operation: a few large ones cost less.
  constexpr int64_t kLarge = int64_t{2} << 20;
  if (bytes >= kLarge) madvise(memory->data(), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return memory;
}

Status FileSystem::Lock(File& file, double seconds) {
  const double end = NowSeconds() + seconds;
  // Locks are held for milliseconds, so the first waits are short; flock itself has no deadline.
  auto wait = std::chrono::microseconds(100);
  while (true) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool locked, TryLock(file));
    if (locked) return Status::Ok();
    if (NowSeconds() > end) {
      return Status::Io(fmt::format("{}: another process holds the lock for {} s", file.path(), seconds));
    }
    std::this_thread::sleep_for(wait);
    wait = std::min(2 * wait, std::chrono::microseconds(10000));
  }
}

void FileSystem::Run(std::span<FileOperation> operations) { Start(operations)->Finish(); }

Status FileSystem::RunOne(FileOperation* operation) {
  Run({operation, 1});
  return operation->status;
}

Status FileSystem::WriteText(const std::string& path, std::string_view text) {
  DEEPINFER_ASSIGN_OR_RETURN(std::shared_ptr<File> file, Open(path, OpenMode::kCreate, false));
  const int64_t bytes = std::ssize(text);
  const int64_t whole = (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
  FileOperation write{.kind = IoKind::kWrite, .file = file, .memory = MakeIoMemory(whole), .bytes = whole};
  if (write.memory == nullptr) return Status::ResourceExhausted(path + ": no memory to write it");
  std::memcpy(write.memory->data(), text.data(), text.size());
  DEEPINFER_RETURN_IF_ERROR(RunOne(&write));
  DEEPINFER_RETURN_IF_ERROR(Truncate(*file, bytes));
  return Sync(*file);
}

}  // namespace deepinfer
