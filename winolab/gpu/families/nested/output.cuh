// Outputs of nested Winograd, y = (AT ⊗ AT) M, checked and scaled back (scale.cuh): a tile's of two
// neighbouring channels a thread.
#pragma once

#include "accuracy_check.cuh"
#include "products.cuh"

struct OutputParams {
  const float* m;
  float* y;  // the group's first channel, the chunk's first image
  Header* header;
  const Row* rows;
  long long batch_stride, row_stride, state_stride;  // in elements; of a state: in M
  int pixel_stride, height, width, channels, pitch;
  int tiles_height, tiles_width, pairs, units;  // units: tiles × pairs of channels
  int box_width, box_height, box_images, blocks_width, blocks_height;
};

constexpr int OUTPUT_THREADS = 128;

// Two channels of M, which is read once: in L2 they make room before what is not read yet.
__device__ __forceinline__ float2 read_once(const float* m) {
#if __CUDA_ARCH__ >= 900
  float2 v;
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;"
               : "=f"(v.x), "=f"(v.y)
               : "l"(m), "l"(policy)
               : "memory");
  return v;
#else
  return *reinterpret_cast<const float2*>(m);
#endif
}

extern "C" __global__ void __launch_bounds__(OUTPUT_THREADS)
    winolab_nested_output(const __grid_constant__ OutputParams p) {
  next_launch_may_begin();
  launch_before_done();
  const int unit = (int)(blockIdx.x * (unsigned)OUTPUT_THREADS + threadIdx.x);
  const float back = inverse_of(input_scale(p.header));  // of all lanes
  if (unit >= p.units) return;
  const int channel = unit % p.pairs * 2, tile = unit / p.pairs;
  const int column = tile % p.tiles_width, rest = tile / p.tiles_width;
  const int row = rest % p.tiles_height, image = rest / p.tiles_height;
  const int block = (image / p.box_images * p.blocks_height + row / p.box_height) * p.blocks_width +
                    column / p.box_width;
  const int in_box = (image % p.box_images * p.box_height + row % p.box_height) * p.box_width +
                     column % p.box_width;
  const float* m = p.m + ((long long)block * BN + in_box) * p.pitch + channel;
  float half[2][NH][AW];  // transformed along the height
#pragma unroll
  for (int j = 0; j < AW; ++j) {
    float states[2][AH], sums[2][NH];
#pragma unroll
    for (int i = 0; i < AH; ++i) {
      const float2 pair = read_once(m + (i * AW + j) * p.state_stride);
      states[0][i] = pair.x, states[1][i] = pair.y;
    }
    output_rows(states[0], sums[0]);
    output_rows(states[1], sums[1]);
#pragma unroll
    for (int i = 0; i < NH; ++i) half[0][i][j] = sums[0][i], half[1][i][j] = sums[1][i];
  }
  const int left = p.channels - channel;
  const Factors factors[2] = {Factors(p.rows + channel, back), Factors(p.rows + channel + 1, back)};
  const int y0 = row * NH, x0 = column * NW;
  const int height = min(NH, p.height - y0), width = min(NW, p.width - x0);
  float* to = p.y + image * p.batch_stride + y0 * p.row_stride + (long long)x0 * p.pixel_stride + channel;
  float size[2] = {};
#pragma unroll
  for (int i = 0; i < NH; ++i, to += p.row_stride) {
    float y[2][NW];
    output_columns(half[0][i], y[0]);
    output_columns(half[1][i], y[1]);
#pragma unroll
    for (int j = 0; j < NW; ++j) {
      if (i >= height || j >= width) continue;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        size[c] = __fadd_rn(size[c], fabsf(y[c][j]));
        y[c][j] = __fmul_rn(__fmul_rn(y[c][j], factors[c].first), factors[c].last);
      }
      float* at = to + (long long)j * p.pixel_stride;
      if constexpr (YVEC == 2) {
        *reinterpret_cast<float2*>(at) = make_float2(y[0][j], y[1][j]);
      } else {
        at[0] = y[0][j];
        if (left > 1) at[1] = y[1][j];
      }
    }
  }
  const int count = height * width;
  // Where they are few, a window around them that has CHECKED_OUTPUTS, before them if it can be.
  const int wide = min(p.width, (CHECKED_OUTPUTS + height - 1) / height);
  const int high = max(height, (CHECKED_OUTPUTS + wide - 1) / wide);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    if (c >= left) break;
    const float least = __fmul_rn(factors[c].least, count);
    if (count >= CHECKED_OUTPUTS || size[c] == 0.0f) {
      judge(p.header->flags, size[c], least);
    } else if (!(size[c] >= least && size[c] < __int_as_float(0x7f800000))) {
      const float* from = p.y + image * p.batch_stride + max(0, y0 + height - high) * p.row_stride +
                          (long long)max(0, x0 + width - wide) * p.pixel_stride + channel + c;
      note(p.header, {from, p.row_stride, factors[c], p.pixel_stride, (short)wide, (short)high});
    }
  }
}
