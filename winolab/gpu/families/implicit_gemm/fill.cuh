// A copy of x, or of the filter, whose channels are filled up with zeros to whole vectors of four.
//
// Roles: a thread stores one vector.
#pragma once

#include "elements.cuh"

struct FillParams {
  const Element* from;
  Element* to;  // dense
  long long batch_stride, depth_stride, row_stride, pixel_stride, channel_stride;
  long long vectors;
  int depth, height, width, channels, parts;  // parts: vectors of a pixel
};

constexpr int FILL_THREADS = 256, FILLED = 4;

extern "C" __global__ void __launch_bounds__(FILL_THREADS)
    winolab_implicit_gemm_fill(const __grid_constant__ FillParams p) {
  const long long at = (long long)blockIdx.x * FILL_THREADS + threadIdx.x;
  if (at >= p.vectors) return;
  const int part = (int)(at % p.parts);
  long long pixel = at / p.parts;
  const int w = (int)(pixel % p.width);
  pixel /= p.width;
  const int h = (int)(pixel % p.height);
  pixel /= p.height;
  const Element* from = p.from + pixel / p.depth * p.batch_stride + pixel % p.depth * p.depth_stride +
                        h * p.row_stride + w * p.pixel_stride;
  Element v[FILLED];
#pragma unroll
  for (int i = 0; i < FILLED; ++i) {
    const int c = part * FILLED + i;
    v[i] = c < p.channels ? __ldg(from + c * p.channel_stride) : Element(0);
  }
  if constexpr (sizeof(Element) == 4)
    *reinterpret_cast<float4*>(p.to + at * FILLED) = make_float4(v[0], v[1], v[2], v[3]);
  else
    *reinterpret_cast<uint2*>(p.to + at * FILLED) =
        make_uint2((unsigned)v[0] | (unsigned)v[1] << 16, (unsigned)v[2] | (unsigned)v[3] << 16);
}
