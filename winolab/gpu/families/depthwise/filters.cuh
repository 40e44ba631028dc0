// A block's filters in shared memory, from where every thread takes its channels' to registers.
#pragma once

#include "arrays.cuh"

constexpr int TAPS = KD * KH * KW, FILTER_PITCH = CHANNELS + 1;

struct BlockFilters {
  float w[TAPS][V];

  // For channels of y from ``first`` on; all threads of the block come. ROTATED: taps backwards.
  __device__ __forceinline__ BlockFilters(const DepthwiseParams& p, int first) {
    __shared__ float filters[TAPS * FILTER_PITCH];
    const Element* w = p.other + first * p.w_out;
    const int count = min(CHANNELS, p.channels - first) * TAPS;
    if (p.dense) {
#pragma unroll 4
      for (unsigned i = threadIdx.x; i < count; i += THREADS)
        filters[place(i % TAPS, i / TAPS)] = value(w + i);
    } else {
      for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        const int tap = i % TAPS, kd = tap / (KH * KW), kh = tap / KW % KH, kw = tap % KW;
        filters[place(tap, i / TAPS)] =
            value(w + i / TAPS * p.w_out + kd * p.w_depth + kh * p.w_row + kw * p.w_tap);
      }
    }
    threads_sync();
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
      for (int v = 0; v < V; ++v) this->w[tap][v] = filters[tap * FILTER_PITCH + lane * V + v];
  }

  static __device__ __forceinline__ int place(int tap, int channel) {
    return (ROTATED ? TAPS - 1 - tap : tap) * FILTER_PITCH + channel;
  }
};
