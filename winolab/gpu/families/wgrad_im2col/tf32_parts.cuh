// A step's TF32 parts: of dy in registers, of x in shared memory, both turned. wgmma sums eight positions at
// once, in any order that both have: of its eight, number 4k + q is position 2q + k, so that the lanes that
// read dy at once, of four q, find their channels in different banks.
#pragma once

#include "again.cuh"
#include "four_parts.cuh"
#include "mma_tf32.cuh"
#include "shape.cuh"

constexpr int ROW_BYTES = 128;  // of a position's 32 channels, of an input channel's 32 positions

// x, planes of [position][32 channels], as wgmma reads it: [input channel][32 positions]. A warp turns four
// positions of a plane at once.
__device__ __forceinline__ void part_positions(const unsigned char* x,
                                               unsigned char (&parts)[2][BI * ROW_BYTES]) {
  constexpr int WARPS = CONSUMERS / 32, FOURS = BI / 4;  // eight of a plane
  const int warp = (int)threadIdx.x / 32 % WARPS, lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < FOURS; first += WARPS) {
    const int at = first + warp, four = at % 8, plane = at / 8;
    if (FOURS % WARPS && at >= FOURS) break;
    float v[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int position = four / 2 * 8 + 2 * q + four % 2;
      v[q] = *reinterpret_cast<const float*>(x + plane * 2 * PLANE + position * ROW_BYTES +
                                             (lane / 4 ^ position % 8) * 16 + lane % 4 * 4);
    }
    const FourParts of(v);
    const int to = (plane * 32 + lane) * ROW_BYTES + (four ^ lane % 8) * 16;
    *reinterpret_cast<uint4*>(parts[0] + to) = of.high;
    *reinterpret_cast<uint4*>(parts[1] + to) = of.low;
  }
}

// A lane's numbers of dy of a step, for four products of eight positions. Rows g and g + 8 of a warp's 16 are
// neighbouring channels, which are read at once.
struct GradientParts {
  float raw[4][4];  // what is parted before the next products
  unsigned high[4][4], low[4][4];

  // The output channel of a row of sums.
  static __device__ __forceinline__ int channel(int row) { return row / 16 * 16 + row % 8 * 2 + row / 8 % 2; }

  // ``dy``: the warpgroup's two planes of [position][32 channels].
  __device__ __forceinline__ void read(const unsigned char* dy, int lane) {
    const int first = (int)threadIdx.x / 32 % 4 * 16 + lane / 4 * 2, unit = first % 32 / 4;
    const unsigned char* const from = dy + first / 32 * 2 * PLANE + first % 4 * 4;
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int position = s * 8 + lane % 4 * 2 + k;
        const float2 two = *reinterpret_cast<const float2*>(from + position * ROW_BYTES +
                                                            (unit ^ position % 8) * 16);
        raw[s][2 * k] = two.x, raw[s][2 * k + 1] = two.y;
      }
  }
  __device__ __forceinline__ void part() {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const FourParts of(raw[s]);
#pragma unroll
      for (int i = 0; i < 4; ++i) high[s][i] = (&of.high.x)[i], low[s][i] = (&of.low.x)[i];
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
