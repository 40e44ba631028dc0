// What threads of a block summed of a filter gradient, added up and written; and the sum of blocks' shares.
#pragma once

#include "arrays.cuh"
#include "shares.cuh"

// Adds ``acc`` of all SLOTS; ``write(tap, channel of the block, sum)``.
template <int COUNT, class Write>
__device__ __forceinline__ void add_slots(const float (&acc)[COUNT][V], Write write) {
  __shared__ float sums[COUNT][SLOTS][CHANNELS];
  const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
#pragma unroll
  for (int tap = 0; tap < COUNT; ++tap)
#pragma unroll
    for (int v = 0; v < V; ++v) sums[tap][slot][lane * V + v] = acc[tap][v];
  threads_sync();
  for (int e = threadIdx.x; e < COUNT * CHANNELS; e += THREADS) {
    const int tap = e / CHANNELS, channel = e % CHANNELS;
    float sum = 0.0f;
    for (int s = 0; s < SLOTS; ++s) sum = __fadd_rn(sum, sums[tap][s][channel]);
    write(tap, channel, sum);
  }
}

// One element of dw, or of a share of it.
__device__ __forceinline__ void write_sum(const DepthwiseParams& p, int share, int channel, int kd,
                                          int kh, int kw, float sum) {
  if (channel >= p.channels) return;
  if (p.shares == 1)
    store_sum(p.result + channel * p.w_out + kd * p.w_depth + kh * p.w_row + kw * p.w_tap, sum);
  else
    p.buckets[((((long long)share * p.channels + channel) * p.taps_depth + kd) * p.taps_height + kh) *
                  p.taps_width + kw] = sum;
}

constexpr int SUMMED = 32, SLICES = 8;  // elements of a block, and threads of each

extern "C" __global__ void __launch_bounds__(SUMMED * SLICES)
    winolab_depthwise_filter_sums(const __grid_constant__ DepthwiseParams p) {
  launch_before_done();
  const int taps = p.taps_depth * p.taps_height * p.taps_width;
  const long long size = (long long)p.channels * taps;
  add_shares<SUMMED, SLICES>(p, size, [&](long long element, float sum) {
    const int tap = (int)(element % taps), kw = tap % p.taps_width;
    const int kh = tap / p.taps_width % p.taps_height, kd = tap / p.taps_width / p.taps_height;
    store_sum(p.result + element / taps * p.w_out + kd * p.w_depth + kh * p.w_row + kw * p.w_tap, sum);
  });
}
