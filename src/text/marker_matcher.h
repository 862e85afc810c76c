// MarkerMatcher: finds the first of several markers to complete in a stream of bytes, and tells how much of the
// stream's end could still begin one.
//
// Invariants: (1) the marker that completes first wins; on the same byte the one listed first; (2) held() is the
// longest end of what was stepped over that begins a marker, or that is the run of newlines before one; (3) n bytes
// take O(n) steps for any markers and any bytes (Aho-Corasick), and the matcher is a few words however much is held.
// Thread-safety: a MarkerSet is immutable; a matcher belongs to one thread. Ownership: a matcher points to its set,
// which must outlive it. Errors: none.
#ifndef DEEPINFER_TEXT_MARKER_MATCHER_H_
#define DEEPINFER_TEXT_MARKER_MATCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer {

struct Marker {
  std::string text;  ///< an empty one never completes
  /// The unbroken run of newlines directly before the marker belongs to it; `text` then has none itself.
  bool takes_newlines = false;
};

class MarkerSet {
 public:
  explicit MarkerSet(const std::vector<Marker>& markers);

 private:
  friend class MarkerMatcher;

  // A node is a beginning of some marker; node 0 is the empty one.
  struct Node {
    int32_t first_child = 0;  // 0: none
    int32_t next_sibling = 0;
    int32_t shorter = 0;    // its longest proper end that is a node too
    int32_t completed = 0;  // 1 + the index of the first marker listed that ends here; 0: none
    size_t length = 0;
    size_t newline_length = 0;  // of its longest end that begins a marker which takes newlines
    unsigned char byte = 0;     // the last one
  };

  int32_t Child(int32_t node, unsigned char byte) const;
  int32_t Next(int32_t node, unsigned char byte) const;
  void LinkShorter();

  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_bytes_{};  // the children of node 0: most bytes begin no marker
  std::vector<Marker> markers_;
  bool takes_newlines_ = false;  // some marker does
};

class MarkerMatcher {
 public:
  static constexpr int kNone = -1;

  explicit MarkerMatcher(const MarkerSet* set) : set_(set) {}

  /// Steps over one byte; the index of the marker that it completes, else kNone.
  int Step(char byte);

  /// Length of a marker that the last byte completed, with the newlines that belong to it.
  size_t CompletedLength(int marker) const;

  /// How many of the last bytes may still become a marker.
  size_t held() const;

 private:
  size_t NewlinesBefore(size_t position) const { return position == run_end_ ? run_end_ - run_begin_ : 0; }

  const MarkerSet* set_;
  int32_t node_ = 0;
  size_t position_ = 0;   // bytes stepped over
  size_t run_begin_ = 0;  // of the latest run of newlines
  size_t run_end_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_MARKER_MATCHER_H_
