// Forward, and backward data of unit stride (ROTATED): a thread has V channels of TW columns of y and
// walks down the rows of x. Each row that it reads it multiplies by all filter rows at once, into the
// sums of as many rows of y; the oldest is then whole.
#pragma once

#include "fetch.cuh"
#include "filters.cuh"

constexpr int COLS = (TW - 1) * SW + KW;    // of x that TW outputs meet
constexpr int OPEN = (KH + SH - 1) / SH;    // rows of y that a step's SH rows of x meet

// What one thread walks over. The phase's i-th row of y meets at tap k the row base + every (SH i + k) of x.
struct Walk {
  const DepthwiseParams& p;
  const BlockFilters* w;
  const ThreadTile at;
  const int every, base, plane;
  const int row, outputs, steps;  // of y: the first row and how many; a step brings SH rows of x
  const int column, there, pitch;  // of y: the first column, how many exist, elements between them
  Out* y;  // of the next row
  InputRow<COLS> next;
  float sum[OPEN][TW][V];  // of row - i, as the step counts

  __device__ __forceinline__ Walk(const DepthwiseParams& p, int c, const ThreadTile& at)
      : p(p), w(nullptr), at(at), every(p.phases_height),
        base(at.phase_height - p.pad_height),
        plane(at.depth * p.stride_depth - p.pad_depth), row(at.segment * p.rows),
        outputs(min(p.rows, (p.out_height - at.phase_height + every - 1) / every - row)),
        steps(outputs > 0 ? outputs + OPEN - 1 : 0), column(at.strip * TW),
        there(min(TW, (p.out_width - at.phase_width + p.phases_width - 1) / p.phases_width -
                          column)),
        pitch(p.phases_width * p.y_pixel),
        y(p.result + at.image * p.y_batch + at.depth * p.y_depth + c +
          (at.phase_height + every * row) * p.y_row +
          (long long)(at.phase_width + p.phases_width * column) * p.y_pixel),
        next(p, p.x + at.image * p.x_batch + (p.multiplier == 1 ? c : c / p.multiplier),
             p.x_pixel, at.phase_width - p.pad_width + p.phases_width * column * SW,
             p.phases_width, p.width) {
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = 0.0f;
  }

  __device__ __forceinline__ void fetch(int step, int q, int kd) {
    const int h = base + every * ((row + step) * SH + q), d = plane + kd * p.dilation_depth;
    const bool is = h >= 0 && h < p.height && d >= 0 && d < p.depth && step < steps;
    next.fetch(is, d * p.x_depth + h * p.x_row, p.width);
  }

  // Whether all rows of x and of y are there that a step meets.
  __device__ __forceinline__ bool whole(int step) const {
    const int h = base + every * (row + step) * SH;
    return step >= OPEN - 1 && step < outputs && h >= 0 && h + every * (SH - 1) < p.height &&
           plane >= 0 && plane + (KD - 1) * p.dilation_depth < p.depth;
  }

  template <bool WHOLE>
  __device__ __forceinline__ void advance(int step) {
#pragma unroll
    for (int q = 0; q < SH; ++q)
#pragma unroll
      for (int kd = 0; kd < KD; ++kd) {
        const bool meets = next.there;
        float x[COLS][V];
#pragma unroll
        for (int k = 0; k < COLS; ++k) widen(next.raw[k], x[k]);
        if (kd + 1 < KD)
          fetch(step, q, kd + 1);
        else if (q + 1 < SH)
          fetch(step, q + 1, 0);
        else
          fetch(step + 1, 0, 0);
        if (!WHOLE && !meets) continue;
#pragma unroll
        for (int i = OPEN - 1; i >= 0; --i) {
          const int kh = q + SH * i;
          if (kh >= KH || (!WHOLE && (step < i || step - i >= outputs))) continue;
#pragma unroll
          for (int kw = 0; kw < KW; ++kw)
#pragma unroll
            for (int t = 0; t < TW; ++t)
#pragma unroll
              for (int v = 0; v < V; ++v)
                sum[i][t][v] = __fmaf_rn(x[t * SW + kw][v],
                                         w->w[(kd * KH + kh) * KW + kw][v], sum[i][t][v]);
        }
      }
    if (WHOLE || step >= OPEN - 1) {
#ifdef EPILOGUE
      finish_columns(p, y, pitch, sum[OPEN - 1], there);
#endif
      store_columns(y, pitch, sum[OPEN - 1], 0, there);
      y += every * p.y_row;
    }
#pragma unroll
    for (int i = OPEN - 1; i >= 0; --i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[i][t][v] = i ? sum[i - (i > 0)][t][v] : 0.0f;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_rows(const __grid_constant__ DepthwiseParams p) {
  const int first = blockIdx.x % p.chunks * CHANNELS;
  const int c = first + threadIdx.x % LANES * V;
  const int number = blockIdx.x / p.chunks * SLOTS + threadIdx.x / LANES;
  const bool active = c < p.channels && number < p.work_tiles;
  Walk walk(p, c, ThreadTile(p, active ? number : 0));
  if (active) walk.fetch(0, 0, 0);  // on its way while filters come
  const BlockFilters filter(p, first);
  if (!active) return;
  walk.w = &filter;
  int step = 0;
  for (; step < walk.steps && !walk.whole(step); ++step) walk.advance<false>(step);
  for (; walk.whole(step); ++step) walk.advance<true>(step);
  for (; step < walk.steps; ++step) walk.advance<false>(step);
}
