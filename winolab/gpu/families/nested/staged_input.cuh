// Input tiles of nested Winograd, where a thread's registers do not hold one: a block has a tile's chunk of
// channels, transforms its columns, and then, through shared memory, what they have of each row.
#pragma once

#include "input_params.cuh"

constexpr int STAGED_INPUT = STAGED_THREADS / LANES;  // columns, or rows, at once

extern "C" __global__ void __launch_bounds__(STAGED_THREADS)
    winolab_nested_staged_input(const __grid_constant__ InputParams p) {
  next_launch_may_begin();
  if (blockIdx.x < p.describers) {
    if (threadIdx.x < FILTER_THREADS) describe(p.filter, blockIdx.x);
    launch_before_done();
    return;
  }
  extern __shared__ __align__(16) unsigned char memory[];
  const int lane = threadIdx.x % LANES, place = threadIdx.x / LANES;
  float2* const half = reinterpret_cast<float2*>(memory) + lane;  // [AH][IW][LANES]
  const InputUnit unit(p, blockIdx.x - p.describers, lane);
  launch_before_done();
  const float scale = image_scale(p.header, input_scale(p.header), unit.image);
#pragma unroll 1
  for (int j = place; j < IW; j += STAGED_INPUT) {
    float pixels[2][IH], states[2][AH];
#pragma unroll
    for (int i = 0; i < IH; ++i) {
      const float2 v = unit.load(p, i, j);
      pixels[0][i] = scaled(scale, v.x), pixels[1][i] = scaled(scale, v.y);
    }
    input_rows(pixels[0], states[0]);
    input_rows(pixels[1], states[1]);
#pragma unroll
    for (int i = 0; i < AH; ++i) half[(i * IW + j) * LANES] = make_float2(states[0][i], states[1][i]);
  }
  __syncthreads();
  if (!unit.stores) return;
  const long long state_stride = state_words(p);
#pragma unroll 1
  for (int i = place; i < AH; i += STAGED_INPUT) {
    float row[2][IW], states[2][AW];
#pragma unroll
    for (int j = 0; j < IW; ++j) {
      const float2 v = half[(i * IW + j) * LANES];
      row[0][j] = v.x, row[1][j] = v.y;
    }
    input_columns(row[0], states[0]);
    input_columns(row[1], states[1]);
    unsigned* v = unit.v + i * AW * state_stride;
#pragma unroll
    for (int j = 0; j < AW; ++j, v += state_stride) store_state(v, states[0][j], states[1][j]);
  }
}
