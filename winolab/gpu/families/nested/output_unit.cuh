// Where outputs of nested Winograd are in M and in y, and how they are read and stored.
#pragma once

#include ROWS_FILE
#include "products.cuh"

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
__device__ __forceinline__ float2 read_once(const unsigned short* m) {
  unsigned pair;
#if __CUDA_ARCH__ >= 900
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
               : "=r"(pair)
               : "l"(m), "l"(policy)
               : "memory");
#else
  pair = *reinterpret_cast<const unsigned*>(m);
#endif
  float2 v;
  unpack<BF16>(pair, v.x, v.y);
  return v;
}

// Two channels of y, or one that is ``left``.
__device__ __forceinline__ void store_two(float* to, const float (&y)[2], int left) {
  if constexpr (YVEC == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(y[0], y[1]);
  } else {
    to[0] = y[0];
    if (left > 1) to[1] = y[1];
  }
}
__device__ __forceinline__ void store_two(unsigned short* to, const float (&y)[2], int left) {
  const unsigned pair = pack<BF16>(y[0], y[1]);
  if constexpr (YVEC == 2) {
    *reinterpret_cast<unsigned*>(to) = pair;
  } else {
    to[0] = (unsigned short)pair;
    if (left > 1) to[1] = (unsigned short)(pair >> 16);
  }
}

// Where two channels of a tile are in M and in y.
struct OutputUnit {
  const Sum* m;  // of the first state
  Out* y;        // of the tile's frame
  int channel, y0, x0, height, width;  // outputs that are
  int image;

  __device__ __forceinline__ OutputUnit(const OutputParams& p, int unit) {
    channel = unit % p.pairs * 2;
    const int tile = unit / p.pairs;
    const int column = tile % p.tiles_width, rest = tile / p.tiles_width;
    const int row = rest % p.tiles_height, frame = rest / p.tiles_height;
    const bool runs = p.run != 0;
    const int bx = runs ? tile % p.run : column, by = runs ? 0 : row, of = runs ? tile / p.run : frame;
    const int block = (of / p.box_images * p.blocks_height + by / p.box_height) * p.blocks_width +
                      bx / p.box_width;
    const int in_box = (of % p.box_images * p.box_height + by % p.box_height) * p.box_width +
                       bx % p.box_width;
    m = static_cast<const Sum*>(p.m) + ((long long)block * BN + in_box) * p.pitch + channel;
    y0 = row * NH, x0 = column * NW;
    image = p.first + frame / p.depth;
    height = min(NH, p.height - y0), width = min(NW, p.width - x0);
    y = p.y + frame / p.depth * p.batch_stride + frame % p.depth * p.depth_stride + channel;
  }

  // Both channels of a column of states, transformed along the height.
  __device__ __forceinline__ void column(const OutputParams& p, int j, float (&sums)[2][NH]) const {
    float states[2][AH];
#pragma unroll
    for (int i = 0; i < AH; ++i) {
      const float2 pair = read_once(m + (i * AW + j) * p.state_stride);
      states[0][i] = pair.x, states[1][i] = pair.y;
    }
    output_rows(states[0], sums[0]);
    output_rows(states[1], sums[1]);
  }

  __device__ __forceinline__ Out* at(const OutputParams& p, int i, int j) const {
    return y + (y0 + i) * p.row_stride + (long long)(x0 + j) * p.pixel_stride;
  }
};
