// filter_rows.cuh with rows of x and dy in shared memory: filter gradients.
#pragma once

#include "filter_sums.cuh"
#include "stages.cuh"

constexpr int TAPS = KD * KH * KW, OPEN = (KH + SH - 1) / SH;

extern "C" __global__ void __launch_bounds__(THREADS + 32)
    winolab_depthwise_staged_filter(const __grid_constant__ DepthwiseStagedParams params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DepthwiseShared& shared = *reinterpret_cast<DepthwiseShared*>(memory);
  const DepthwiseParams& p = params.p;
  const int first = blockIdx.x % p.chunks * CHANNELS, share = blockIdx.x / p.chunks;
  barriers_begin(shared);
  if (threadIdx.x >= THREADS) {
    if (threadIdx.x > THREADS) return;
    Producer producer{shared};
    for (int index = share; index < p.work_tiles; index += p.shares) {
      const BlockTile at(p, index);
      const int row = at.segment * p.rows, outputs = min(p.rows, p.out_height - row);
      producer.bring(params, (outputs + OPEN - 1) * SH, first,
                     at.strip * STRIPS * ADVANCE - p.pad_width, row * SH - p.pad_height,
                     at.depth * p.stride_depth - p.pad_depth, at.image, at.strip * STRIPS * TW, row,
                     at.depth);
    }
    return;
  }
  Consumer consumer(shared);
  float acc[TAPS][V];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
    for (int v = 0; v < V; ++v) acc[tap][v] = 0.0f;
#pragma unroll 1
  for (int index = share; index < p.work_tiles; index += p.shares) {
    const BlockTile at(p, index);
    const int row = at.segment * p.rows, outputs = min(p.rows, p.out_height - row);
    const int steps = outputs + OPEN - 1, base = row * SH - p.pad_height;
    float dy[OPEN][TW][V];
#pragma unroll
    for (int i = 0; i < OPEN; ++i)
#pragma unroll
      for (int t = 0; t < TW; ++t)
#pragma unroll
        for (int v = 0; v < V; ++v) dy[i][t][v] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int i = OPEN - 1; i > 0; --i)
#pragma unroll
        for (int t = 0; t < TW; ++t)
#pragma unroll
          for (int v = 0; v < V; ++v) dy[i][t][v] = dy[i - (i > 0)][t][v];
      consumer.await(step);
      consumer.read_dy(step, dy[0]);
#pragma unroll
      for (int q = 0; q < SH; ++q)
#pragma unroll
        for (int kd = 0; kd < KD; ++kd) {
          const int h = base + step * SH + q;
          const bool meets = h >= 0 && h < p.height;
          float x[COLS][V];
          if (meets) consumer.read(step, q, kd, x);
          if (!meets) continue;
          const auto add = [&](int i) {
            const int kh = q + SH * i;
#pragma unroll
            for (int t = 0; t < TW; ++t)
#pragma unroll
              for (int kw = 0; kw < KW; ++kw)
#pragma unroll
                for (int v = 0; v < V; ++v) {
                  float& sum = acc[(kd * KH + kh) * KW + kw][v];
                  sum = __fmaf_rn(x[t * SW + kw][v], dy[i][t][v], sum);
                }
          };
          if (step >= OPEN - 1 && step < outputs) {
#pragma unroll
            for (int i = 0; i < OPEN; ++i)
              if (q + SH * i < KH) add(i);
          } else {
#pragma unroll
            for (int i = 0; i < OPEN; ++i)
              if (q + SH * i < KH && step >= i && step - i < outputs) add(i);
          }
        }
      consumer.release(step, steps);
    }
  }
  next_launch_may_begin();
  add_slots(acc, [&](int tap, int channel, float sum) {
    write_sum(p, share, first + channel, tap / (KH * KW), tap / KW % KH, tap % KW, sum);
  });
}
