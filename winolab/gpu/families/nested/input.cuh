// Input tiles of nested Winograd, V = (BT ⊗ BT) x, scaled, as a high and a low FP16 part:
// [state][image][tile row][tile][chunk of 32 channels], 128 bytes each: 32 high parts, then 32 low
// ones. The grid of tiles goes on behind the outputs' by as many as the pieces of a long filter need.
#pragma once

#include "filter.cuh"

struct InputParams {
  const float* x;  // the group's first channel, the chunk's first image
  unsigned* v;
  const Header* header;
  long long batch_stride, row_stride;
  int pixel_stride, height, width, channels, pad_height, pad_width;
  int tiles_height, tiles_width, chunks, units;  // units: tiles × chunks
  NestedFilterParams filter;
  int describers;  // blocks, the first ones, that describe the filter's rows
};

constexpr int INPUT_THREADS = FILTER_THREADS;

// Two neighbouring channels of a pixel, of which ``count`` are.
__device__ __forceinline__ float2 load_two(const float* x, int count) {
  if constexpr (XVEC == 2)
    return count > 0 ? __ldg(reinterpret_cast<const float2*>(x)) : make_float2(0.0f, 0.0f);
  return make_float2(count > 0 ? __ldg(x) : 0.0f, count > 1 ? __ldg(x + 1) : 0.0f);
}

extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    winolab_nested_input(const __grid_constant__ InputParams p) {
  next_launch_may_begin();
  if (blockIdx.x < p.describers) {
    describe(p.filter, blockIdx.x);
    launch_before_done();
    return;
  }
  const unsigned block = blockIdx.x - p.describers;
  const int unit = (int)((block * INPUT_THREADS + threadIdx.x) / 16);
  const int lane = threadIdx.x % 16;
  const bool there = unit < p.units;
  const int chunk = unit % p.chunks, tile = unit / p.chunks;
  const int column = tile % p.tiles_width, rest = tile / p.tiles_width;
  const int row = rest % p.tiles_height, image = rest / p.tiles_height;
  const int channel = chunk * 32 + lane * 2, count = there ? p.channels - channel : 0;
  const int y0 = row * NH - p.pad_height, x0 = column * NW - p.pad_width;
  const float* from = p.x + image * p.batch_stride + y0 * p.row_stride +
                      (long long)x0 * p.pixel_stride + channel;
  float2 d[AW][AH];  // early: no launch of the call writes x
#pragma unroll
  for (int j = 0; j < AW; ++j)
#pragma unroll
    for (int i = 0; i < AH; ++i) {
      const bool inside = (unsigned)(y0 + i) < (unsigned)p.height && (unsigned)(x0 + j) < (unsigned)p.width;
      d[j][i] = load_two(from + i * p.row_stride + (long long)j * p.pixel_stride, inside ? count : 0);
    }
  launch_before_done();
  const float scale = input_scale(p.header);
  if (!there) return;
  float half[2][AH][AW];  // transformed along the height
#pragma unroll
  for (int j = 0; j < AW; ++j) {
    float pixels[2][AH], states[2][AH];
#pragma unroll
    for (int i = 0; i < AH; ++i)
      pixels[0][i] = scaled(scale, d[j][i].x), pixels[1][i] = scaled(scale, d[j][i].y);
    input_rows(pixels[0], states[0]);
    input_rows(pixels[1], states[1]);
#pragma unroll
    for (int i = 0; i < AH; ++i) half[0][i][j] = states[0][i], half[1][i][j] = states[1][i];
  }
  const long long state_stride = (long long)p.units * ROW_WORDS;
  unsigned* v = p.v + (long long)unit * ROW_WORDS + lane;
#pragma unroll
  for (int i = 0; i < AH; ++i) {
    float states[2][AW];
    input_columns(half[0][i], states[0]);
    input_columns(half[1][i], states[1]);
#pragma unroll
    for (int j = 0; j < AW; ++j, v += state_stride) {
      unsigned parts[PARTS];
      split(states[0][j], states[1][j], parts);
      v[0] = parts[0], v[ROW_WORDS / 2] = parts[1];
    }
  }
}
