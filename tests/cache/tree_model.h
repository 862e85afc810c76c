// TreeModel: a prefix tree by brute force, what PrefixTree is compared with. Every question is answered by looking at
// all nodes.
//
// Thread-safety: one thread. Ownership: values.
#ifndef DEEPINFER_TESTS_CACHE_TREE_MODEL_H_
#define DEEPINFER_TESTS_CACHE_TREE_MODEL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace deepinfer::test {

class TreeModel {
 public:
  struct Node {
    std::string name_space;
    std::vector<int32_t> prefix;  // ids from the root to this node's end
    int32_t parent = -1;
    uint64_t use = 0;
    int32_t pins = 0;
    int32_t snapshot = -1;
    int32_t snapshot_pins = 0;
    uint64_t snapshot_use = 0;
  };

  explicit TreeModel(int64_t block_tokens) : block_tokens_(static_cast<size_t>(block_tokens)) {}

  std::vector<int32_t> Match(const std::string& name_space, const std::vector<int32_t>& ids) const;
  /// The node with this prefix, -1: none.
  int32_t Find(const std::string& name_space, const std::vector<int32_t>& prefix) const;
  void Insert(int32_t id, const std::string& name_space, int32_t parent, const std::vector<int32_t>& block_ids);
  void Touch(int32_t id);
  void Attach(int32_t id, int32_t snapshot);
  void UseSnapshot(int32_t id) { nodes[id].snapshot_use = ++clock_; }

  bool HasChildren(int32_t id) const;
  /// No pin here or below.
  bool Evictable(int32_t id) const;
  int64_t EvictableCount() const;
  /// The next victim of each kind, -1: none.
  int32_t OldestLeaf() const;
  int32_t OldestSnapshot() const;
  std::set<std::string> Namespaces() const;

  std::map<int32_t, Node> nodes;

 private:
  size_t block_tokens_;
  uint64_t clock_ = 0;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_CACHE_TREE_MODEL_H_
