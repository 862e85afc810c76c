#include "checkpoint/engram_hash.h"

#include <gtest/gtest.h>

#include <numeric>

namespace deepinfer {
namespace {

using Values = std::vector<int64_t>;

EngramHashSettings Release() {
  return {.layers = {1, 14}, .max_ngram_size = 4, .heads = 8, .vocab_size = 16000000, .compressed_vocab_size = 99092};
}

TEST(EngramHash, ReleaseMultipliers) {
  const std::vector<EngramHash> hashes = DeriveEngramHashes(Release());
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(hashes[0].layer, 1);
  EXPECT_EQ(hashes[0].multipliers, (Values{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].layer, 14);
  EXPECT_EQ(hashes[1].multipliers, (Values{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(EngramHash, ReleasePrimesAndOffsets) {
  const std::vector<EngramHash> hashes = DeriveEngramHashes(Release());
  EXPECT_EQ(hashes[0].primes, (Values{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
                                      16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
                                      16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463}));
  EXPECT_EQ(hashes[1].primes, (Values{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
                                      16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
                                      16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
  EXPECT_EQ(hashes[0].rows, 384006168);
  EXPECT_EQ(hashes[1].rows, 384016682);
  for (const EngramHash& hash : hashes) {
    Values offsets(hash.primes.size());
    std::exclusive_scan(hash.primes.begin(), hash.primes.end(), offsets.begin(), int64_t{0});
    EXPECT_EQ(hash.offsets, offsets);
  }
}

// numpy.random.default_rng(10007 * layer).integers(0, (2**63 - 1) // 6661 // 2, size=orders, dtype=int64)
TEST(EngramHash, MultipliersOfTheSmallModelsEqualNumpy) {
  constexpr int64_t kBound = 692341392948114;
  ASSERT_EQ(kBound, INT64_MAX / 6661 / 2);
  EXPECT_EQ(NumpyIntegers(10007 * 1, kBound, 4),
            (Values{570006580199266, 36000075201818, 267476043347017, 550334277392810}));
  EXPECT_EQ(NumpyIntegers(10007 * 2, kBound, 3), (Values{569079581934603, 275941729415787, 168456292522323}));
  EXPECT_EQ(NumpyIntegers(10007 * 3, kBound, 4),
            (Values{204751772303660, 607399604597726, 80912472423897, 522884308391389}));
  EXPECT_EQ(NumpyIntegers(10007 * 4, kBound, 4),
            (Values{611869808238979, 37472217921472, 547850781003608, 140990487931291}));
  EXPECT_EQ(NumpyIntegers(10007 * 6, kBound, 3), (Values{295722610519615, 671588357169099, 80262120867693}));
}

// A bound just above a power of two makes the generator reject draws often.
TEST(EngramHash, RejectedDrawsEqualNumpy) {
  constexpr int64_t kBound = (int64_t{1} << 62) + 12345;
  EXPECT_EQ(NumpyIntegers(0, kBound, 8),
            (Values{1244171615822316234, 188957027462249511, 76220265684581587, 3750546991323003782,
                    4209342133973299991, 2797613725383363040, 3364209090780776894, 2507027772408805926}));
  EXPECT_EQ(NumpyIntegers(10007 * 37, kBound, 8),
            (Values{637834847690181022, 4305919195361646401, 4414727071264112645, 1487113562526488632,
                    1508352011382296512, 1575184120886824938, 1852438858457264069, 2419798424237579800}));
  EXPECT_EQ(NumpyIntegers(10007 * 59, kBound, 8),
            (Values{570014945805490177, 2510021175555340083, 2115918969518694265, 2067779384929110980,
                    2185616002337925814, 1875616689419180286, 766385506707430290, 1807275241874746921}));
}

TEST(EngramHash, IsPrimeAgreesWithTrialDivision) {
  for (uint64_t value = 0; value < 20000; ++value) {
    bool prime = value > 1;
    for (uint64_t divisor = 2; divisor * divisor <= value && prime; ++divisor) prime = value % divisor != 0;
    ASSERT_EQ(IsPrime(value), prime) << value;
  }
}

TEST(EngramHash, IsPrimeOfHardValues) {
  EXPECT_FALSE(IsPrime(3215031751));  // strong pseudoprime to bases 2, 3, 5 and 7
  EXPECT_FALSE(IsPrime(4294836225));  // 65535^2
  EXPECT_FALSE(IsPrime(2147483649));  // 2^31 + 1
  EXPECT_FALSE(IsPrime(1373653));     // strong pseudoprime to bases 2 and 3
  EXPECT_TRUE(IsPrime(2147483647));   // 2^31 - 1
  EXPECT_TRUE(IsPrime(4294967291));   // the largest below 2^32
}

}  // namespace
}  // namespace deepinfer
