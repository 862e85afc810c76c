// GeneratedWeights: weights without bytes. A reserved address range stands for them: views point into it as into a
// mapped file, and whoever needs a weight's bytes makes them, since byte i is a function of the weight's recipe and i.
// So a model that fits no host memory can be filled in where it is computed (checkpoint/synthetic.h, v41-flash).
//
// Reading the range through a pointer faults, except for weights added as readable. Thread-safety: Find() from any
// thread; an object is filled by one thread before others look into it. Ownership: owns the range, which is gone from
// the registry with it.
#ifndef DEEPINFER_BASE_GENERATED_WEIGHTS_H_
#define DEEPINFER_BASE_GENERATED_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

/// How the bytes of one tensor follow from their index. A value, also for kernels.
struct WeightRecipe {
  enum class Kind : uint8_t {
    kTable,   ///< table[random byte]: E4M3 codes, or two E2M1 codes
    kScales,  ///< E8M0: `scale` or one less
    kBF16,
    kF32,
  };
  Kind kind = Kind::kTable;
  uint8_t scale = 127;
  uint64_t seed = 0;
  float mean = 0;       ///< of floats
  float deviation = 0;  ///< of floats, which reach 3.25 of it
  // Offsets of hyper-connections (HyperConnectionBase in synthetic_values.h): streams > 0.
  int32_t streams = 0;
  float read_offset = 0;
  std::array<uint8_t, 256> table{};

  /// Elements 8/width * index and on, as eight bytes, little end first. `lookup` is `table`, wherever that lies.
  constexpr uint64_t Word(int64_t index, const uint8_t* lookup) const {
    const uint64_t random = Mix(seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15);
    uint64_t word = 0;
    switch (kind) {
      case Kind::kTable:
        for (int k = 0; k < 64; k += 8) word |= uint64_t{lookup[(random >> k) & 255]} << k;
        return word;
      case Kind::kScales:
        for (int k = 0; k < 8; ++k) word |= static_cast<uint64_t>(scale - ((random >> k) & 1)) << (8 * k);
        return word;
      case Kind::kBF16:
        for (int k = 0; k < 4; ++k) word |= uint64_t{ToBf16(Draw(random, k))} << (16 * k);
        return word;
      case Kind::kF32:
        for (int k = 0; k < 2; ++k) {
          const float value = Draw(random, k) + Offset(2 * index + k);
          word |= uint64_t{__builtin_bit_cast(uint32_t, value)} << (32 * k);
        }
        return word;
    }
    return word;
  }

 private:
  static constexpr uint64_t Mix(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }
  /// The sum of four hexadecimal digits: 61 values of nearly normal weight.
  constexpr float Draw(uint64_t random, int lane) const {
    constexpr float kUnit = 0.10846523f;  // 1 / sqrt(4 * 255 / 12)
    const auto digits = static_cast<uint32_t>(random >> (16 * lane)) & 0xffffu;
    const int sum = static_cast<int>((digits & 15) + (digits >> 4 & 15) + (digits >> 8 & 15) + (digits >> 12)) - 30;
    return mean + deviation * (kUnit * static_cast<float>(sum));
  }
  constexpr float Offset(int64_t index) const {
    if (streams == 0 || index >= (2 + int64_t{streams}) * streams) return 0;
    if (index < streams) return read_offset;
    const int64_t comb = index - 2 * streams;
    return comb >= 0 && comb / streams == comb % streams ? 3.0f : 0.0f;
  }
  static constexpr uint16_t ToBf16(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

class GeneratedWeights {
 public:
  struct Place {
    WeightRecipe recipe;
    int64_t offset = 0;  ///< bytes from the start of the weight
  };

  /// Room for weights of `bytes` bytes in all, their alignment to kAlignment counted. kResourceExhausted: the system
  /// has no address space.
  static Result<std::unique_ptr<GeneratedWeights>> Reserve(int64_t bytes);
  ~GeneratedWeights();
  GeneratedWeights(const GeneratedWeights&) = delete;
  GeneratedWeights& operator=(const GeneratedWeights&) = delete;

  static constexpr int64_t kAlignment = 256;
  static int64_t Padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  /// The address of the next weight.
  const uint8_t* Add(const WeightRecipe& recipe, int64_t bytes);
  /// The same with its bytes in host memory; beyond kMostFilledBytes they are zeros, which take no memory until read.
  Result<const uint8_t*> AddReadable(const WeightRecipe& recipe, int64_t bytes);
  static constexpr int64_t kMostFilledBytes = int64_t{4} << 30;

  /// What `address` stands for in any object that lives; nothing: an ordinary address.
  static std::optional<Place> Find(const void* address);

 private:
  GeneratedWeights(uint8_t* begin, int64_t bytes) : begin_(begin), bytes_(bytes) {}

  struct Entry {
    int64_t begin = 0;  // in the range, ascending
    WeightRecipe recipe;
  };

  uint8_t* begin_;
  int64_t bytes_;
  int64_t used_ = 0;
  std::vector<Entry> entries_;
};

/// Bytes `offset` .. `offset + bytes` - 1 of a weight, into host memory.
void FillGenerated(const WeightRecipe& recipe, int64_t offset, int64_t bytes, uint8_t* to);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_GENERATED_WEIGHTS_H_
