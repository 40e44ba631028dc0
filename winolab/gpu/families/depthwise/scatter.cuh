// Backward data of strides: a thread has V channels of TW columns of dx and walks down the rows of dy.
// Row j of dy (here x) reaches, by filter row k, row j SH + k of dx (here y), counted from its padding.
#pragma once

#include "fetch.cuh"
#include "filters.cuh"

constexpr int TQ = TW / SW;                                  // columns of dy whose windows begin here
constexpr int BEFORE = (KW - 1) / SW, COLS = TQ + BEFORE;    // of dy that reach them
constexpr int ABOVE = (KH - 1) / SH, OPEN = KH > SH ? KH : SH;

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_scatter(const __grid_constant__ DepthwiseParams p) {
  const int first = blockIdx.x % p.chunks * CHANNELS;
  const BlockFilters filter(p, first);
  const int c = first + threadIdx.x % LANES * V;
  const int number = blockIdx.x / p.chunks * SLOTS + threadIdx.x / LANES;
  if (c >= p.channels || number >= p.work_tiles) return;
  const ThreadTile at(p, number);
  const int tile = at.segment * p.rows, outputs = min(p.rows, p.tiles_height - tile);
  const int row = p.first_height + tile - ABOVE;  // of dy, the first that is read
  const int column = p.first_width + at.strip * TQ;
  InputRow<COLS> next(p, p.x + at.image * p.x_batch + c, p.x_pixel, column - BEFORE, 1, p.width);
  const int steps = outputs + ABOVE;
  const auto fetch = [&](int step, int kd) {
    const int h = row + step, from = at.depth + p.pad_depth - kd * p.dilation_depth;
    const int d = from / p.stride_depth;
    const bool there = h >= 0 && h < p.height && from >= 0 && from % p.stride_depth == 0 &&
                       d < p.depth && step < steps;
    next.fetch(there, d * p.x_depth + h * p.x_row, p.width);
  };

  const int left = column * SW - p.pad_width, top = row * SH - p.pad_height;  // in dx
  Out* y = p.result + at.image * p.y_batch + at.depth * p.y_depth + c +
           (long long)left * p.y_pixel;
  float sum[OPEN][TW][V];
#pragma unroll
  for (int i = 0; i < OPEN; ++i)
#pragma unroll
    for (int t = 0; t < TW; ++t)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[i][t][v] = 0.0f;

  fetch(0, 0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int kd = 0; kd < KD; ++kd) {
      const bool meets = next.there;
      float x[COLS][V];
#pragma unroll
      for (int k = 0; k < COLS; ++k) widen(next.raw[k], x[k]);
      if (kd + 1 < KD)
        fetch(step, kd + 1);
      else
        fetch(step + 1, 0);
      if (!meets) continue;
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
                                          filter.w[(kd * KH + kh) * KW + kw][v], sum[kh][t][v]);
      }
    }
#pragma unroll
    for (int s = 0; s < SH; ++s) {
      const int h = top + step * SH + s;
      if (step >= ABOVE && h >= 0 && h < p.out_height)
        store_columns(y + h * p.y_row, p.y_pixel, sum[s], -left, p.out_width - left);
    }
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = i + SH < OPEN ? sum[(i + SH) % OPEN][t][v] : 0.0f;
  }
}
