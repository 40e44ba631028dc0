// Compensated sums of the segments' states, for kernel.cuh.
#pragma once

using SegmentSum = float;

// Adds up each state of so many segments, from ``m`` on; a state's plane is ``stride`` from the next.
__device__ __forceinline__ void sum_segments(const float* m, long long stride, int segments,
                                             SegmentSum (&state)[ALPHA]) {
  float lost[ALPHA] = {};
#pragma unroll 4
  for (int z = 0; z < segments; ++z, m += ALPHA * stride) {  // loads of several in flight
    float term[ALPHA];
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) term[s] = __ldg(m + s * stride);
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) {
      const float left = __fsub_rn(term[s], lost[s]), sum = __fadd_rn(state[s], left);
      lost[s] = __fsub_rn(__fsub_rn(sum, state[s]), left);
      state[s] = sum;
    }
  }
}
