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

#include "operands.cuh"
#include "products.cuh"
#include "exchanged.cuh"

// All sums of a block, TENSOR: by Tensor Cores.
template <bool TENSOR>
__device__ __forceinline__ void sum(const ImplicitParams& p, const ImplicitWork& work,
                                    ImplicitShared& shared, Sums& acc, const Warp& at) {
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

// Results of forward and backward data.
__device__ __forceinline__ void store(const ImplicitParams& p, const ImplicitWork& work,
                                      const ImplicitShared& shared, const Sums& acc, const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4, first = work.column + at.n;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const WindowPlace& place = shared.places[at.m + i * 16 + r * 8 + g];
      Out* const y = p.y + place.y + (long long)work.group * p.out_channels;
      if constexpr (OUTPUT != 0 && NT % 4 == 0) {
        if (p.y_vector == 8) {
#pragma unroll
          for (int j = 0; j < NT; j += 4) {
            unsigned v[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
              v[e] = pack<OUTPUT == 2>(acc[i][j + e][2 * r], acc[i][j + e][2 * r + 1]);
            const uint4 eight = exchanged(v, at.lane);
            const int n = first + (j + q) * 8;
#ifdef EPILOGUE
            if (place.there && n < work.columns) {
              unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
              finish_pairs(p.epilogue, pairs, y + n, p.y, work.group * p.out_channels + n);
              *reinterpret_cast<uint4*>(y + n) =
                  make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            }
#else
            if (place.there && n < work.columns) *reinterpret_cast<uint4*>(y + n) = eight;
#endif
          }
          continue;
        }
      }
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int n = first + j * 8 + q * 2;
        if (!place.there || n >= work.columns) continue;
#ifdef EPILOGUE
        float v[2] = {acc[i][j][2 * r], acc[i][j][2 * r + 1]};
        const int channel = work.group * p.out_channels + n;
        if (p.y_vector > 1)
          finish_channels<2, true>(p.epilogue, v, y + n, p.y, channel);
        else
          finish_channels<2, false>(p.epilogue, v, y + n, p.y, channel, work.columns - n);
#else
        const float v[2] = {acc[i][j][2 * r], acc[i][j][2 * r + 1]};
#endif
        if (p.y_vector > 1) {
          if constexpr (OUTPUT == 0)
            *reinterpret_cast<float2*>(y + n) = make_float2(v[0], v[1]);
          else
            *reinterpret_cast<unsigned*>(y + n) = pack<OUTPUT == 2>(v[0], v[1]);
          continue;
        }
        store_sum(y + n, v[0]);
        if (n + 1 < work.columns) store_sum(y + n + 1, v[1]);
      }
    }
}

// Sums of a gradient, in dw or in the segment's bucket.
__device__ __forceinline__ void store_gradient(const ImplicitParams& p, const ImplicitWork& work,
                                               const Sums& acc, const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4;
  const long long each = (long long)work.taps * p.channels;  // of an output channel
  const long long size = (long long)p.groups * p.out_channels * each;
  const ColumnStep next(work, 1), other(work, 7);
  const bool pairs = p.buckets && p.channels % 2 == 0;
  PatchColumn column;
  column.set(work, work.column + at.n + q * 2);
#pragma unroll
  for (int j = 0; j < NT; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      column.find(p, work);
      const long long tap = (column.tap.depth * (long long)work.heights() + column.tap.height) *
                                work.widths() + column.tap.width;
#pragma unroll
      for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int m = work.row + at.m + i * 16 + r * 8 + g;
          const int channel =
              MERGED ? column.channel - (m >> p.out_log << p.channels_log) : column.channel;
          if (!column.there || m >= work.columns || (unsigned)channel >= (unsigned)p.channels) continue;
          const long long out = (long long)work.group * p.out_channels + m;
          float* const bucket = p.buckets + work.segment * size + out * each + tap * p.channels + channel;
          if (pairs) {
            if (c == 0)
              *reinterpret_cast<float2*>(bucket) =
                  make_float2(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
          } else if (p.buckets) {
            *bucket = acc[i][j][2 * r + c];
          } else {
            store_sum(p.y + out * p.m_stride + column.filter + channel * p.c_stride,
                      acc[i][j][2 * r + c]);
          }
        }
      column.advance(work, c ? other : next);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    winolab_implicit_gemm(const __grid_constant__ ImplicitParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  ImplicitShared& shared = *reinterpret_cast<ImplicitShared*>(memory);
  const ImplicitWork work(p);
  const Warp at;
  Sums acc;
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
    store(p, work, shared, acc, at);
}
