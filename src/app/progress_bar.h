// ProgressBar: one line on standard error that says how far a long run is; nothing unless that is a terminal.
//
// Thread-safety: one thread. Ownership: none; the line is cleared at the end.
#ifndef DEEPINFER_APP_PROGRESS_BAR_H_
#define DEEPINFER_APP_PROGRESS_BAR_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows it, at most ten times a second.
  void Update(int64_t done, std::string_view note = {});

  /// "label [=====     ] 12/24 note", `seconds` after the start with the time that is left.
  static std::string Line(std::string_view label, int64_t done, int64_t total, double seconds, std::string_view note);

 private:
  const std::string label_;
  const int64_t total_;
  const bool shown_;
  const double begin_;
  double last_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_PROGRESS_BAR_H_
