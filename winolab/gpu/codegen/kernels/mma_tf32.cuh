// wgmma of TF32 (sm_90a), PTX ISA section 9.7.15: FP32 numbers whose last 13 bits do not count.
// Fragments are mma.cuh's but for A in registers, m64k8:  a[r + 2k] = A[16 warp + 8r + g][4k + q]
// B is K-major, with Swizzle::B128: rows of 128 bytes have 32 values along k, the next 8 of which begin
// 32 bytes further.
#pragma once

#include "mma.cuh"

// d = A B + (accumulate ? d : 0), asynchronously: A is 64 × 8, B is 8 × N, in shared memory by descriptor.
template <int N>
__device__ __forceinline__ void wgmma_tf32(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b,
                                           bool accumulate) {
  #include "wgmma_of_tf32.cuh"
}
