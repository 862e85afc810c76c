#include "cache/io_ring.h"

#include <cerrno>
#include <cmath>

#include "base/clock.h"

namespace deepinfer {

std::unique_ptr<IoRing> IoRing::Create() {
  std::unique_ptr<IoRing> ring(new IoRing);
  if (io_uring_queue_init(kDepth, &ring->ring_, 0) != 0) {
    ring->ring_.ring_fd = -1;
    return nullptr;
  }
  return ring;
}

IoRing::~IoRing() {
  if (ring_.ring_fd >= 0) io_uring_queue_exit(&ring_);
}

bool IoRing::Push(IoPiece* piece) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) return false;
  const auto bytes = static_cast<unsigned>(piece->bytes - piece->done);
  const auto offset = static_cast<uint64_t>(piece->offset + piece->done);
  if (piece->write) {
    io_uring_prep_write(entry, piece->descriptor, piece->data + piece->done, bytes, offset);
  } else {
    io_uring_prep_read(entry, piece->descriptor, piece->data + piece->done, bytes, offset);
  }
  io_uring_sqe_set_data(entry, piece);
  ++in_flight_;
  return true;
}

void IoRing::Count(io_uring_cqe* entry) {
  auto* const piece = static_cast<IoPiece*>(io_uring_cqe_get_data(entry));
  const int64_t result = entry->res;
  io_uring_cqe_seen(&ring_, entry);
  --in_flight_;
  if (!EndsPiece(piece, result) && !Push(piece)) piece->error = EIO;
}

void IoRing::Submit() {
  while (next_ < pieces_.size() && in_flight_ < kDepth && Push(&pieces_[next_])) ++next_;
  // Entries that the kernel does not take now stay in the queue for the next round.
  if (in_flight_ > 0) io_uring_submit(&ring_);
}

void IoRing::Start(std::span<IoPiece> pieces) {
  pieces_ = pieces;
  next_ = 0;
  last_ = NowSeconds();
  Submit();
}

bool IoRing::Finish(double patience_seconds) {
  while (in_flight_ > 0) {
    io_uring_cqe* entry = nullptr;
    if (io_uring_peek_cqe(&ring_, &entry) != 0) {
      const double left = last_ + patience_seconds - NowSeconds();
      if (left <= 0) return false;
      __kernel_timespec limit = {};
      limit.tv_sec = static_cast<int64_t>(left);
      limit.tv_nsec = static_cast<int64_t>((left - std::floor(left)) * 1e9);
      Submit();
      if (io_uring_wait_cqe_timeout(&ring_, &entry, &limit) != 0) continue;
    }
    do {
      Count(entry);
    } while (in_flight_ > 0 && io_uring_peek_cqe(&ring_, &entry) == 0);
    last_ = NowSeconds();
    Submit();
  }
  return true;
}

bool IoRing::Drain() {
  io_uring_cqe* entry = nullptr;
  while (in_flight_ > 0 && io_uring_peek_cqe(&ring_, &entry) == 0) {
    io_uring_cqe_seen(&ring_, entry);
    --in_flight_;
  }
  return in_flight_ == 0;
}

}  // namespace deepinfer
