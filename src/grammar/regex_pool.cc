#include "grammar/regex_pool.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int kMaxHeight = 2000;
constexpr size_t kMaxPartsPerNode = 8;  // on average, over a whole pool
constexpr size_t kMaxLiveSearch = 100'000;
constexpr uint64_t kDerivativeWork = 12;
constexpr int kMaxFactors = 1000;
constexpr int kLowCount = 16;  // tokens hold more

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCDULL;
}

/// The sorted `strings` from byte `depth` on, as a tree by common beginnings: one branch per byte, however many.
RegexId TreeOf(std::span<const std::string> strings, size_t depth, RegexPool* pool) {
  const std::string& first = strings.front();
  if (strings.size() == 1) return pool->Text(std::string_view(first).substr(depth));
  const size_t common = static_cast<size_t>(std::ranges::mismatch(first, strings.back()).in1 - first.begin());
  if (common > depth) {
    return pool->Concat(pool->Text(std::string_view(first).substr(depth, common - depth)),
                        TreeOf(strings, common, pool));
  }
  std::vector<RegexId> ways;
  if (first.size() == depth) {
    ways.push_back(RegexPool::kEmptyText);
    strings = strings.subspan(1);
  }
  while (!strings.empty()) {
    size_t count = 1;
    while (count < strings.size() && strings[count][depth] == strings[0][depth]) ++count;
    ways.push_back(TreeOf(strings.first(count), depth, pool));
    strings = strings.subspan(count);
  }
  return pool->Or(std::move(ways));
}

}  // namespace

RegexPool::RegexPool(size_t max_nodes) : max_nodes_(max_nodes) {
  table_.assign(64, -1);
  Node nothing;
  Intern(nothing, {});
  Node empty;
  empty.op = Op::kEmptyText;
  empty.nullable = true;
  Intern(empty, {});
  Node anything;
  anything.op = Op::kNot;
  anything.nullable = true;
  anything.a = kNothing;
  Intern(anything, {});
}

RegexPool::RegexPool(const RegexPool* base, size_t max_nodes)
    : base_(base),
      base_size_(static_cast<RegexId>(base->size())),
      base_sets_(base->base_sets_ + static_cast<int32_t>(base->sets_.size())),
      max_nodes_(max_nodes) {
  table_.assign(64, -1);
  classes_ = base->classes_;
}

std::span<const RegexId> RegexPool::Parts(RegexId id) const {
  if (id < base_size_) return base_->Parts(id);
  const Node& node = At(id);
  return {parts_.data() + node.a, static_cast<size_t>(node.b)};
}

const ByteSet& RegexPool::SetOf(const Node& node) const {
  return node.a < base_sets_ ? base_->SetOf(node) : sets_[static_cast<size_t>(node.a - base_sets_)];
}

uint64_t RegexPool::HashOf(const Node& node, std::span<const RegexId> parts) const {
  uint64_t hash = static_cast<uint64_t>(node.op);
  if (node.op == Op::kOr || node.op == Op::kAnd) {
    for (const RegexId part : parts) hash = Mix(hash, static_cast<uint64_t>(part));
    return hash;
  }
  hash = Mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(node.a)));
  hash = Mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(node.b)));
  hash = Mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(node.c)));
  return Mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(node.d)));
}

RegexId RegexPool::Find(uint64_t hash, const Node& node, std::span<const RegexId> parts) const {
  const size_t mask = table_.size() - 1;
  for (size_t slot = hash & mask; table_[slot] >= 0; slot = (slot + 1) & mask) {
    const RegexId id = table_[slot];
    const Node& other = At(id);
    if (other.op != node.op) continue;
    if (node.op == Op::kOr || node.op == Op::kAnd) {
      if (std::ranges::equal(Parts(id), parts)) return id;
    } else if (other.a == node.a && other.b == node.b && other.c == node.c && other.d == node.d) {
      return id;
    }
  }
  return -1;
}

RegexId RegexPool::Intern(Node node, std::span<const RegexId> parts) {
  AddWork(2 + 2 * parts.size());
  const uint64_t hash = HashOf(node, parts);
  if (base_ != nullptr) {
    const RegexId id = base_->Find(hash, node, parts);
    if (id >= 0) return id;
  }
  const RegexId known = Find(hash, node, parts);
  if (known >= 0) return known;
  if (exhausted_ || nodes_.size() >= max_nodes_ || parts_.size() + parts.size() > max_nodes_ * kMaxPartsPerNode ||
      node.height > kMaxHeight) {
    exhausted_ = true;
    return kNothing;
  }
  const auto id = static_cast<RegexId>(size());
  if (node.op == Op::kOr || node.op == Op::kAnd) {
    node.a = static_cast<int32_t>(parts_.size());
    node.b = static_cast<int32_t>(parts.size());
    parts_.insert(parts_.end(), parts.begin(), parts.end());
  }
  nodes_.push_back(node);
  if (nodes_.size() * 2 > table_.size()) {
    table_.assign(table_.size() * 4, -1);
    const size_t mask = table_.size() - 1;
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      const auto old = static_cast<RegexId>(base_size_ + static_cast<RegexId>(i));
      const bool set = nodes_[i].op == Op::kOr || nodes_[i].op == Op::kAnd;
      size_t slot = HashOf(nodes_[i], set ? Parts(old) : std::span<const RegexId>()) & mask;
      while (table_[slot] >= 0) slot = (slot + 1) & mask;
      table_[slot] = old;
    }
  }
  const size_t mask = table_.size() - 1;
  size_t slot = hash & mask;
  while (table_[slot] >= 0) slot = (slot + 1) & mask;
  table_[slot] = id;
  return id;
}

int32_t RegexPool::InternSet(const ByteSet& set) {
  for (const RegexPool* pool = this; pool != nullptr; pool = pool->base_) {
    for (size_t i = 0; i < pool->sets_.size(); ++i) {
      if (pool->sets_[i] == set) return pool->base_sets_ + static_cast<int32_t>(i);
    }
  }
  sets_.push_back(set);
  return base_sets_ + static_cast<int32_t>(sets_.size()) - 1;
}

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.Empty()) return kNothing;
  Node node;
  node.op = Op::kBytes;
  node.height = 1;
  node.a = InternSet(set);
  return Intern(node, {});
}

RegexId RegexPool::Text(std::string_view text) {
  RegexId result = kEmptyText;
  for (size_t i = text.size(); i > 0; --i) {
    const auto byte = static_cast<uint8_t>(text[i - 1]);
    result = Concat(Bytes(ByteSet::Range(byte, byte)), result);
  }
  return result;
}

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmptyText) return second;
  if (second == kEmptyText) return first;
  if (At(first).op == Op::kConcat) {
    // To the right, so that equal texts are equal trees. Iterative: literals are long.
    std::vector<RegexId> heads;
    while (At(first).op == Op::kConcat) {
      heads.push_back(At(first).a);
      first = At(first).b;
    }
    RegexId result = Concat(first, second);
    for (size_t i = heads.size(); i > 0; --i) result = Concat(heads[i - 1], result);
    return result;
  }
  const Node& a = At(first);
  const Node& b = At(second);
  Node node;
  node.op = Op::kConcat;
  node.nullable = a.nullable && b.nullable;
  node.plain = a.plain && b.plain;
  node.counted = a.counted || b.counted;
  node.height = static_cast<uint16_t>(std::max(a.height, a.nullable ? b.height : uint16_t{0}) + 1);
  node.a = first;
  node.b = second;
  return Intern(node, {});
}

RegexId RegexPool::Sequence(std::initializer_list<RegexId> parts) {
  RegexId result = kEmptyText;
  for (auto part = std::rbegin(parts); part != std::rend(parts); ++part) result = Concat(*part, result);
  return result;
}

RegexId RegexPool::AnyOfTexts(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kNothing : TreeOf(texts, 0, this);
}

RegexId RegexPool::Either(std::vector<RegexId> parts, int depth) {
  if (parts.size() <= kFewWays || depth >= kMaxFactors) return Or(std::move(parts));
  std::ranges::stable_sort(parts, {}, [this](RegexId part) { return HeadOf(part); });
  std::vector<RegexId> ways;
  for (size_t begin = 0; begin < parts.size();) {
    const RegexId head = HeadOf(parts[begin]);
    size_t end = begin;
    std::vector<RegexId> rests;
    for (; end < parts.size() && HeadOf(parts[end]) == head; ++end) {
      rests.push_back(At(parts[end]).op == Op::kConcat ? At(parts[end]).b : kEmptyText);
    }
    if (end - begin == 1) {
      ways.push_back(parts[begin]);
    } else {
      ways.push_back(Concat(head, Either(std::move(rests), depth + 1)));
    }
    begin = end;
  }
  return Or(std::move(ways));
}

void RegexPool::Flatten(Op op, std::vector<RegexId>* parts) const {
  const bool nested = std::ranges::any_of(*parts, [&](RegexId part) { return At(part).op == op; });
  if (nested) {
    std::vector<RegexId> flat;
    for (const RegexId part : *parts) {
      if (At(part).op == op) {
        const auto inner = Parts(part);
        flat.insert(flat.end(), inner.begin(), inner.end());
      } else {
        flat.push_back(part);
      }
    }
    *parts = std::move(flat);
  }
  std::ranges::sort(*parts);
  parts->erase(std::unique(parts->begin(), parts->end()), parts->end());
}

RegexId RegexPool::Or(std::vector<RegexId> parts) {
  std::erase(parts, kNothing);
  Flatten(Op::kOr, &parts);
  ByteSet bytes;
  size_t sets = 0;
  for (const RegexId part : parts) {
    if (part == kAnything) return kAnything;
    if (At(part).op == Op::kBytes) {
      bytes = bytes | SetOf(At(part));
      ++sets;
    }
  }
  if (sets > 1) {
    std::erase_if(parts, [&](RegexId part) { return At(part).op == Op::kBytes; });
    parts.push_back(Bytes(bytes));
    std::ranges::sort(parts);
  }
  if (parts.size() > 1 && parts[0] == kEmptyText &&
      std::ranges::any_of(parts, [&](RegexId part) { return part != kEmptyText && At(part).nullable; })) {
    parts.erase(parts.begin());
  }
  if (parts.empty()) return kNothing;
  if (parts.size() == 1) return parts[0];
  Node node;
  node.op = Op::kOr;
  for (const RegexId part : parts) {
    const Node& inner = At(part);
    node.nullable = node.nullable || inner.nullable;
    node.plain = node.plain && inner.plain;
    node.counted = node.counted || inner.counted;
    node.height = std::max(node.height, static_cast<uint16_t>(inner.height + 1));
  }
  return Intern(node, parts);
}

RegexId RegexPool::And(std::vector<RegexId> parts) {
  std::erase(parts, kAnything);
  Flatten(Op::kAnd, &parts);
  if (parts.empty()) return kAnything;
  if (parts[0] == kNothing) return kNothing;
  if (parts.size() == 1) return parts[0];
  if (std::ranges::binary_search(parts, kEmptyText)) {
    const bool all = std::ranges::all_of(parts, [&](RegexId part) { return At(part).nullable; });
    return all ? kEmptyText : kNothing;
  }
  ByteSet bytes = ByteSet::Range(0, 255);
  size_t sets = 0;
  for (const RegexId part : parts) {
    if (At(part).op == Op::kBytes) {
      bytes = bytes & SetOf(At(part));
      ++sets;
    }
    if (At(part).op == Op::kNot && std::ranges::binary_search(parts, At(part).a)) return kNothing;
  }
  if (sets > 1) {
    std::erase_if(parts, [&](RegexId part) { return At(part).op == Op::kBytes; });
    parts.push_back(Bytes(bytes));
    return And(std::move(parts));
  }
  Node node;
  node.op = Op::kAnd;
  node.nullable = true;
  node.plain = false;
  for (const RegexId part : parts) {
    const Node& inner = At(part);
    node.nullable = node.nullable && inner.nullable;
    node.height = std::max(node.height, static_cast<uint16_t>(inner.height + 1));
  }
  return Intern(node, parts);
}

RegexId RegexPool::Not(RegexId part) {
  if (part == kNothing) return kAnything;
  const Node& inner = At(part);
  if (inner.op == Op::kNot) return inner.a;
  Node node;
  node.op = Op::kNot;
  node.nullable = !inner.nullable;
  node.plain = false;
  node.height = static_cast<uint16_t>(inner.height + 1);
  node.a = part;
  return Intern(node, {});
}

RegexId RegexPool::Repeat(RegexId part, int least, int most) {
  if (most == 0 || part == kEmptyText) return kEmptyText;
  if (part == kNothing) return least == 0 ? kEmptyText : kNothing;
  if (part == kAnything) return part;
  if (least == 1 && most == 1) return part;
  const Node& inner = At(part);
  if (inner.nullable) least = 0;
  if (inner.op == Op::kRepeat && inner.b == 0 && inner.c == kUnbounded) return part;
  Node node;
  node.op = Op::kRepeat;
  node.nullable = least == 0;
  node.plain = inner.plain;
  node.counted = inner.counted || least > kLowCount || most > kLowCount;
  node.height = static_cast<uint16_t>(inner.height + 1);
  node.a = part;
  node.b = least;
  node.c = most;
  return Intern(node, {});
}

RegexId RegexPool::Multiple(int32_t divisor, int scale) { return MultipleState(divisor, 0, -1, scale); }

RegexId RegexPool::MultipleState(int32_t divisor, int32_t remainder, int32_t seen, int32_t scale) {
  int64_t rest = remainder;
  for (int i = std::max(seen, 0); i < scale && rest != 0; ++i) rest = rest * 10 % divisor;
  Node node;
  node.op = Op::kMultiple;
  node.nullable = rest == 0;
  node.plain = false;
  node.height = 1;
  node.a = divisor;
  node.b = remainder;
  node.c = seen;
  node.d = scale;
  return Intern(node, {});
}

RegexId RegexPool::Derivative(RegexId id, uint8_t byte) {
  const Node& node = At(id);
  switch (node.op) {
    case Op::kNothing:
    case Op::kEmptyText:
      return kNothing;
    case Op::kBytes:
      return SetOf(node).Has(byte) ? kEmptyText : kNothing;
    default:
      break;
  }
  if (id == kAnything) return kAnything;
  if (node.op == Op::kConcat && At(node.a).op == Op::kBytes) return SetOf(At(node.a)).Has(byte) ? node.b : kNothing;
  const uint64_t key = static_cast<uint64_t>(id) << 8 | byte;
  const auto known = derivatives_.find(key);
  if (known != derivatives_.end()) return known->second;
  if (exhausted_) return kNothing;
  const RegexId result = ComputeDerivative(id, byte);
  derivatives_.emplace(key, result);
  return result;
}

RegexId RegexPool::ComputeDerivative(RegexId id, uint8_t byte) {
  const Node node = At(id);  // a copy: the pool grows below
  AddWork(kDerivativeWork);
  switch (node.op) {
    case Op::kConcat: {
      const RegexId first = Concat(Derivative(node.a, byte), node.b);
      return At(node.a).nullable ? Or({first, Derivative(node.b, byte)}) : first;
    }
    case Op::kOr:
    case Op::kAnd: {
      const auto inner = Parts(id);
      AddWork(2 * inner.size());
      std::vector<RegexId> parts(inner.begin(), inner.end());
      for (RegexId& part : parts) part = Derivative(part, byte);
      return node.op == Op::kOr ? Or(std::move(parts)) : And(std::move(parts));
    }
    case Op::kNot:
      return Not(Derivative(node.a, byte));
    case Op::kRepeat: {
      const RegexId first = Derivative(node.a, byte);
      if (first == kNothing) return kNothing;
      const int most = node.c == kUnbounded ? kUnbounded : node.c - 1;
      return Concat(first, Repeat(node.a, std::max(node.b - 1, 0), most));
    }
    case Op::kMultiple: {
      if (byte == '.') return node.c < 0 ? MultipleState(node.a, node.b, 0, node.d) : kNothing;
      if (byte < '0' || byte > '9') return kNothing;
      if (node.c == node.d) return byte == '0' ? id : kNothing;
      const auto next = static_cast<int32_t>((int64_t{10} * node.b + (byte - '0')) % node.a);
      return MultipleState(node.a, next, node.c < 0 ? -1 : node.c + 1, node.d);
    }
    default:
      return kNothing;
  }
}

RegexId RegexPool::WithoutHighCounts(RegexId id, int length) {
  if (!At(id).counted) return id;
  const auto known = without_high_counts_.find(id);
  if (known != without_high_counts_.end()) return known->second;
  RegexId result = RegexPool::kNothing;
  switch (At(id).op) {
    case Op::kConcat: {
      std::vector<RegexId> spine;  // iterative: literals are long
      result = id;
      while (At(result).op == Op::kConcat && At(result).counted && !without_high_counts_.contains(result)) {
        spine.push_back(result);
        result = At(result).b;
      }
      result = WithoutHighCounts(result, length);
      for (size_t i = spine.size(); i > 0; --i) {
        result = Concat(WithoutHighCounts(At(spine[i - 1]).a, length), result);
        without_high_counts_[spine[i - 1]] = result;
      }
      return result;
    }
    case Op::kOr: {
      const auto inner = Parts(id);
      std::vector<RegexId> parts(inner.begin(), inner.end());
      for (RegexId& part : parts) part = WithoutHighCounts(part, length);
      result = Or(std::move(parts));
      break;
    }
    default: {  // kRepeat: nothing else is counted
      const Node node = At(id);
      const int most = node.c > length ? kUnbounded : node.c;
      result = Repeat(WithoutHighCounts(node.a, length), std::min(node.b, length + 1), most);
      break;
    }
  }
  without_high_counts_[id] = result;
  return result;
}

bool RegexPool::Matches(RegexId id, std::string_view text) {
  for (const char c : text) id = Derivative(id, static_cast<uint8_t>(c));
  return Nullable(id);
}

const RegexPool::ByteClasses& RegexPool::Classes() {
  if (base_ != nullptr) return classes_;  // derivatives only unite and intersect the sets of the base
  const size_t sets = static_cast<size_t>(base_sets_) + sets_.size();
  if (classes_of_sets_ == sets) return classes_;
  // The digits and the point are apart because Multiple tells them apart.
  std::array<int, 256> of{};
  for (int digit = 0; digit < 10; ++digit) of['0' + digit] = 1 + digit;
  of['.'] = 11;
  const auto refine = [&of](auto&& split) {
    std::unordered_map<int, int> names;
    for (int byte = 0; byte < 256; ++byte) {
      const int key = of[byte] * 2 + (split(static_cast<uint8_t>(byte)) ? 1 : 0);
      of[byte] = names.emplace(key, static_cast<int>(names.size())).first->second;
    }
  };
  refine([](uint8_t) { return false; });
  for (const RegexPool* pool = this; pool != nullptr; pool = pool->base_) {
    for (const ByteSet& set : pool->sets_) refine([&set](uint8_t byte) { return set.Has(byte); });
  }
  classes_.representative.clear();
  for (int byte = 0; byte < 256; ++byte) {
    classes_.of[byte] = static_cast<uint8_t>(of[byte]);
    if (static_cast<size_t>(of[byte]) == classes_.representative.size()) {
      classes_.representative.push_back(static_cast<uint8_t>(byte));
    }
  }
  classes_of_sets_ = sets;
  return classes_;
}

bool RegexPool::IsEmpty(RegexId id) {
  if (At(id).plain) return id == kNothing;
  if (At(id).nullable) return false;
  const auto known = live_.find(id);
  if (known != live_.end()) return !known->second;
  // Depth first through the derivatives until one is known to have a text; then so have all on the path. When none
  // is found, none of those seen has any.
  struct Visit {
    RegexId id;
    size_t next_class;
  };
  std::vector<Visit> path = {{id, 0}};
  std::vector<RegexId> seen = {id};
  std::unordered_set<RegexId> visited = {id};
  const std::vector<uint8_t> bytes = SearchOrder();
  while (!path.empty()) {
    Visit& top = path.back();
    if (top.next_class == bytes.size()) {
      path.pop_back();
      continue;
    }
    const RegexId next = Derivative(top.id, bytes[top.next_class++]);
    if (exhausted_ || seen.size() > kMaxLiveSearch) {
      exhausted_ = true;
      return true;
    }
    const auto fact = live_.find(next);
    const bool live =
        At(next).nullable || (At(next).plain && next != kNothing) || (fact != live_.end() && fact->second);
    if (live) {
      Prefer(bytes[top.next_class - 1]);
      for (const Visit& visit : path) live_[visit.id] = true;
      return false;
    }
    if (next == kNothing || fact != live_.end() || !visited.insert(next).second) continue;
    seen.push_back(next);
    path.push_back({next, 0});
  }
  for (const RegexId dead : seen) live_[dead] = false;
  return true;
}

bool RegexPool::CanContinue(RegexId id) {
  if (At(id).plain) return id != kNothing && id != kEmptyText;
  const std::vector<uint8_t> bytes = SearchOrder();
  for (const uint8_t byte : bytes) {
    if (IsEmpty(Derivative(id, byte))) continue;
    Prefer(byte);
    return true;
  }
  return false;
}

const std::vector<uint8_t>& RegexPool::SearchOrder() {
  const std::vector<uint8_t>& bytes = Classes().representative;
  if (search_order_.size() != bytes.size()) search_order_ = bytes;
  return search_order_;
}

void RegexPool::Prefer(uint8_t byte) {
  const auto at = std::ranges::find(search_order_, byte);
  if (at != search_order_.end()) std::rotate(search_order_.begin(), at, at + 1);
}

size_t RegexPool::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + parts_.capacity() * sizeof(RegexId) + table_.capacity() * sizeof(RegexId) +
         sets_.capacity() * sizeof(ByteSet) + (derivatives_.size() + live_.size() + without_high_counts_.size()) * 40;
}

}  // namespace deepinfer
