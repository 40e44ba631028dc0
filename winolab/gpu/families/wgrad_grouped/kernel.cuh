// Filter gradients of grouped layers of few channels a group, on mma.sync: any filter, stride and dilation.
//
// A block walks over a share of the work tiles. Outputs' dy and patches of x lie in shared memory, those of the
// next work tiles in the other stages; a tap is an address. A product of 16 bits has 16 output channels, 8
// channels of x and 16 outputs of the work tile, which it sums; one of FP32's TF32 parts has 8 outputs.
// WARP_ROWS warps share the outputs; their sums are added up in shared memory, in one order.
//
// Barriers: all threads, once a work tile: its copies are there and, before the first, places and zeros; the stage
// that is copied to is read. WARP_ROWS > 1 and FP32: behind the last, about what warps have summed.
#pragma once

#include "products.cuh"

// Neighbouring channels of x of an element of dw: output channel m, a tap, the first one's number in its group and
// among all channels.
struct WgradGroupedPair {
  int m, tap, c, channel;
};

// The sum of a share's products again, by one thread on its FFMA unit, where TF32 parts gave none that is finite:
// of infinity low parts are NaN.
__device__ __forceinline__ float again(const WgradGroupedParams& p, const WgradGroupedPair& e, int share) {
  const int rows = e.tap / p.width.taps, kw = e.tap % p.width.taps;
  const int kd = rows / p.height.taps, kh = rows % p.height.taps;
  float sum = 0.0f;
#pragma unroll 1
  for (int index = share; index < p.work_tiles; index += p.shares) {
    const WgradGroupedTile tile(p, index);
    const int d = tile.level * p.depth.stride - p.depth.pad + kd * p.depth.dilation;
    if ((unsigned)d >= (unsigned)p.depth.size) continue;
#pragma unroll 1
    for (int i = 0; i < tile.images * tile.rows; ++i) {
      const int n = tile.n + i / tile.rows, row = tile.row + i % tile.rows;
      const int h = row * p.height.stride - p.height.pad + kh * p.height.dilation;
      if ((unsigned)h >= (unsigned)p.height.size) continue;
      const Element* x = p.x + n * p.x_batch + d * p.x_depth + h * p.x_row + e.channel;
      const Element* dy = p.dy + n * p.dy_batch + tile.level * p.dy_depth + row * p.dy_row +
                          (long long)tile.column * p.dy_pixel + e.m;
#pragma unroll 1
      for (int j = 0; j < tile.columns; ++j) {
        const int w = (tile.column + j) * p.width.stride - p.width.pad + kw * p.width.dilation;
        if ((unsigned)w < (unsigned)p.width.size)
          sum = __fmaf_rn(number(dy + (long long)j * p.dy_pixel), number(x + (long long)w * p.x_pixel), sum);
      }
    }
  }
  return sum;
}

// Stores the sums of two neighbours in dw or in a share's bucket.
__device__ __forceinline__ void store(const WgradGroupedParams& p, WgradGroupedPair e, int share, float (&sum)[2]) {
  const int taps = p.depth.taps * p.height.taps * p.width.taps;
  if (e.tap >= taps || e.m >= p.out_channels) return;
  bool there[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) there[i] = (e.c + i >= 0) & (e.c + i < GROUP_IN);
  if constexpr (INPUT == 0)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (there[i] && sum[i] - sum[i] != 0.0f) sum[i] = again(p, {e.m, e.tap, e.c + i, e.channel + i}, share);
  const long long element = ((long long)e.m * taps + e.tap) * GROUP_IN + e.c;
  if (p.buckets) {
    float* const to = p.buckets + (long long)share * p.out_channels * taps * GROUP_IN + element;
    if (GROUP_IN % 2 == 0) {
      if (there[0]) *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (there[i]) to[i] = sum[i];
    return;
  }
  long long at = element, next = 1;
  if (!p.dense) {
    const int rows = e.tap / p.width.taps, kw = e.tap % p.width.taps;
    const int kd = rows / p.height.taps, kh = rows % p.height.taps;
    at = e.m * p.dw_out + kd * p.dw_depth + kh * p.dw_row + kw * p.dw_tap + e.c * p.dw_in, next = p.dw_in;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (there[i]) store_sum(p.dw + at + i * next, sum[i]);
}

// Adds up what the warps of a unit's piece have, in the order of their rows, and stores it. ``out``, ``channel``: the
// warp's first ones; ``sums``: the block's stages, which nobody reads any longer.
__device__ __forceinline__ void finish(const WgradGroupedParams& p, float* sums, const WgradGroupedSums& acc, int out,
                                       int channel, int first_tap, int share) {
  constexpr int SUMS = TAPS * NT * 4, OF_ROW = UNITS * PIECES * SUMS * 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / (UNITS * PIECES);
  float* const own = sums + warp % (UNITS * PIECES) * (SUMS * 32) + lane;
  if constexpr (WARP_ROWS > 1 || INPUT == 0) {
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TAPS; ++t)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) own[row * OF_ROW + ((t * NT + n) * 4 + e) * 32] = acc[t][n][e];
    __syncthreads();
#pragma unroll 2
    for (int i = 2 * row; i < SUMS; i += 2 * WARP_ROWS) {
      float sum[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sum[e] = own[(i + e) * 32];
#pragma unroll
        for (int other = 1; other < WARP_ROWS; ++other) sum[e] = __fadd_rn(sum[e], own[other * OF_ROW + (i + e) * 32]);
      }
      const int m = out + i % 4 / 2 * 8 + lane / 4, c = channel + i / 4 % NT * 8 + lane % 4 * 2;
      store(p, {m, first_tap + i / (4 * NT), c - m / GROUP_OUT * GROUP_IN, c}, share, sum);
    }
  } else {
#pragma unroll
    for (int t = 0; t < TAPS; ++t)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float sum[2] = {acc[t][n][2 * r], acc[t][n][2 * r + 1]};
          const int m = out + r * 8 + lane / 4, c = channel + n * 8 + lane % 4 * 2;
          store(p, {m, first_tap + t, c - m / GROUP_OUT * GROUP_IN, c}, share, sum);
        }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    winolab_wgrad_grouped(const __grid_constant__ WgradGroupedParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int slice = blockIdx.x % p.slices, rest = blockIdx.x / p.slices;
  const int share = rest / p.tap_blocks, first_tap = rest % p.tap_blocks * TAPS;
  const int out = slice * (UNITS * 16);  // of the slice
  const WgradGroupedPlaces places(memory);
  unsigned char* const stages = places.end(p);
  places.fill(p);
  for (int stage = 0; stage < STAGES; ++stage) {  // of what fills products up
    unsigned char* const after = stages + stage * p.stage + p.patch + p.outputs * DY_PIXEL;
    for (int i = threadIdx.x; i < (p.positions - p.outputs) * (DY_PIXEL / 4); i += THREADS)
      reinterpret_cast<int*>(after)[i] = 0;
  }
  int next = share;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage, next += p.shares) {
    if (next < p.work_tiles) copy_tile(p, WgradGroupedTile(p, next), out, stages + stage * p.stage);
    copy_async_commit();
  }
  const int warp = threadIdx.x / 32, unit = warp % UNITS, piece = warp / UNITS % PIECES;
  const int own_out = out + unit * 16, channel = first_channel(own_out) + piece * (NT * 8);
  const WgradGroupedWarp own(p, first_tap, unit, channel - first_channel(out));
  WgradGroupedSums acc = {};
  int stage = 0, free = STAGES - 1;  // that is multiplied, that is copied to
#pragma unroll 1
  for (int index = share; index < p.work_tiles; index += p.shares, next += p.shares) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    if (next < p.work_tiles) copy_tile(p, WgradGroupedTile(p, next), out, stages + free * p.stage);
    copy_async_commit();
    const unsigned char* const x = stages + stage * p.stage;
    free = stage, stage = stage + 1 < STAGES ? stage + 1 : 0;
    if (own_out >= p.out_channels) continue;
    const WgradGroupedTile tile(p, index);
#pragma unroll 1
    for (int first = warp / (UNITS * PIECES) * 16; first < p.positions; first += WARP_ROWS * 16)
      own.multiply(p, tile, places, x, x + p.patch, first, acc);
  }
  copy_async_wait<0>();
  next_launch_may_begin();
  finish(p, reinterpret_cast<float*>(stages), acc, own_out, channel, first_tap, share);
}
