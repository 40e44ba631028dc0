// Direct forward and backward data with any stride and dilation on FFMA units: any channels, addresses
// and compute capability, and what computes again where split products lost accuracy.
//
// A block has POSITIONS outputs of a phase × CHANNELS output channels, a thread 4 × 4 of them; a step
// is DEPTH channels of a tap. Roles: all threads load a step's numbers, then multiply them.
//
// Barriers: all threads, when a step's numbers are there, and when they have been read.
#pragma once

#include "fallback.cuh"
#include "axes.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif

struct DirectFfmaParams {
  const float* x;
  const float* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  float* y;
  const int* flags;  // that have to ask for it, or null
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;  // strides in elements
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int x_pixel, y_pixel;
  int batch, depth, height, width, out_depth, out_height, out_width;
  int channels, out_channels, blocks_m, blocks_n;  // blocks_n: of a phase
  int pad_depth, pad_height, pad_width, taps_depth, taps_height, taps_width;
  DirectAxis along_depth, along_height, along_width;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int THREADS = 256, POSITIONS = 64, CHANNELS = 64, DEPTH = 16;

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_direct_ffma(const __grid_constant__ DirectFfmaParams p) {
  if (p.flags && !wanted(p.flags) && !p.flags[CONFIRMED]) return;
  __shared__ __align__(16) float xs[DEPTH][POSITIONS + 4];
  __shared__ __align__(16) float ws[DEPTH][CHANNELS + 4];
  int index = blockIdx.x;
  const int first_channel = index % p.blocks_m * CHANNELS;
  index /= p.blocks_m;
  const int first = index % p.blocks_n * POSITIONS;
  index /= p.blocks_n;
  const Taps tw(p.along_width, index % p.along_width.phases, p.taps_width, p.pad_width);
  index /= p.along_width.phases;
  const Taps th(p.along_height, index % p.along_height.phases, p.taps_height, p.pad_height);
  const Taps td(p.along_depth, index / p.along_height.phases, p.taps_depth, p.pad_depth);
  struct OutputPlace {
    int n, d, h, w;
  };
  const auto place = [&](int at) {
    OutputPlace found;
    found.w = at % p.along_width.outputs, at /= p.along_width.outputs;
    found.h = at % p.along_height.outputs, at /= p.along_height.outputs;
    found.d = at % p.along_depth.outputs, found.n = at / p.along_depth.outputs;
    return found;
  };
  const int mine = threadIdx.x / 4, part = threadIdx.x % 4 * 4;  // loaded: position or channel, depth
  const OutputPlace from = place(first + mine);
  const bool has_row = first_channel + mine < p.out_channels;
  float acc[4][4] = {};
  for (int d = 0; d < td.count; ++d)
    for (int h = 0; h < th.count; ++h)
      for (int w = 0; w < tw.count; ++w) {
        const int xd = meets(p.along_depth, td, from.d, d), xh = meets(p.along_height, th, from.h, h),
                  xw = meets(p.along_width, tw, from.w, w);
        const bool inside = from.n < p.batch && xd >= 0 && xd < p.depth && xh >= 0 &&
                            xh < p.height && xw >= 0 && xw < p.width;
        const float* x = p.x + (inside ? from.n * p.x_batch + xd * p.x_depth + xh * p.x_row +
                                             (long long)xw * p.x_pixel
                                       : 0);
        const float* filter = p.w + (has_row ? first_channel + mine : 0) * p.m_stride +
                              (td.first + d * p.along_depth.apart) * p.depth_stride +
                              (th.first + h * p.along_height.apart) * p.row_stride +
                              (tw.first + w * p.along_width.apart) * p.width_stride;
        for (int c = 0; c < p.channels; c += DEPTH) {
          __syncthreads();
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int channel = c + part + i;
            const bool there = channel < p.channels;
            xs[part + i][mine] = inside && there ? __ldg(x + channel) : 0.0f;
            ws[part + i][mine] = has_row && there ? __ldg(filter + channel * p.c_stride) : 0.0f;
          }
          __syncthreads();
          const int some = min(DEPTH, p.channels - c);
#pragma unroll 4
          for (int k = 0; k < some; ++k) {
            const float4 a = *reinterpret_cast<const float4*>(&xs[k][threadIdx.x / 16 * 4]);
            const float4 b = *reinterpret_cast<const float4*>(&ws[k][threadIdx.x % 16 * 4]);
            const float rows[4] = {a.x, a.y, a.z, a.w}, columns[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
              for (int j = 0; j < 4; ++j) acc[i][j] = __fmaf_rn(rows[i], columns[j], acc[i][j]);
          }
        }
      }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const OutputPlace to = place(first + threadIdx.x / 16 * 4 + i);
    const int along = ROTATED ? p.along_width.stride : 1, down = ROTATED ? p.along_height.stride : 1,
              deep = ROTATED ? p.along_depth.stride : 1;
    const int w = tw.output + to.w * along, h = th.output + to.h * down, d = td.output + to.d * deep;
    if (to.n >= p.batch || w >= p.out_width || h >= p.out_height || d >= p.out_depth) continue;
    float* y = p.y + to.n * p.y_batch + d * p.y_depth + h * p.y_row + (long long)w * p.y_pixel;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int channel = first_channel + threadIdx.x % 16 * 4 + j;
#ifdef EPILOGUE
      if (channel < p.out_channels)
        acc[i][j] = finish_channel(p.epilogue, acc[i][j], y + channel, p.y, channel);
#endif
      if (channel < p.out_channels) y[channel] = acc[i][j];
    }
  }
}
