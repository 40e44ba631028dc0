// Implicit GEMM on mma.sync or FFMA units: forward and backward data with any stride, dilation, groups
// and channels, and their filter gradients.
//
// A block computes BM × BN results; a step is BK deep. Roles: all threads start the copies of a later
// step, then multiply this one (operands.cuh says which matrices, products.cuh how).
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

// All sums of a block, TENSOR: by Tensor Cores.
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
  __syncthreads();
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; ++s) {
    if (work.begin + s < work.end) copies.start(s), copies.prepare();
    copy_async_commit();
    if (W_BY_DEPTH) __syncthreads();
  }
  int stage = 0, next = STAGES - 1;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    const bool more = step + STAGES - 1 < work.end;
    if (more) copies.start(next);
    copy_async_commit();
    const Element* a = GRADIENT ? shared.w[stage] : shared.x[stage];
    const Element* b = GRADIENT ? shared.x[stage] : shared.w[stage];
    if constexpr (!TENSOR)
      multiply_ffma(acc, a, b, at);
    else if constexpr (PRODUCTS == 1)
      multiply_tf32(p, work, acc, a, b, at, step, known);
    else
      multiply_halves(p, work, acc, a, b, at, step, known);
    if (more) copies.prepare();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
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
    bool finite = true;
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) finite &= fabsf(acc[i][j][e]) < __int_as_float(0x7f800000);
    if (!finite) shared.again = 1;
    __syncthreads();
    if (shared.again) sum<false>(p, work, shared, acc, at);
  }
  if constexpr (GRADIENT)
    store_gradient(p, work, acc, at);
  else
    store(p, work, shared.places, acc, at);
}
