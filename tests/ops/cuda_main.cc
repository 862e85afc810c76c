// main() of the tests that need a GPU: without one they are skipped (exit status 77), and say so.
#include <gtest/gtest.h>

#include <cstdio>

#include "ops/cuda/cuda_ops.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && deepinfer::CountCudaDevices() == 0) {
    std::printf("skipped: no GPU of compute capability 9 or 10 with its driver\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
