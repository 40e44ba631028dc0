// The filter of nested Winograd, where a thread's registers do not hold a piece: a block has a row's piece
// and chunk, transforms its columns, and then, through shared memory, what they have of each row.
#pragma once

#include "filter_unit.cuh"

constexpr int STAGED_FILTER = STAGED_THREADS / LANES;  // columns, or rows, at once
struct Wide2 {
  Wide first, second;
};

extern "C" __global__ void __launch_bounds__(STAGED_THREADS)
    winolab_nested_staged_filter(const __grid_constant__ NestedFilterParams p) {
  next_launch_may_begin();
  extern __shared__ __align__(16) unsigned char memory[];
  Wide2* const half = reinterpret_cast<Wide2*>(memory) + threadIdx.x % LANES;  // [AH][RW][LANES]
  const int m = blockIdx.x, unit = blockIdx.y, place = threadIdx.x / LANES;
  const bool inside = m < p.out_channels;
  launch_before_done();
#pragma unroll 1
  for (int first = 0; first < RW; first += STAGED_FILTER) {
    const int j = first + place;  // all lanes of a warp find the scale together
    float taps[2][1][RH];
    read_taps(p, p.w + (inside ? m : 0) * p.m_stride, unit, j, inside && j < RW, taps);
    const float scale = row_scale(p, m, j < RW ? unit * RW + j : -1, taps);
    if (j >= RW) continue;
    Wide columns[2][RH], states[2][AH];
#pragma unroll
    for (int i = 0; i < RH; ++i)
      columns[0][i] = __fmul_rn(scale, taps[0][0][i]), columns[1][i] = __fmul_rn(scale, taps[1][0][i]);
    filter_rows(columns[0], states[0]);
    filter_rows(columns[1], states[1]);
#pragma unroll
    for (int i = 0; i < AH; ++i) half[(i * RW + j) * LANES] = {states[0][i], states[1][i]};
  }
  __syncthreads();
  const FilterPlace to(p, m, unit, gridDim.y);
#pragma unroll 1
  for (int i = place; i < AH; i += STAGED_FILTER) {
    Wide rows[2][RW], states[2][AW];
#pragma unroll
    for (int j = 0; j < RW; ++j) {
      const Wide2 v = half[(i * RW + j) * LANES];
      rows[0][j] = v.first, rows[1][j] = v.second;
    }
    filter_columns(rows[0], states[0]);
    filter_columns(rows[1], states[1]);
    unsigned* u = to.u + i * AW * to.state_stride;
#pragma unroll
    for (int j = 0; j < AW; ++j, u += to.state_stride)
      if (to.stores(i, j)) store_filter(u, m % BM, states[0][j], states[1][j]);
  }
}
