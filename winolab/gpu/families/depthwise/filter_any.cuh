// Filter gradients of any filter, stride, dilation and multiplier: a block has TOGETHER taps of a filter
// row, a thread one channel of them. SLIDE: unit stride, as any.cuh.
#pragma once

#include "filter_sums.cuh"

constexpr int TOGETHER = 8, WINDOW = TW + TOGETHER - 1;

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_filter_any(const __grid_constant__ DepthwiseParams p) {
  int block = blockIdx.x;
  const int first = block % p.chunks * CHANNELS, groups = (p.taps_width + TOGETHER - 1) / TOGETHER;
  block /= p.chunks;
  const int k0 = block % groups * TOGETHER;
  block /= groups;
  const int kh = block % p.taps_height;
  block /= p.taps_height;
  const int kd = block % p.taps_depth, share = block / p.taps_depth;
  const int c = first + threadIdx.x % LANES;
  float acc[TOGETHER][1];
#pragma unroll
  for (int k = 0; k < TOGETHER; ++k) acc[k][0] = 0.0f;

  const int bound = c < p.channels ? p.work_tiles : 0, every = p.phases_width;
  for (int number = share * SLOTS + threadIdx.x / LANES; number < bound; number += p.shares * SLOTS) {
    const ThreadTile at(p, number);
    const int d = at.depth * p.stride_depth - p.pad_depth + kd * p.dilation_depth;
    const int h = at.segment * p.stride_height - p.pad_height + kh * p.dilation_height;
    if (d < 0 || d >= p.depth || h < 0 || h >= p.height) continue;
    const int left = at.phase_width + every * at.strip * TW;  // column of dy
    const Element* row = p.x + at.image * p.x_batch + d * p.x_depth + h * p.x_row +
                         c / p.multiplier;
    const Element* from = p.other + at.image * p.y_batch + at.depth * p.y_depth +
                          at.segment * p.y_row + c;
    float x[SLIDE ? WINDOW : 1], dy[TW];
#pragma unroll
    for (int t = 0; t < TW; ++t) {
      const int w = left + every * t;
      dy[t] = w < p.out_width ? value(from + (long long)w * p.y_pixel) : 0.0f;
    }
    if constexpr (SLIDE)
#pragma unroll
      for (int i = 0; i < WINDOW; ++i) {
        const int w = left - p.pad_width + every * (k0 + i);
        x[i] = w >= 0 && w < p.width ? value(row + (long long)w * p.x_pixel) : 0.0f;
      }
#pragma unroll
    for (int t = 0; t < TW; ++t) {
      if (left + every * t >= p.out_width) continue;
#pragma unroll
      for (int k = 0; k < TOGETHER; ++k) {
        if constexpr (SLIDE) {
          acc[k][0] = __fmaf_rn(x[t + k], dy[t], acc[k][0]);
        } else {
          const int w = (left + t) * p.stride_width - p.pad_width + (k0 + k) * p.dilation_width;
          if (k0 + k < p.taps_width && w >= 0 && w < p.width)
            acc[k][0] = __fmaf_rn(value(row + (long long)w * p.x_pixel), dy[t], acc[k][0]);
        }
      }
    }
  }
  next_launch_may_begin();
  add_slots(acc, [&](int tap, int channel, float sum) {
    if (k0 + tap < p.taps_width) write_sum(p, share, first + channel, kd, kh, k0 + tap, sum);
  });
}
