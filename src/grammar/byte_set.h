// ByteSet: a set of byte values.
//
// Thread-safety: a value. Ownership: none. Errors: none.
#ifndef DEEPINFER_GRAMMAR_BYTE_SET_H_
#define DEEPINFER_GRAMMAR_BYTE_SET_H_

#include <array>
#include <cstdint>

namespace deepinfer {

class ByteSet {
 public:
  static ByteSet Range(int first, int last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }

  void Add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool Has(uint8_t byte) const { return (words_[byte >> 6] >> (byte & 63) & 1) != 0; }
  bool Empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }

  ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (int i = 0; i < 4; ++i) set.words_[i] = words_[i] | other.words_[i];
    return set;
  }
  ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (int i = 0; i < 4; ++i) set.words_[i] = words_[i] & other.words_[i];
    return set;
  }
  bool operator==(const ByteSet& other) const = default;

  const std::array<uint64_t, 4>& words() const { return words_; }

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_BYTE_SET_H_
