#include "cache/io_thread.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/clock.h"
#include "cache/file_system.h"

namespace deepinfer {

bool EndsPiece(IoPiece* piece, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) {
    piece->error = static_cast<int>(-result);
    return true;
  }
  piece->done += result;
  if (piece->done == piece->bytes) return true;
  if (piece->write) {
    if (result == 0 || piece->done % kIoAlignment != 0) piece->error = EIO;
    return piece->error != 0;
  }
  // The end of the file; O_DIRECT cannot go on behind a part of a block, and nothing is there.
  return result == 0 || piece->done % kIoAlignment != 0;
}

void RunPiece(IoPiece* piece) {
  int64_t result = 0;
  do {
    const auto bytes = static_cast<size_t>(piece->bytes - piece->done);
    const int64_t offset = piece->offset + piece->done;
    uint8_t* const data = piece->data + piece->done;
    result =
        piece->write ? pwrite(piece->descriptor, data, bytes, offset) : pread(piece->descriptor, data, bytes, offset);
    if (result < 0) result = -errno;
  } while (!EndsPiece(piece, result));
}

std::unique_ptr<IoThread> IoThread::Create() {
  std::unique_ptr<IoThread> made(new IoThread);
  try {
    made->thread_ = std::thread([thread = made.get()] { thread->Loop(); });
  } catch (const std::system_error&) {
    return nullptr;
  }
  return made;
}

IoThread::~IoThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IoThread::Start(std::span<IoPiece> pieces) {
  {
    const std::lock_guard lock(mutex_);
    pieces_ = pieces;
    ended_ = 0;
    last_ = NowSeconds();
  }
  changed_.notify_all();
}

bool IoThread::Finish(double patience_seconds) {
  std::unique_lock lock(mutex_);
  while (ended_ < pieces_.size()) {
    const double left = last_ + patience_seconds - NowSeconds();
    if (left <= 0) {
      // What has not begun does not begin.
      pieces_ = pieces_.first(ended_ + 1);
      return false;
    }
    changed_.wait_for(lock, std::chrono::duration<double>(left));
  }
  return true;
}

bool IoThread::Drain() {
  const std::lock_guard lock(mutex_);
  return ended_ == pieces_.size();
}

void IoThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || ended_ < pieces_.size(); });
    if (stop_) return;
    IoPiece* const piece = &pieces_[ended_];
    lock.unlock();
    RunPiece(piece);
    lock.lock();
    ++ended_;
    last_ = NowSeconds();
    changed_.notify_all();
  }
}

}  // namespace deepinfer
