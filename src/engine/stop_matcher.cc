#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Feed(std::string_view bytes) {
  if (matched_ != nullptr) return {};
  if (stops_.empty()) return std::string(bytes);

  const size_t first_new = held_.size();
  held_ += bytes;
  const std::string_view text = held_;
  for (size_t end = first_new + 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops_) {
      if (!text.substr(0, end).ends_with(stop)) continue;
      matched_ = &stop;
      std::string released(text.substr(0, end - stop.size()));
      held_.clear();
      return released;
    }
  }

  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > keep; --length) {
      if (text.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string released = held_.substr(0, held_.size() - keep);
  held_.erase(0, released.size());
  return released;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace deepinfer
