// The filter of nested Winograd, two channels of a row's piece in a thread's registers; LANES lanes have a
// row, a block's have the same piece and chunk.
#pragma once

#include "filter_unit.cuh"

extern "C" __global__ void __launch_bounds__(FILTER_THREADS)
    winolab_nested_filter(const __grid_constant__ NestedFilterParams p) {
  next_launch_may_begin();
  const int m = blockIdx.x * FILTER_ROWS + threadIdx.x / LANES, unit = blockIdx.y;
  const bool inside = m < p.out_channels;
  float taps[2][RW][RH];
  read_taps(p, p.w + (inside ? m : 0) * p.m_stride, unit, 0, inside, taps);
  launch_before_done();
  const float scale = row_scale(p, m, unit, taps);
  const FilterPlace to(p, m, unit, gridDim.y);
  Wide half[2][AH][RW];  // transformed along the height
#pragma unroll
  for (int e = 0; e < 2; ++e)
#pragma unroll
    for (int j = 0; j < RW; ++j) {
      Wide column[RH], states[AH];
#pragma unroll
      for (int i = 0; i < RH; ++i) column[i] = __fmul_rn(scale, taps[e][j][i]);
      filter_rows(column, states);
#pragma unroll
      for (int i = 0; i < AH; ++i) half[e][i][j] = states[i];
    }
  unsigned* u = to.u;
#pragma unroll
  for (int i = 0; i < AH; ++i) {
    Wide states[2][AW];
    filter_columns(half[0][i], states[0]);
    filter_columns(half[1][i], states[1]);
#pragma unroll
    for (int j = 0; j < AW; ++j, u += to.state_stride)
      if (to.stores(i, j)) store_filter(u, m % BM, states[0][j], states[1][j]);
  }
}
