// ThreadPool: every worker once per section, over many sections; the static split covers its range exactly.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace deepinfer {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryWorkerOncePerSection) {
  const int workers = GetParam();
  ThreadPool pool(workers);
  ASSERT_EQ(pool.workers(), workers);
  std::vector<int> calls(static_cast<size_t>(workers), 0);  // one slot per worker: no atomics needed
  for (int section = 1; section <= 300; ++section) {
    pool.Run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
    for (const int count : calls) ASSERT_EQ(count, section);
  }
}

TEST_P(ThreadPoolTest, SectionsSeeTheWritesOfEarlierOnes) {
  ThreadPool pool(GetParam());
  const int64_t count = 997;
  std::vector<int64_t> a(static_cast<size_t>(count), 1);
  std::vector<int64_t> b(static_cast<size_t>(count));
  for (int section = 0; section < 40; ++section) {
    // b[i] reads a slot that another worker wrote in the section before.
    ParallelRange(pool, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) b[static_cast<size_t>(i)] = a[static_cast<size_t>(count - 1 - i)] + 1;
    });
    std::swap(a, b);
  }
  EXPECT_EQ(std::accumulate(a.begin(), a.end(), int64_t{0}), count * 41);
}

TEST_P(ThreadPoolTest, ParallelRangeCoversExactly) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 3, 5, 31, 32, 33, 100}) {
    for (const int64_t grain : {1, 4, 32}) {
      std::vector<int> touched(static_cast<size_t>(count), 0);
      ParallelRange(pool, count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
      });
      for (const int times : touched) ASSERT_EQ(times, 1) << count << " by " << grain;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, ThreadPoolTest, ::testing::Values(1, 2, 3, 4));

TEST(SplitRangeTest, CutsAtGrainsAndCoversExactly) {
  for (int64_t count = 0; count <= 70; ++count) {
    for (const int64_t grain : {1, 3, 32}) {
      for (int workers = 1; workers <= 5; ++workers) {
        int64_t next = 0;
        for (int worker = 0; worker < workers; ++worker) {
          const StaticRange range = SplitRange(count, worker, workers, grain);
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.begin, range.end);
          ASSERT_TRUE(range.begin == count || range.begin % grain == 0);
          next = range.end;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(ThreadPoolLifetimeTest, StartsAndStopsWithoutWork) {
  for (int round = 0; round < 20; ++round) ThreadPool pool(1 + round % 4);
}

}  // namespace
}  // namespace deepinfer
