// The transformed filter of gamma_wgmma/kernel.cuh: where its stages lie, and sums outside the
// Tensor Core.
#pragma once

#include "block.cuh"

constexpr int LAST = REST ? REST : SHARE;  // rows of a filter's last stage
// vectors; of a filter row of a stage
constexpr int U_FILTER = PARTS * BM * 2, U_ROW = ALPHA * U_FILTER;

// Whether a stage is of a filter's last rows, of which REST are there. Not counted from stage to stage:
// consumers have no registers left.
__device__ __forceinline__ bool rest(const GammaWgmmaParams& p, int step) {
  const int groups = p.taps_height / SHARE;
  return REST > 0 && step / (p.chunks * p.taps_width) % groups == groups - 1;
}

// Filter rows of U before a stage; behind the last one, all of them.
__device__ __forceinline__ int rows_before(const GammaWgmmaParams& p, int step) {
  if constexpr (REST == 0) return step * SHARE;
  const int stages = p.chunks * p.taps_width, group = step / stages, groups = p.taps_height / SHARE;
  const int before = group * SHARE - group / groups * (SHARE - REST);
  return before * stages + step % stages * (rest(p, step) ? LAST : SHARE);
}

template <int COUNT>
__device__ __forceinline__ void add(float (&acc)[SUMS], const float (&partial)[COUNT]) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j) acc[j] = __fadd_rn(acc[j], partial[j]);
}
