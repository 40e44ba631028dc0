// What follows the products of Ωα(n, r) on Tensor Cores: winolab_wgrad_winograd_finish adds the segments up and
// applies AT; split products have a budget of what their low parts may have lost, which results must
// stand well above (winolab_wgrad_winograd_budget, fallback.cuh).
#pragma once

#include PRODUCTS_FILE
#include SUMS_FILE

struct FinishParams {
  const float* m;  // [segment][state][tap of the slice][outputs, padded][channels, padded]
  Output* dw;
  long long dw_out, dw_depth, dw_row, dw_tap;  // strides in elements; channels are contiguous
  int out_channels, channels, padded_out, padded;
  int taps, first_tap, taps_height, pieces, taps_width, segments;
  const float2* budget;  // null where results are not checked
  int* flags;
  float least;  // of the sum of |dw| of N taps, times the budget
};

// Where the product of two blocks' scales underflows, their positions are left out of the sums: up
// to 2^-149 · 2^28 each, as much as a block of this scale may lose in low parts.
constexpr float DROPPED = 1.0f / (1ull << 54) / (1ull << 54);

// The sum of the products of two blocks' scales over a tap's steps, and the largest of them: sum
// times largest is at least the sum of their squares. A block of threads has 64 × 64 channels.
extern "C" __global__ void __launch_bounds__(256, 4)
    winolab_wgrad_winograd_budget(const __grid_constant__ GemmParams p) {
  launch_before_done();
  if constexpr (PARTS == 2) {
    __shared__ float sums[8];
    __shared__ float largest[8];
    const GemmWorkTile work(p, blockIdx.y * p.tiles_m * p.tiles_n);
    const int block_v = blockIdx.x % p.v_blocks, block_u = blockIdx.x / p.v_blocks;
    const float* u_scale = p.u_scale + block_u * (p.u_positions / KS);
    const float* v_scale =
        p.v_scale + ((long long)work.piece * p.v_blocks + block_v) * (p.v_positions / KS);
    float sum = 0.0f, most = 0.0f;
    for (int step = threadIdx.x; step < work.end; step += 256) {
      const Cursor at(work, step);
      const float u = __ldg(u_scale + at.u / KS), v = __ldg(v_scale + at.v / KS);
      float scale = __fmul_rn(fabsf(u), fabsf(v));
      const bool underflow = scale == 0.0f && u != 0.0f && v != 0.0f;
      if (u < 0.0f || v < 0.0f || underflow) p.flags[TINY] = 1;
      if (underflow) scale = DROPPED;
      sum = __fadd_rn(sum, scale), most = fmaxf(most, scale);
    }
#pragma unroll
    for (int lane = 16; lane; lane /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, lane));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
    }
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum, largest[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x) return;
#pragma unroll
    for (int i = 1; i < 8; ++i) sum = __fadd_rn(sum, sums[i]), most = fmaxf(most, largest[i]);
    float2* to = reinterpret_cast<float2*>(p.m) + (long long)blockIdx.y * gridDim.x + blockIdx.x;
    const float2 before = p.accumulate ? *to : make_float2(0.0f, 0.0f);
    *to = make_float2(__fadd_rn(sum, before.x), fmaxf(most, before.y));
  }
}

__device__ __forceinline__ void store(Output* to, float value) {
  if constexpr (OUTPUT == 0)
    *to = value;
  else
    *to = (unsigned short)pack<OUTPUT == 2>(value, 0.0f);
}

// dw = AT of the sums of the segments (sums*.cuh): one channel of one tap's piece a thread.
extern "C" __global__ void __launch_bounds__(256)
    winolab_wgrad_winograd_finish(const __grid_constant__ FinishParams p) {
  const int index = blockIdx.x * 256 + threadIdx.x;
  const int out = index / p.channels, channel = index - out * p.channels;
  if (out >= p.out_channels) return;
  int tap = p.first_tap + blockIdx.y;
  const int piece = tap % p.pieces;
  tap /= p.pieces;
  const int fh = tap % p.taps_height, fd = tap / p.taps_height;
  const long long plane = (long long)p.padded_out * p.padded, stride = p.taps * plane;
  const float* m = p.m + blockIdx.y * plane + (long long)out * p.padded + channel;
  SegmentSum state[ALPHA] = {};
  float taps[N];
  launch_before_done();
  sum_segments(m, stride, p.segments, state);
  transform_output(state, taps);
  if (PARTS == 2 && p.budget) {
    const int pair = (blockIdx.y * (p.padded_out / 64) + out / 64) * (p.padded / 64) + channel / 64;
    const float2 budget = __ldg(p.budget + pair);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum = __fadd_rn(sum, fabsf(taps[i]));
    judge(p.flags, sum, __fmul_rn(p.least, __fmul_rn(sqrtf(budget.x), sqrtf(budget.y))));
  }
  Output* dw = p.dw + out * p.dw_out + fd * p.dw_depth + fh * p.dw_row + channel;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (piece * N + i < p.taps_width)
      store(dw + (piece * N + i) * p.dw_tap, __fmul_rn(taps[i], 1 / (HALVED * HALVED)));
}
