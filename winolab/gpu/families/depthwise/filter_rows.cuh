// Filter gradients: a thread has V channels of all taps in registers and walks down strips of TW columns
// of dy. Each row of x that it reads meets the rows of dy before it, which it keeps.
#pragma once

#include "fetch.cuh"
#include "filter_sums.cuh"

constexpr int TAPS = KD * KH * KW, COLS = (TW - 1) * SW + KW, OPEN = (KH + SH - 1) / SH;

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_filter_rows(const __grid_constant__ DepthwiseParams p) {
  const int first = blockIdx.x % p.chunks * CHANNELS, share = blockIdx.x / p.chunks;
  const int c = first + threadIdx.x % LANES * V;
  float acc[TAPS][V];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
    for (int v = 0; v < V; ++v) acc[tap][v] = 0.0f;

  const int bound = c < p.channels ? p.work_tiles : 0;
  for (int number = share * SLOTS + threadIdx.x / LANES; number < bound; number += p.shares * SLOTS) {
    const ThreadTile at(p, number);
    const int every = p.phases_height, base = at.phase_height - p.pad_height;
    const int row = at.segment * p.rows;
    const int outputs = min(p.rows, (p.out_height - at.phase_height + every - 1) / every - row);
    const int plane = at.depth * p.stride_depth - p.pad_depth;
    const int column = at.phase_width + p.phases_width * at.strip * TW;
    InputRow<COLS> next(p, p.x + at.image * p.x_batch + (p.multiplier == 1 ? c : c / p.multiplier),
                   p.x_pixel, at.phase_width - p.pad_width + p.phases_width * at.strip * TW * SW,
                   p.phases_width, p.width);
    InputRow<TW> kept(p, p.other + at.image * p.y_batch + at.depth * p.y_depth + c, p.y_pixel, column,
                 p.phases_width, p.out_width);
    const int steps = outputs > 0 ? outputs + OPEN - 1 : 0;
    const auto fetch = [&](int step, int q, int kd) {
      const int h = base + every * ((row + step) * SH + q), d = plane + kd * p.dilation_depth;
      const bool there = h >= 0 && h < p.height && d >= 0 && d < p.depth && step < steps;
      next.fetch(there, d * p.x_depth + h * p.x_row, p.width);
    };
    const auto fetch_dy = [&](int step) {
      kept.fetch(step < outputs, (at.phase_height + every * (row + step)) * p.y_row, p.out_width);
    };
    float dy[OPEN][TW][V];
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) dy[i][t][v] = 0.0f;
    fetch_dy(0);
    fetch(0, 0, 0);
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int i = OPEN - 1; i > 0; --i)
#pragma unroll
        for (int t = 0; t < TW; ++t)
#pragma unroll
          for (int v = 0; v < V; ++v) dy[i][t][v] = dy[i - (i > 0)][t][v];
#pragma unroll
      for (int t = 0; t < TW; ++t) widen(kept.raw[t], dy[0][t]);
      fetch_dy(step + 1);
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
          if (!meets) continue;
#pragma unroll
          for (int i = 0; i < OPEN; ++i) {
            const int kh = q + SH * i;
            if (kh >= KH || step < i || step - i >= outputs) continue;
#pragma unroll
            for (int t = 0; t < TW; ++t)
#pragma unroll
              for (int kw = 0; kw < KW; ++kw)
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  float& sum = acc[(kd * KH + kh) * KW + kw][v];
                  sum = __fmaf_rn(x[t * SW + kw][v], dy[i][t][v], sum);
                }
          }
        }
    }
  }
  next_launch_may_begin();
  add_slots(acc, [&](int tap, int channel, float sum) {
    write_sum(p, share, first + channel, tap / (KH * KW), tap / KW % KH, tap % KW, sum);
  });
}
