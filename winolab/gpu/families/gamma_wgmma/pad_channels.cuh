// x with zeros behind each group's channels, so that bulk tensor copies take it: its pixels densely one
// behind the other, every group's channels padded to whole vectors of 16 bytes.
#pragma once

#include "parts.cuh"
#include "pipeline.cuh"

struct PadParams {
  const Element* x;
  uint4* to;
  long long batch_stride, depth_stride, row_stride;
  int pixel_stride, pixels, depth, height, width, groups, channels, vectors;  // vectors of a group
};

constexpr int PAD_CHANNELS = 16 / sizeof(Element);  // of a vector

union PaddedVector {
  Element c[PAD_CHANNELS];
  uint4 all;
};

extern "C" __global__ void __launch_bounds__(256)
    winolab_gamma_wgmma_pad_channels(const __grid_constant__ PadParams p) {
  next_launch_may_begin();
  const int every = p.groups * p.vectors;  // of a pixel
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < (long long)p.pixels * every;
       i += gridDim.x * 256ll) {
    const int pixel = (int)(i / every), vector = (int)(i % every);
    const int group = vector / p.vectors, first = vector % p.vectors * PAD_CHANNELS;
    const int w = pixel % p.width, row = pixel / p.width;
    const int h = row % p.height, image = row / p.height;
    const Element* x = p.x + image / p.depth * p.batch_stride + image % p.depth * p.depth_stride +
                       h * p.row_stride + (long long)w * p.pixel_stride + group * p.channels + first;
    PaddedVector padded;
#pragma unroll
    for (int c = 0; c < PAD_CHANNELS; ++c)
      padded.c[c] = first + c < p.channels ? __ldg(x + c) : Element(0);
    p.to[i] = padded.all;
  }
}
