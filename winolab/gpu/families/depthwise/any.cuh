// Forward and backward data of any filter, stride, dilation and multiplier: a thread has one channel of
// TW columns of a row of y. ROTATED: backward data of unit stride, as a correlation with taps
// backwards. GATHER: backward data of strides, dy (here x) where a tap meets it. SLIDE: unit stride,
// so that of a phase's outputs, every dilation-th, neighbours meet the same columns of x.
#pragma once

#include "arrays.cuh"

constexpr int STAGED = 32, TOGETHER = 8;  // taps in shared memory, and in registers
constexpr int WINDOW = TW + TOGETHER - 1;
constexpr bool DATA = ROTATED || GATHER;

// The place in x that output o meets at tap k; false where it has none.
__device__ __forceinline__ bool met(int o, int k, int stride, int dilation, int pad, int size,
                                    int& place) {
  if constexpr (GATHER) {
    const int from = o + pad - k * dilation;
    place = from / stride;
    return from >= 0 && from % stride == 0 && place < size;
  }
  place = o * stride - pad + k * dilation;
  return place >= 0 && place < size;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_depthwise_any(const __grid_constant__ DepthwiseParams p) {
  __shared__ float filters[STAGED][CHANNELS + 1];
  const int first = blockIdx.x % p.chunks * CHANNELS;
  const int lane = threadIdx.x % LANES, c = first + lane;
  const int number = blockIdx.x / p.chunks * SLOTS + threadIdx.x / LANES;
  const bool active = c < p.channels && number < p.work_tiles;
  const ThreadTile at(p, active ? number : 0);
  const int every = p.phases_width;
  const int left = at.phase_width + every * at.strip * TW;  // column of y
  float sum[TW];
#pragma unroll
  for (int t = 0; t < TW; ++t) sum[t] = 0.0f;

  const int sums = DATA ? p.multiplier : 1;
  for (int m = 0; m < sums; ++m) {
    const Element* image =
        p.x + at.image * p.x_batch + (DATA ? c * p.multiplier + m : c / p.multiplier);
    for (int kd = 0; kd < p.taps_depth; ++kd)
      for (int kh = 0; kh < p.taps_height; ++kh) {
        int d, h;
        const bool deep = met(at.depth, kd, p.stride_depth, p.dilation_depth, p.pad_depth, p.depth,
                              d);
        const bool there = met(at.segment, kh, p.stride_height, p.dilation_height, p.pad_height,
                               p.height, h) && deep && active;
        const Element* row = image + d * p.x_depth + h * p.x_row;
        for (int staged = 0; staged < p.taps_width; staged += STAGED) {
          const int count = min(STAGED, p.taps_width - staged);
          __syncthreads();
          for (int i = threadIdx.x; i < count * CHANNELS; i += THREADS) {
            const int of = i / count, tap = i % count, kw = staged + tap;
            const int channel = DATA ? (first + of) * p.multiplier + m : first + of;
            const Element* from = p.other + channel * p.w_out +
                                  (ROTATED ? p.taps_depth - 1 - kd : kd) * p.w_depth +
                                  (ROTATED ? p.taps_height - 1 - kh : kh) * p.w_row +
                                  (ROTATED ? p.taps_width - 1 - kw : kw) * p.w_tap;
            filters[tap][of] = first + of < p.channels ? value(from) : 0.0f;
          }
          __syncthreads();
          if (!there) continue;
          for (int k0 = 0; k0 < count; k0 += TOGETHER) {
            float x[SLIDE ? WINDOW : 1];
            if constexpr (SLIDE) {
              const int from = left - p.pad_width + every * (staged + k0);
#pragma unroll
              for (int i = 0; i < WINDOW; ++i) {
                const int w = from + every * i;
                const bool is = w >= 0 && w < p.width && i < TW - 1 + count - k0;
                x[i] = is ? value(row + (long long)w * p.x_pixel) : 0.0f;
              }
            }
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
              if (k0 + k >= count) continue;
              const float tap = filters[k0 + k][lane];
#pragma unroll
              for (int t = 0; t < TW; ++t) {
                if constexpr (SLIDE) {
                  sum[t] = __fmaf_rn(x[t + k], tap, sum[t]);
                } else {
                  int w;
                  if (met(left + t, staged + k0 + k, p.stride_width, p.dilation_width, p.pad_width,
                          p.width, w))
                    sum[t] = __fmaf_rn(value(row + (long long)w * p.x_pixel), tap, sum[t]);
                }
              }
            }
          }
        }
      }
  }
  if (!active) return;
  Out* y = p.result + at.image * p.y_batch + at.depth * p.y_depth + at.segment * p.y_row + c;
#pragma unroll
  for (int t = 0; t < TW; ++t) {
    const int w = left + every * t;
#ifdef EPILOGUE
    if (w < p.out_width)
      sum[t] = finish_channel(p.epilogue, sum[t], y + (long long)w * p.y_pixel, p.result, c);
#endif
    if (w < p.out_width) store_sum(y + (long long)w * p.y_pixel, sum[t]);
  }
}
