// Forward and backward data of few channels that are summed: any number of output channels, filter, stride,
// dilation and addresses.
//
// A thread has V output channels of POSITIONS positions, whose x it reads element by element: the LANES
// of a position ask for the same ones. FEW channels of a tap at a time. Sums are in FP32 registers.
//
// Barriers: all threads, once, when the filter is in shared memory.
#pragma once

#include "positions.cuh"

// Stores V output channels from ``m`` on.
__device__ __forceinline__ void store(const ThinParams& p, Out* y, int m, float (&sum)[V]) {
  y += m;
  if (V > 1 && p.vectors) {
#ifdef EPILOGUE
    finish_channels<V, true>(p.epilogue, sum, y, p.y, m);
#endif
    if constexpr (V > 1 && OUTPUT == 0) {
#pragma unroll
      for (int v = 0; v + 3 < V; v += 4)
        *reinterpret_cast<float4*>(y + v) = make_float4(sum[v], sum[v + 1], sum[v + 2], sum[v + 3]);
    }
    if constexpr (V == 8 && OUTPUT != 0)
      *reinterpret_cast<uint4*>(y) = make_uint4(
          pack<OUTPUT == 2>(sum[0], sum[1]), pack<OUTPUT == 2>(sum[2], sum[3]),
          pack<OUTPUT == 2>(sum[4], sum[5]), pack<OUTPUT == 2>(sum[6], sum[7]));
    return;
  }
#ifdef EPILOGUE
  finish_channels<V, false>(p.epilogue, sum, y, p.y, m);
#endif
#pragma unroll
  for (int v = 0; v < V; ++v) store_sum(y + v, sum[v]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    winolab_thin_channels(const __grid_constant__ ThinParams p) {
  extern __shared__ __align__(16) float filters[];
  const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
  const int first = blockIdx.x % p.blocks_m * WIDTH, m = first + lane * V;
  const int summed = (p.channels + FEW - 1) / FEW * FEW;
  fill<true>(p, filters, first, 1, summed);
  for (int index = blockIdx.x / p.blocks_m; index < p.work_tiles;
       index += gridDim.x / p.blocks_m) {
    const ThinTile tile(p, index);
    float sum[POSITIONS][V];
#pragma unroll
    for (int i = 0; i < POSITIONS; ++i)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[i][v] = 0.0f;
    for_taps(p, tile, tile.first + slot, [&](const Element* (&pixel)[POSITIONS], int tap) {
      const float* filter = filters + tap * summed * WIDTH;
      for (int c = 0; c < p.channels; c += FEW) {
        float x[POSITIONS][FEW];
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i)
#pragma unroll
          for (int k = 0; k < FEW; ++k)
            x[i][k] = pixel[i] && c + k < p.channels ? value(pixel[i] + c + k) : 0.0f;
#pragma unroll
        for (int k = 0; k < FEW; ++k, filter += WIDTH) {
          float w[V];
          taken(filter, lane, w);
#pragma unroll
          for (int i = 0; i < POSITIONS; ++i)
#pragma unroll
            for (int v = 0; v < V; ++v) sum[i][v] = __fmaf_rn(x[i][k], w[v], sum[i][v]);
        }
      }
    });
    const unsigned at = tile.first + slot;
    if (SINGLE && p.flat) {
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i)
        if (at + i * SLOTS < p.out_width && m < p.out_channels)
          store(p, p.y + (long long)(at + i * SLOTS) * p.y_pixel, m, sum[i]);
    } else {
      Place place(p, at);
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i, place.next(p))
        if (Out* y = place.output(p, tile); y && m < p.out_channels) store(p, y, m, sum[i]);
    }
  }
}
