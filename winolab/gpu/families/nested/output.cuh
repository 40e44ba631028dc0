// Outputs of nested Winograd, y = (AT ⊗ AT) M, checked and scaled back: a tile's of two neighbouring
// channels a thread.
#pragma once

#include "output_unit.cuh"

extern "C" __global__ void __launch_bounds__(OUTPUT_THREADS)
    winolab_nested_output(const __grid_constant__ OutputParams p) {
  next_launch_may_begin();
  launch_before_done();
  const int index = (int)(blockIdx.x * (unsigned)OUTPUT_THREADS + threadIdx.x);
  const float scale = input_scale(p.header);  // of all lanes
  if (index >= p.units) return;
  const OutputUnit unit(p, index);
  const float back = inverse_of(image_scale(p.header, scale, unit.image));
  float half[2][NH][AW];  // transformed along the height
#pragma unroll
  for (int j = 0; j < AW; ++j) {
    float sums[2][NH];
    unit.column(p, j, sums);
#pragma unroll
    for (int i = 0; i < NH; ++i) half[0][i][j] = sums[0][i], half[1][i][j] = sums[1][i];
  }
  const int left = p.channels - unit.channel;
  TileOutputs outputs(p.rows + unit.channel, back);
#pragma unroll
  for (int i = 0; i < NH; ++i) {
    float y[2][NW];
    output_columns(half[0][i], y[0]);
    output_columns(half[1][i], y[1]);
#pragma unroll
    for (int j = 0; j < NW; ++j) {
      if (i >= unit.height || j >= unit.width) continue;
      float both[2] = {y[0][j], y[1][j]};
      outputs.add(both);
      store_two(unit.at(p, i, j), both, left);
    }
  }
  outputs.check(p, unit.y, unit.y0 + unit.height, unit.x0 + unit.width, unit.height, unit.width, left);
}
