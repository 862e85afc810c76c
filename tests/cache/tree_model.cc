#include "tree_model.h"

#include <algorithm>

namespace deepinfer::test {

int32_t TreeModel::Find(const std::string& name_space, const std::vector<int32_t>& prefix) const {
  for (const auto& [id, node] : nodes) {
    if (node.name_space == name_space && node.prefix == prefix) return id;
  }
  return -1;
}

std::vector<int32_t> TreeModel::Match(const std::string& name_space, const std::vector<int32_t>& ids) const {
  std::vector<int32_t> path;
  for (size_t length = block_tokens_; length <= ids.size(); length += block_tokens_) {
    const int32_t id = Find(name_space, {ids.begin(), ids.begin() + static_cast<int64_t>(length)});
    if (id < 0) break;
    path.push_back(id);
  }
  return path;
}

void TreeModel::Insert(int32_t id, const std::string& name_space, int32_t parent,
                       const std::vector<int32_t>& block_ids) {
  Node node{.name_space = name_space, .prefix = {}, .parent = parent, .use = ++clock_};
  if (parent >= 0) node.prefix = nodes[parent].prefix;
  node.prefix.insert(node.prefix.end(), block_ids.begin(), block_ids.end());
  nodes[id] = node;
}

void TreeModel::Touch(int32_t id) {
  std::vector<int32_t> path;
  for (; id >= 0; id = nodes[id].parent) path.push_back(id);
  for (auto deeper = path.rbegin(); deeper != path.rend(); ++deeper) nodes[*deeper].use = ++clock_;
}

void TreeModel::Attach(int32_t id, int32_t snapshot) {
  nodes[id].snapshot = snapshot;
  UseSnapshot(id);
}

bool TreeModel::HasChildren(int32_t id) const {
  return std::ranges::any_of(nodes, [id](const auto& entry) { return entry.second.parent == id; });
}

bool TreeModel::Evictable(int32_t id) const {
  if (nodes.at(id).pins > 0) return false;
  return std::ranges::all_of(nodes,
                             [&](const auto& entry) { return entry.second.parent != id || Evictable(entry.first); });
}

int64_t TreeModel::EvictableCount() const {
  return std::ranges::count_if(nodes, [&](const auto& entry) { return Evictable(entry.first); });
}

int32_t TreeModel::OldestLeaf() const {
  int32_t oldest = -1;
  for (const auto& [id, node] : nodes) {
    if (node.pins > 0 || HasChildren(id)) continue;
    if (oldest < 0 || node.use < nodes.at(oldest).use) oldest = id;
  }
  return oldest;
}

int32_t TreeModel::OldestSnapshot() const {
  int32_t oldest = -1;
  for (const auto& [id, node] : nodes) {
    if (node.snapshot < 0 || node.snapshot_pins > 0) continue;
    if (oldest < 0 || node.snapshot_use < nodes.at(oldest).snapshot_use) oldest = id;
  }
  return oldest;
}

std::set<std::string> TreeModel::Namespaces() const {
  std::set<std::string> names;
  for (const auto& [id, node] : nodes) names.insert(node.name_space);
  return names;
}

}  // namespace deepinfer::test
