// U = G w GT, laid out as the main kernel's bulk copies want it:
// [block of BM filters][chunk of KC channels][state][channel][filter], zeros where there is none.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.
#pragma once

#include "block.cuh"

struct Fused2dFilterParams {
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  float* u;
  long long m_stride, c_stride, row_stride, width_stride;
  int out_channels, channels, chunks, blocks_m;
};

// A number as it lies, and two neighbours, which lie aligned.
__device__ __forceinline__ float load_one(const Element* from) {
  if constexpr (INPUT == 0) return __ldg(from);
  float first, none;
  unpack<INPUT == 2>(__ldg(from), first, none);
  return first;
}
__device__ __forceinline__ void load_two(const Element* from, float (&to)[2]) {
  if constexpr (INPUT == 0) {
    const float2 v = __ldg(reinterpret_cast<const float2*>(from));
    to[0] = v.x, to[1] = v.y;
  } else {
    unpack<INPUT == 2>(__ldg(reinterpret_cast<const unsigned*>(from)), to[0], to[1]);
  }
}

constexpr int FILTER_M = 32, FILTER_C = 32, FILTER_ROWS = 8;  // a block: filters × channels; warps

// The states of one filter and channel.
__device__ __forceinline__ void transform_taps(const float (&tap)[R * R], float (&state)[STATES]) {
  float half[R][ALPHA];  // transformed along the height
#pragma unroll
  for (int j = 0; j < R; ++j) {
    float column[R];
#pragma unroll
    for (int i = 0; i < R; ++i) column[i] = tap[i * R + j];
    transform_filter(column, half[j]);
  }
#pragma unroll
  for (int i = 0; i < ALPHA; ++i) {
    float row[R], states[ALPHA];
#pragma unroll
    for (int j = 0; j < R; ++j) row[j] = half[j][i];
    transform_filter(row, states);
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) state[i * ALPHA + j] = states[j];
  }
}

extern "C" __global__ void __launch_bounds__(32 * FILTER_ROWS)
    winolab_fused2d_filter(const __grid_constant__ Fused2dFilterParams p) {
  next_launch_may_begin();
  __shared__ float staged[R * R][FILTER_C][FILTER_M + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m0 = blockIdx.x * FILTER_M, c0 = blockIdx.y * FILTER_C;
  // Neighbouring threads read along whichever channel is contiguous in w.
  const bool along_c = p.c_stride == 1;
#pragma unroll
  for (int k = 0; k < FILTER_C / FILTER_ROWS; ++k) {
    const int other = warp + k * FILTER_ROWS;
    const int m = along_c ? other : lane, c = along_c ? lane : other;
    const bool inside = m0 + m < p.out_channels && c0 + c < p.channels;
    const Element* w = p.w + (m0 + m) * p.m_stride + (c0 + c) * p.c_stride;
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j)
        staged[i * R + j][c][m] = inside ? load_one(w + i * p.row_stride + j * p.width_stride) : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < FILTER_C / FILTER_ROWS; ++k) {
    const int own = warp + k * FILTER_ROWS, m = m0 + lane, c = c0 + own;
    if (c >= p.chunks * KC || m >= p.blocks_m * BM) continue;
    float tap[R * R], state[STATES];
#pragma unroll
    for (int t = 0; t < R * R; ++t) tap[t] = staged[t][own][lane];
    transform_taps(tap, state);
    const long long stage = (long long)(m / BM) * p.chunks + c / KC;
    float* u = p.u + stage * (STATES * KC * BM) + c % KC * BM + m % BM;
#pragma unroll
    for (int s = 0; s < STATES; ++s) u[s * (KC * BM)] = state[s];
  }
}
