#include "text/marker_matcher.h"

#include <algorithm>

namespace deepinfer {

MarkerSet::MarkerSet(const std::vector<Marker>& markers) : nodes_(1), markers_(markers) {
  for (size_t index = 0; index < markers.size(); ++index) {
    const Marker& marker = markers[index];
    if (marker.text.empty()) continue;
    takes_newlines_ = takes_newlines_ || marker.takes_newlines;
    int32_t node = 0;
    for (const char c : marker.text) {
      const auto byte = static_cast<unsigned char>(c);
      int32_t child = Child(node, byte);
      if (child == 0) {
        child = static_cast<int32_t>(nodes_.size());
        Node& parent = nodes_[static_cast<size_t>(node)];
        Node made{.next_sibling = parent.first_child, .length = parent.length + 1, .byte = byte};
        parent.first_child = child;
        if (node == 0) first_bytes_[byte] = child;
        nodes_.push_back(made);
      }
      node = child;
      Node& reached = nodes_[static_cast<size_t>(node)];
      if (marker.takes_newlines) reached.newline_length = reached.length;
    }
    int32_t& completed = nodes_[static_cast<size_t>(node)].completed;
    if (completed == 0) completed = static_cast<int32_t>(index) + 1;
  }
  LinkShorter();
}

// Breadth first: what a node inherits comes from shorter ones.
void MarkerSet::LinkShorter() {
  std::vector<int32_t> queue;
  queue.reserve(nodes_.size());
  queue.push_back(0);
  for (size_t at = 0; at < queue.size(); ++at) {
    const int32_t parent = queue[at];
    for (int32_t child = nodes_[static_cast<size_t>(parent)].first_child; child != 0;
         child = nodes_[static_cast<size_t>(child)].next_sibling) {
      Node& node = nodes_[static_cast<size_t>(child)];
      if (parent != 0) node.shorter = Next(nodes_[static_cast<size_t>(parent)].shorter, node.byte);
      const Node& shorter = nodes_[static_cast<size_t>(node.shorter)];
      if (shorter.completed != 0 && (node.completed == 0 || shorter.completed < node.completed)) {
        node.completed = shorter.completed;
      }
      if (node.newline_length == 0) node.newline_length = shorter.newline_length;
      queue.push_back(child);
    }
  }
}

int32_t MarkerSet::Child(int32_t node, unsigned char byte) const {
  if (node == 0) return first_bytes_[byte];
  int32_t child = nodes_[static_cast<size_t>(node)].first_child;
  while (child != 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

int32_t MarkerSet::Next(int32_t node, unsigned char byte) const {
  int32_t next = Child(node, byte);
  while (next == 0 && node != 0) {
    node = nodes_[static_cast<size_t>(node)].shorter;
    next = Child(node, byte);
  }
  return next;
}

int MarkerMatcher::Step(char byte) {
  if (byte == '\n') {
    if (run_end_ != position_) run_begin_ = position_;
    run_end_ = position_ + 1;
  }
  ++position_;
  node_ = set_->Next(node_, static_cast<unsigned char>(byte));
  return set_->nodes_[static_cast<size_t>(node_)].completed - 1;
}

size_t MarkerMatcher::CompletedLength(int marker) const {
  const Marker& completed = set_->markers_[static_cast<size_t>(marker)];
  const size_t length = completed.text.size();
  return completed.takes_newlines ? length + NewlinesBefore(position_ - length) : length;
}

size_t MarkerMatcher::held() const {
  const MarkerSet::Node& node = set_->nodes_[static_cast<size_t>(node_)];
  if (!set_->takes_newlines_) return node.length;
  return std::max(node.length, node.newline_length + NewlinesBefore(position_ - node.newline_length));
}

}  // namespace deepinfer
