// scatter.cuh with rows of dy in shared memory: backward data of strides.
#pragma once

#include "filters.cuh"
#include "stages.cuh"

constexpr int ABOVE = (KH - 1) / SH, OPEN = KH > SH ? KH : SH;

extern "C" __global__ void __launch_bounds__(THREADS + 32)
    winolab_depthwise_staged_scatter(const __grid_constant__ DepthwiseStagedParams params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DepthwiseShared& shared = *reinterpret_cast<DepthwiseShared*>(memory);
  const DepthwiseParams& p = params.p;
  const int first = blockIdx.x % p.chunks * CHANNELS;
  const int begin = blockIdx.x / p.chunks, every = gridDim.x / p.chunks;
  barriers_begin(shared);
  if (threadIdx.x >= THREADS) {
    if (threadIdx.x > THREADS) return;
    Producer producer{shared};
    for (int index = begin; index < p.work_tiles; index += every) {
      const BlockTile at(p, index);
      const int tile = at.segment * p.rows, outputs = min(p.rows, p.tiles_height - tile);
      producer.bring(params, outputs + ABOVE, first, p.first_width + at.strip * STRIPS * TQ - BEFORE,
                     p.first_height + tile - ABOVE, at.depth + p.pad_depth, at.image, 0, 0, 0);
    }
    return;
  }
  const BlockFilters filter(p, first);
  Consumer consumer(shared);
  const int c = first + threadIdx.x % LANES * V, slot = threadIdx.x / LANES;
#pragma unroll 1
  for (int index = begin; index < p.work_tiles; index += every) {
    const BlockTile at(p, index);
    const int tile = at.segment * p.rows, outputs = min(p.rows, p.tiles_height - tile);
    const int row = p.first_height + tile - ABOVE, steps = outputs + ABOVE;
    const int image = at.image + slot / STRIPS;
    const int left = (p.first_width + (at.strip * STRIPS + slot % STRIPS) * TQ) * SW - p.pad_width;
    const int top = row * SH - p.pad_height;  // in dx
    const bool active = c < p.channels && image < p.batch;
    Out* y = p.result + image * p.y_batch + at.depth * p.y_depth + (long long)left * p.y_pixel + c;
    float sum[OPEN][TW][V];
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      consumer.await(step);
      float x[COLS][V];
      consumer.read(step, 0, 0, x);
      if (row + step >= 0 && row + step < p.height)
#pragma unroll
        for (int kh = 0; kh < KH; ++kh) {
          const int reached = step + kh / SH - ABOVE;  // of the segment's tiles
          if (reached < 0 || reached >= outputs) continue;
#pragma unroll
          for (int kw = 0; kw < KW; ++kw)
#pragma unroll
            for (int t = 0; t < TW; ++t)
              if ((t + KW * SW - kw) % SW == 0)
#pragma unroll
                for (int v = 0; v < V; ++v)
                  sum[kh][t][v] = __fmaf_rn(x[(t + KW * SW - kw) / SW - KW + BEFORE][v],
                                            filter.w[kh * KW + kw][v], sum[kh][t][v]);
        }
      consumer.release(step, steps);
#pragma unroll
      for (int s = 0; s < SH; ++s) {
        const int h = top + step * SH + s;
        if (step >= ABOVE && h >= 0 && h < p.out_height && active)
          store_columns(y + h * p.y_row, p.y_pixel, sum[s], -left, p.out_width - left);
      }
#pragma unroll
      for (int i = 0; i < OPEN; ++i)
#pragma unroll
        for (int t = 0; t < TW; ++t)
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[i][t][v] = i + SH < OPEN ? sum[(i + SH) % OPEN][t][v] : 0.0f;
    }
  }
}
