// TF32 parts of FP32 numbers: of x in registers, of w from one place in shared memory to another.
#pragma once

#include "mma_tf32.cuh"
#include "positions_again.cuh"
#include "shape.cuh"
#include "four_parts.cuh"

// A step's w in parts, which wgmma reads by rows of output channels: as the copy has put them, or planes of
// the reverse, turned.
__device__ __forceinline__ void part_filters(const unsigned char* w, unsigned char (&parts)[2][BM * ROW_BYTES]) {
#pragma unroll
  for (int i = threadIdx.x; i < BM * 8; i += CONSUMERS) {
    float v[4];
    int to = i * 16;
    if constexpr (ROTATED) {
      const int m = i % BM, four = i / BM, unit = m % 32 / 4;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int k = four * 4 + e;
        v[e] = *reinterpret_cast<const float*>(w + m / 32 * PLANE + k * ROW_BYTES + (unit ^ k % 8) * 16 +
                                               m % 4 * 4);
      }
      to = m * ROW_BYTES + (four ^ m % 8) * 16;
    } else {
      const float4 read = *reinterpret_cast<const float4*>(w + to);
      v[0] = read.x, v[1] = read.y, v[2] = read.z, v[3] = read.w;
    }
    const FourParts of(v);
    *reinterpret_cast<uint4*>(parts[0] + to) = of.high;
    *reinterpret_cast<uint4*>(parts[1] + to) = of.low;
  }
}

// A lane's numbers of x of a step, for four products of 8, in parts: rows g and g + 8 of a warp's 16.
struct PositionParts {
  unsigned high[4][4], low[4][4];
  __device__ __forceinline__ void read(const unsigned char* x, int row, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + r * 8 + lane / 4;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        float v[4] = {};
#pragma unroll
        for (int k = 0; k < 2; ++k)
          v[k] = *reinterpret_cast<const float*>(x + at * ROW_BYTES + ((2 * s + k) ^ at % 8) * 16 +
                                                 lane % 4 * 4);
        const FourParts of(v);
        high[s][r] = of.high.x, high[s][r + 2] = of.high.y;
        low[s][r] = of.low.x, low[s][r + 2] = of.low.y;
      }
    }
  }
  // They are read until products are waited for, which a compiler does not know.
  __device__ __forceinline__ void keep() const {
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" ::"r"(high[s][i]), "r"(low[s][i]));
  }
};
