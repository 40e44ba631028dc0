// Input tiles of nested Winograd, two channels of one in a thread's registers.
#pragma once

#include "input_params.cuh"

extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    winolab_nested_input(const __grid_constant__ InputParams p) {
  next_launch_may_begin();
  if (blockIdx.x < p.describers) {
    describe(p.filter, blockIdx.x);
    launch_before_done();
    return;
  }
  const unsigned block = blockIdx.x - p.describers;
  const int at = (int)((block * INPUT_THREADS + threadIdx.x) / LANES);
  const InputUnit unit(p, at, threadIdx.x % LANES);
  float2 d[IW][IH];  // early: no launch of the call writes x
#pragma unroll
  for (int j = 0; j < IW; ++j)
#pragma unroll
    for (int i = 0; i < IH; ++i) d[j][i] = unit.load(p, i, j);
  launch_before_done();
  const float scale = image_scale(p.header, input_scale(p.header), unit.image);
  if (!unit.stores) return;
  float half[2][AH][IW];  // transformed along the height
#pragma unroll
  for (int j = 0; j < IW; ++j) {
    float pixels[2][IH], states[2][AH];
#pragma unroll
    for (int i = 0; i < IH; ++i)
      pixels[0][i] = scaled(scale, d[j][i].x), pixels[1][i] = scaled(scale, d[j][i].y);
    input_rows(pixels[0], states[0]);
    input_rows(pixels[1], states[1]);
#pragma unroll
    for (int i = 0; i < AH; ++i) half[0][i][j] = states[0][i], half[1][i][j] = states[1][i];
  }
  const long long state_stride = state_words(p);
  unsigned* v = unit.v;
#pragma unroll
  for (int i = 0; i < AH; ++i) {
    float states[2][AW];
    input_columns(half[0][i], states[0]);
    input_columns(half[1][i], states[1]);
#pragma unroll
    for (int j = 0; j < AW; ++j, v += state_stride) store_state(v, states[0][j], states[1][j]);
  }
}
