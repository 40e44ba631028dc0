// Implicit GEMM on mma.sync or FFMA units: forward and backward data with any stride, dilation, groups
// and channels, and their filter gradients.
//
// A block computes BLOCK_ROWS × BLOCK_COLUMNS results; a step is DEPTH deep. Roles: all threads start
// the copies of a later step, then multiply this one (operands.cuh says which matrices, products.cuh
// how).
//
// Barriers: all threads, when the copies of a step are there and those of the step before last have
// been read.
//
// Products of TF32 parts give NaN where FP32 has infinity: a block with a sum that is not finite sums
// everything again on FFMA units.
#pragma once

#include "copies.cuh"
#include "products.cuh"
#include "results.cuh"

// A step's products, TENSOR: by Tensor Cores.
template <bool TENSOR>
__device__ __forceinline__ void multiply_stage(const ImplicitParams& p, const ImplicitWork& work,
                                               const ImplicitShared& shared, ImplicitSums& acc, const Warp& at,
                                               int stage, int step, const Diagonal& known) {
  const Element* a = GRADIENT ? shared.w[stage] : shared.x[stage];
  const Element* b = GRADIENT ? shared.x[stage] : shared.w[stage];
  if constexpr (!TENSOR)
    multiply_ffma(acc, a, b, at);
  else if constexpr (PRODUCTS == 1)
    multiply_tf32(p, work, acc, a, b, at, step, known);
  else
    multiply_halves(p, work, acc, a, b, at, step, known);
}

// All sums of a block. The loop has a step of copies alone for each stage but one, so that there is one
// text of copies: every 128 bytes of instructions come from memory once a launch.
template <bool TENSOR>
__device__ __forceinline__ void sum(const ImplicitParams& p, const ImplicitWork& work,
                                    ImplicitShared& shared, ImplicitSums& acc, const Warp& at) {
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;
  Copies copies(p, work, shared);
  const Diagonal known = of_tiles(p, work, work.row + at.m, work.column + at.n);
  int stage = 0, next = 0;
#pragma unroll 1
  for (int step = work.begin - (STAGES - 1); step < work.end; ++step) {
    const bool more = step + STAGES - 1 < work.end;
    if (more) copies.prepare();
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    if (more) copies.start(next);
    copy_async_commit();
    if (step >= work.begin) {
      multiply_stage<TENSOR>(p, work, shared, acc, at, stage, step, known);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  copy_async_wait<0>();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    winolab_implicit_gemm(const __grid_constant__ ImplicitParams p) {
  if (GRADIENT && PRODUCTS == 0 && !wanted(p.wanted)) return;
  extern __shared__ __align__(1024) unsigned char memory[];
  ImplicitShared& shared = *reinterpret_cast<ImplicitShared*>(memory);
  const ImplicitWork work(p);
  const Warp at;
  ImplicitSums acc;
  if (PRODUCTS == 1 && threadIdx.x == 0) shared.again = 0;
  sum<PRODUCTS != 0>(p, work, shared, acc, at);
  if constexpr (PRODUCTS == 1) {
    float none[2] = {};  // 0, unless a sum is not finite: two chains
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) none[e % 2] = __fmaf_rn(acc[i][j][e], 0.0f, none[e % 2]);
    if (none[0] + none[1] != 0.0f) shared.again = 1;
    __syncthreads();
    if (shared.again) sum<false>(p, work, shared, acc, at);
  }
  if ((GRADIENT || SEGMENTED) && p.buckets) next_launch_may_begin();
  if constexpr (GRADIENT)
    store_gradient(p, work, acc, at);
  else if constexpr (SEGMENTED)
    store_segment(p, work, acc, at);
  else
    store(p, work, shared.places, acc, at);
}
