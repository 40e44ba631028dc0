// Sums of mma.sync's m16n8k16 in FP32 or, with SUMS = 16, of FP16 data in FP16, as WinRS has them.
#pragma once

#include "mma.cuh"

static_assert(SUMS == 32 || INPUT == 1, "sums in FP16 are FP16's");

template <int BITS>
struct Four {  // sums of a lane in one instruction
  using type = float[4];
};
template <>
struct Four<16> {
  using type = unsigned[2];
};
using Sums = Four<SUMS>::type;

__device__ __forceinline__ void add_products(float (&sum)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  mma<INPUT == 2>(sum, a, b);
}
__device__ __forceinline__ void add_products(unsigned (&sum)[2], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  mma(sum, a, b);
}

// Two neighbouring sums of a row, and the same written.
__device__ __forceinline__ float2 pair_of(const float (&sum)[4], int row) {
  return make_float2(sum[2 * row], sum[2 * row + 1]);
}
__device__ __forceinline__ float2 pair_of(const unsigned (&sum)[2], int row) {
  float2 pair;
  unpack<false>(sum[row], pair.x, pair.y);
  return pair;
}
__device__ __forceinline__ void set_pair(float (&sum)[4], int row, float2 pair) {
  sum[2 * row] = pair.x, sum[2 * row + 1] = pair.y;
}
__device__ __forceinline__ void set_pair(unsigned (&sum)[2], int row, float2 pair) {
  sum[row] = pack<false>(pair.x, pair.y);
}
