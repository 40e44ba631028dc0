// A block's filters: each thread brings its part of them at once, waits once, and they lie in shared
// memory as in w, from where every thread takes those of its channels to registers.
#pragma once

#include "arrays.cuh"

constexpr int TAPS = KD * KH * KW;
constexpr int UNITS = LANES * TAPS;  // of V neighbouring elements, since a lane has V filters
constexpr int UNITS_EACH = (UNITS + THREADS - 1) / THREADS;  // of a thread

// A thread's part, for channels of y from ``first`` on. Where w has gaps, or begins where vectors do not,
// nothing is on its way before it is stored.
template <class Params>
struct FiltersOnTheirWay {
  const Params& p;
  const int first, units;
  RawChannels raw[UNITS_EACH];

  __device__ __forceinline__ FiltersOnTheirWay(const Params& p, int first)
      : p(p), first(first), units((int)((unsigned)min(CHANNELS, p.channels - first) / V) * TAPS) {
    if (!p.dense) return;
    const Element* w = p.other + (long long)first * TAPS;
#pragma unroll
    for (int i = 0; i < UNITS_EACH; ++i) {
      const int unit = threadIdx.x + i * THREADS;
      if (unit < units) raw[i] = load(w + unit * V);
    }
  }

  __device__ __forceinline__ void store(Element* filters) const {
    if (p.dense) {
#pragma unroll
      for (int i = 0; i < UNITS_EACH; ++i) {
        const int unit = threadIdx.x + i * THREADS;
        if (unit < units) reinterpret_cast<RawChannels*>(filters)[unit] = raw[i];
      }
    } else {
#pragma unroll 4
      for (unsigned i = threadIdx.x; i < units * V; i += THREADS) {
        const int tap = i % TAPS, kd = tap / (KH * KW), kh = tap / KW % KH, kw = tap % KW;
        filters[i] = p.other[(first + i / TAPS) * p.w_out + kd * p.w_depth + kh * p.w_row +
                             kw * p.w_tap];
      }
    }
  }
};

// Those of a thread's channels. ROTATED: taps backwards.
__device__ __forceinline__ void read_filters(const Element* filters, float (&w)[TAPS][V]) {
  const RawChannels* mine = reinterpret_cast<const RawChannels*>(filters) + threadIdx.x % LANES * TAPS;
#pragma unroll
  for (int i = 0; i < TAPS; ++i) {
    float unit[V];
    widen(mine[i], unit);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int tap = (i * V + v) % TAPS;
      w[ROTATED ? TAPS - 1 - tap : tap][(i * V + v) / TAPS] = unit[v];
    }
  }
}

struct BlockFilters {
  float w[TAPS][V];

  // For channels of y from ``first`` on; all threads of the block come.
  __device__ __forceinline__ BlockFilters(const DepthwiseParams& p, int first) {
    __shared__ __align__(16) Element filters[UNITS * V];
    FiltersOnTheirWay<DepthwiseParams>(p, first).store(filters);
    threads_sync();
    read_filters(filters, w);
  }
};
