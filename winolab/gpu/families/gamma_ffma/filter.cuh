// U = G w for every outer tap, laid out as the main kernel's bulk copies want it:
// [block of BM outputs][outer tap / SHARE][chunk of KC channels][filter row % SHARE]
// [state][channel][output], zero-filled.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.
#pragma once

#include "pipeline.cuh"

struct GammaFfmaFilterParams {
  const float* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  float* u;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, taps, taps_height, taps_width, chunks, blocks_m;
};

constexpr int FILTER_M = 32, FILTER_C = 32, FILTER_ROWS = 8;  // a block: (m, c) pairs of one tap

using StagedTaps = float[R][FILTER_C][FILTER_M + 1];

// A block's work, by its first FILTER_ROWS warps.
__device__ __forceinline__ void transform_taps(const GammaFfmaFilterParams& p, StagedTaps& staged,
                                               int m0, int c0, int tap) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int fw = tap % p.taps_width, row = tap / p.taps_width;
  const float* w = p.w + row / p.taps_height * p.depth_stride +
                   row % p.taps_height * p.row_stride + fw * R * p.width_stride;
  // Neighbouring threads read along whichever channel is contiguous in w.
  const bool along_c = p.c_stride == 1;
  if (warp < FILTER_ROWS) {
    float taps[32 / FILTER_ROWS][R];
#pragma unroll
    for (int i = 0; i < 32 / FILTER_ROWS; ++i) {
      const int other = warp + i * FILTER_ROWS;
      const int m = m0 + (along_c ? other : lane), c = c0 + (along_c ? lane : other);
      const bool inside = m < p.out_channels && c < p.channels;
#pragma unroll
      for (int j = 0; j < R; ++j)
        taps[i][j] = inside ? __ldg(w + m * p.m_stride + c * p.c_stride + j * p.width_stride) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 32 / FILTER_ROWS; ++i) {
      const int other = warp + i * FILTER_ROWS;
#pragma unroll
      for (int j = 0; j < R; ++j)
        staged[j][along_c ? lane : other][along_c ? other : lane] = taps[i][j];
    }
  }
  __syncthreads();
  if (warp >= FILTER_ROWS) return;
  // Filter rows that share a stage of V follow one another; widths come between their groups.
  const int group = row / SHARE * p.taps_width + fw, m = m0 + lane;
  const long long block = (long long)(m / BM) * (p.taps / SHARE) + group;
#pragma unroll
  for (int i = 0; i < 32 / FILTER_ROWS; ++i) {
    const int oc = warp + i * FILTER_ROWS, c = c0 + oc;
    float tap[R], state[ALPHA];
#pragma unroll
    for (int j = 0; j < R; ++j) tap[j] = staged[j][oc][lane];
    transform_filter(tap, state);
    if (c >= p.chunks * KC || m >= p.blocks_m * BM) continue;
    const long long stage = (block * p.chunks + c / KC) * SHARE + row % SHARE;
    float* u = p.u + (stage * ALPHA * KC + c % KC) * BM + m % BM;
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) u[(long long)s * KC * BM] = state[s];
  }
}

extern "C" __global__ void __launch_bounds__(32 * FILTER_ROWS)
    winolab_gamma_ffma_filter(const __grid_constant__ GammaFfmaFilterParams p) {
  next_launch_may_begin();
  __shared__ StagedTaps staged;
  transform_taps(p, staged, blockIdx.x * FILTER_M, blockIdx.y * FILTER_C, blockIdx.z);
}
