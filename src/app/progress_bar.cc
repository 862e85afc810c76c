#include "app/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/terminal.h"
#include "base/clock.h"

namespace deepinfer {
namespace {

constexpr int64_t kCells = 24;
constexpr double kInterval = 0.1;  // seconds
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(std::string label, int64_t total)
    : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) == 1), begin_(NowSeconds()) {}

ProgressBar::~ProgressBar() {
  if (last_ > 0) (void)WriteAll(2, kClearLine);
}

void ProgressBar::Update(int64_t done, std::string_view note) {
  const double now = NowSeconds();
  if (!shown_ || now - last_ < kInterval) return;
  last_ = now;
  (void)WriteAll(2, std::string(kClearLine) + Line(label_, done, total_, now - begin_, note));
}

std::string ProgressBar::Line(std::string_view label, int64_t done, int64_t total, double seconds,
                              std::string_view note) {
  const double share = total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  const auto cells = static_cast<int64_t>(share * kCells);
  std::string line =
      fmt::format("{} [{:<{}}] {}/{}", label, std::string(static_cast<size_t>(cells), '='), kCells, done, total);
  if (!note.empty()) line += fmt::format(" {}", note);
  if (share > 0 && share < 1) line += fmt::format(", {:.0f} s left", std::ceil(seconds * (1 - share) / share));
  return line;
}

}  // namespace deepinfer
