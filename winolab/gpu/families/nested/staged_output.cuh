// Outputs of nested Winograd, where a thread's registers do not hold a tile's: a block has 64 channels of
// one, transforms the columns of states, and then, through shared memory, what they have of each row.
#pragma once

#include "output_unit.cuh"

constexpr int STAGED_LANES = 32, STAGED_OUTPUT = STAGED_THREADS / STAGED_LANES;

extern "C" __global__ void __launch_bounds__(STAGED_THREADS)
    winolab_nested_staged_output(const __grid_constant__ OutputParams p) {
  next_launch_may_begin();
  launch_before_done();
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float2 sizes[NH][STAGED_LANES];
  const int lane = threadIdx.x % STAGED_LANES, place = threadIdx.x / STAGED_LANES;
  float2* const half = reinterpret_cast<float2*>(memory) + lane;  // [NH][AW][STAGED_LANES]
  const float scale = input_scale(p.header);                      // of all lanes
  const int groups = (p.pairs + STAGED_LANES - 1) / STAGED_LANES;
  const int tile = blockIdx.x / groups, pair = blockIdx.x % groups * STAGED_LANES + lane;
  const bool there = pair < p.pairs;
  const OutputUnit unit(p, tile * p.pairs + (there ? pair : 0));
  const float back = inverse_of(image_scale(p.header, scale, unit.image));
#pragma unroll 1
  for (int j = place; j < AW; j += STAGED_OUTPUT) {
    float sums[2][NH];
    unit.column(p, j, sums);
#pragma unroll
    for (int i = 0; i < NH; ++i)
      half[(i * AW + j) * STAGED_LANES] = make_float2(sums[0][i], sums[1][i]);
  }
  __syncthreads();
  const int left = there ? p.channels - unit.channel : 0;
  const Row* const rows = p.rows + unit.channel;
#pragma unroll 1
  for (int i = place; i < NH; i += STAGED_OUTPUT) {
    float row[2][AW], y[2][NW];
#pragma unroll
    for (int j = 0; j < AW; ++j) {
      const float2 v = half[(i * AW + j) * STAGED_LANES];
      row[0][j] = v.x, row[1][j] = v.y;
    }
    output_columns(row[0], y[0]);
    output_columns(row[1], y[1]);
    TileOutputs outputs(rows, back);
#pragma unroll
    for (int j = 0; j < NW; ++j) {
      if (i >= unit.height || j >= unit.width || left <= 0) continue;
      float both[2] = {y[0][j], y[1][j]};
      outputs.add(both);
      store_two(unit.at(p, i, j), both, left);
    }
    outputs.keep(sizes[i][lane]);
  }
  __syncthreads();
  if (place != 0 || left <= 0) return;
  TileOutputs outputs(rows, back);
#pragma unroll
  for (int i = 0; i < NH; ++i) outputs.take(sizes[i][lane]);
  outputs.check(p, unit.y, unit.y0 + unit.height, unit.x0 + unit.width, unit.height, unit.width, left);
}
