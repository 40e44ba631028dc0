// The transformed filter (gamma_filter.cuh) of 16 bits. A block has 128 threads, an outer tap and
// FILTER_CHUNKS chunks of FILTER_M outputs.
#pragma once

#include "fixed_scale.cuh"
#include "gamma_filter.cuh"

extern "C" __global__ void __launch_bounds__(128)
    winolab_gamma_filter_fixed(const __grid_constant__ GammaFilterParams p) {
  next_launch_may_begin();
  const FilterPair pair(p, threadIdx.x, blockIdx.x);
  const FilterUnit first(p, blockIdx.z, blockIdx.y * FILTER_CHUNKS);
  Element raw[FILTER_CHUNKS][2][R];  // early: no launch of the call writes w
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i) {
    FilterUnit unit = first;
    unit.chunk += i;
    read_taps(p, pair, unit, raw[i]);
  }
  launch_before_done();
#pragma unroll
  for (int i = 0; i < FILTER_CHUNKS; ++i) {
    FilterUnit unit = first;
    unit.chunk += i;
    float taps[2][R];
    scale_taps(FIXED_FILTER, raw[i], taps);
    if (unit.chunk < p.chunks) write_states(p, pair, unit, taps);
  }
}
