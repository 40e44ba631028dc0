// sums.cuh in FP64, AT too, for split products at alpha 16, whose outputs are small against their
// states: sums of a segment round once, in FP32, sums of these no more.
#pragma once

using SegmentSum = double;

__device__ __forceinline__ void sum_segments(const float* m, long long stride, int segments,
                                             SegmentSum (&state)[ALPHA]) {
#pragma unroll 2
  for (int z = 0; z < segments; ++z, m += ALPHA * stride)
#pragma unroll
    for (int s = 0; s < ALPHA; ++s) state[s] = __dadd_rn(state[s], __ldg(m + s * stride));
}
