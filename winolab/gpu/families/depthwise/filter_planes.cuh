// Filter gradients of arrays that lie channels-first: a block has a channel, and its threads tiles of
// ROWS × TW neighbouring positions of dy. Each row of x that they meet, AHEAD of them on their way, is
// multiplied into the sums of all taps, which lie in registers from tile to tile.
#pragma once

#include "pipeline.cuh"
#include "plane_rows.cuh"
#include "shares.cuh"

struct DepthwiseFilterPlanesParams {
  const Element* x;
  const Element* dy;
  Out* dw;
  float* buckets;  // [share][channel][tap], of several shares
  long long x_batch, x_channel, x_row;
  long long y_batch, y_channel, y_row;
  long long w_out, w_row, w_tap;
  long long of_strips, of_segments;  // reciprocals, as quotient() takes them
  int strips_bits, segments_bits;
  int height, width, out_height, out_width;
  int strips, segments, channels;  // of a plane, and dy's
  int first_row, first_column;     // of x, of the first tile's window; columns begin with a vector
  int work_tiles, shares;          // of a channel
};

constexpr int TAPS = KH * KW, WARPS = THREADS / 32;

// The sum that a block has of its channel, x read in vectors of N elements and dy in those of M.
template <int N, int M>
__device__ __forceinline__ void compute(const DepthwiseFilterPlanesParams& p) {
  const int share = blockIdx.x / p.channels, c = blockIdx.x - share * p.channels;
  const Element* of_x = p.x + (c / MULTIPLIER) * p.x_channel;
  const Element* of_dy = p.dy + c * p.y_channel;
  const long long pitch = p.x_row * SIZE, pitch_dy = p.y_row * SIZE;
  float sum[KH][KW];
#pragma unroll
  for (int k = 0; k < KH; ++k)
#pragma unroll
    for (int kw = 0; kw < KW; ++kw) sum[k][kw] = 0.0f;

#pragma unroll 1
  for (unsigned number = share * THREADS + threadIdx.x; number < p.work_tiles;
       number += p.shares * THREADS) {
    const unsigned rows = quotient(number, p.of_strips, p.strips_bits);
    const int strip = number - rows * p.strips;
    const int image = quotient(rows, p.of_segments, p.segments_bits);
    const int segment = rows - image * p.segments;
    const int left = strip * TW, upper = segment * ROWS;
    const char* dy = reinterpret_cast<const char*>(of_dy + image * p.y_batch + upper * p.y_row + left);
    PlaneColumns<M, 0, TW> gradients[ROWS];
#pragma unroll
    for (int o = 0; o < ROWS; ++o) {
      gradients[o].load(dy, upper + o < p.out_height, left, p.out_width);
      dy += pitch_dy;
    }
    const int column = p.first_column + (N > 1 ? 0 : OFFSET) + strip * ALONG.advance();
    const int top = p.first_row + segment * DOWN.advance();
    const char* from =
        reinterpret_cast<const char*>(of_x + image * p.x_batch + top * p.x_row + column);
    PlaneColumns<N, N == 1 ? 0 : OFFSET, WIDTH> read[AHEAD];
#pragma unroll
    for (int r = 0; r < AHEAD; ++r) {
      if (needed(r)) read[r].load(from, (unsigned)(top + r) < (unsigned)p.height, column, p.width);
      from += pitch;
    }
#pragma unroll
    for (int r = 0; r < HEIGHT; ++r) {
      float v[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[i] = needed(r) ? read[r % AHEAD].value(i) : 0.0f;
      const int next = r + AHEAD;
      if (next < HEIGHT) {
        if (needed(next))
          read[r % AHEAD].load(from, (unsigned)(top + next) < (unsigned)p.height, column, p.width);
        from += pitch;
      }
#pragma unroll
      for (int o = 0; o < ROWS; ++o)
#pragma unroll
        for (int k = 0; k < KH; ++k) {
          if (DOWN.met(o, k) != r) continue;
#pragma unroll
          for (int t = 0; t < TW; ++t)
#pragma unroll
            for (int kw = 0; kw < KW; ++kw)
              sum[k][kw] = __fmaf_rn(v[ALONG.met(t, kw)], gradients[o].value(t), sum[k][kw]);
        }
    }
  }

  next_launch_may_begin();
  __shared__ float sums[WARPS][TAPS];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
    float of_warp = sum[tap / KW][tap % KW];
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
      of_warp = __fadd_rn(of_warp, __shfl_xor_sync(0xffffffffu, of_warp, lane));
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][tap] = of_warp;
  }
  __syncthreads();
  for (int tap = threadIdx.x; tap < TAPS; tap += THREADS) {
    float of_block = 0.0f;
    for (int warp = 0; warp < WARPS; ++warp) of_block = __fadd_rn(of_block, sums[warp][tap]);
    if (p.shares == 1)
      store_sum(p.dw + c * p.w_out + tap / KW * p.w_row + tap % KW * p.w_tap, of_block);
    else
      p.buckets[((long long)share * p.channels + c) * TAPS + tap] = of_block;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_filter_planes(const __grid_constant__ DepthwiseFilterPlanesParams p) {
  compute<V, VS>(p);
}

// The same where rows do not begin where vectors do.
extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_filter_planes_any(const __grid_constant__ DepthwiseFilterPlanesParams p) {
  compute<1, 1>(p);
}

constexpr int SUMMED = 32, SLICES = 8;  // elements of a block, and threads of each

// Adds the shares up.
extern "C" __global__ void __launch_bounds__(SUMMED * SLICES)
    winolab_depthwise_filter_planes_sums(const __grid_constant__ DepthwiseFilterPlanesParams p) {
  launch_before_done();
  add_shares<SUMMED, SLICES>(p, (long long)p.channels * TAPS, [&](long long element, float sum) {
    const int tap = (int)(element % TAPS);
    store_sum(p.dw + element / TAPS * p.w_out + tap / KW * p.w_row + tap % KW * p.w_tap, sum);
  });
}
