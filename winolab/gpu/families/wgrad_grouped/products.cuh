// Products of a work tile: of 16 bits, or three of FP32's TF32 parts.
#pragma once

#include "tiles.cuh"

typedef float WgradGroupedSums[TAPS][NT][4];

// high is v rounded to 11 bits, low the rest: 12 bits at most, of which the Tensor Core takes 11. Of infinity, and
// of what rounds to it, low is not finite.
struct TwoParts {
  unsigned high, low;
  __device__ __forceinline__ TwoParts() {}
  __device__ __forceinline__ TwoParts(float v) {
    high = (__float_as_uint(v) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(__fsub_rn(v, __uint_as_float(high)));
  }
};

// FP32's number.
__device__ __forceinline__ float number(const void* from) { return *static_cast<const float*>(from); }

// What a warp has: 16 output channels, 8 · NT channels of x, TAPS taps.
struct WgradGroupedWarp {
  int tap[TAPS];  // bytes of the patch from an output's first pixel to what a tap meets; NT 1: what the lane reads
  int x, dy;      // bytes of a pixel before what the lane reads
  __device__ __forceinline__ WgradGroupedWarp(const WgradGroupedParams& p, int first, int unit, int channel) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < TAPS; ++t) {
      const int number = first + t, rows = number / p.width.taps, kw = number % p.width.taps * p.width.dilation;
      const int kh = rows % p.height.taps * p.height.dilation, kd = rows / p.height.taps;
      const int at = kd * p.level_pitch + kh * p.of_x.pitch +
                     (kw % p.width.stride * p.by_own.divisor + kw / p.width.stride) * X_PIXEL;
      tap[t] = kd < p.depth.taps ? at : 0;
    }
    if constexpr (INPUT == 0) {
      x = (channel + lane / 4) * SIZE, dy = lane % 4 * DY_PIXEL + (unit * 16 + lane / 4) * SIZE;
      return;
    }
    x = channel * SIZE + (NT == 2 ? lane / 16 * 16 : 0);
    dy = (lane / 16 * 8 + lane % 8) * DY_PIXEL + unit * 32 + lane / 8 % 2 * 16;
    if constexpr (NT == 1)
#pragma unroll
      for (int t = 0; t + 1 < TAPS; t += 2) tap[t] = lane / 16 ? tap[t + 1] : tap[t];
  }

  // Adds products of 16 outputs, from ``first`` on: dy's of a pixel and x of an output's first pixel lie there.
  __device__ __forceinline__ void multiply(const WgradGroupedParams& p, const WgradGroupedTile& tile,
                                           const WgradGroupedPlaces& places, const unsigned char* patch,
                                           const unsigned char* of_dy, int first, WgradGroupedSums& acc) const {
    if constexpr (INPUT == 0)
      multiply_tf32(p, tile, places, patch + x, of_dy + first * DY_PIXEL + dy, first, acc);
    else
      multiply_halves(p, tile, places, patch + x, of_dy + first * DY_PIXEL + dy, first, acc);
  }

 private:
  __device__ __forceinline__ void multiply_halves(const WgradGroupedParams& p, const WgradGroupedTile& tile,
                                                  const WgradGroupedPlaces& places, const unsigned char* patch,
                                                  const unsigned char* of_dy, int first,
                                                  WgradGroupedSums& acc) const {
    const unsigned char* const pixel = patch + places.at(p, tile, first + threadIdx.x % 16);
    unsigned a[4];
    load_matrices<true>(a, of_dy);
#pragma unroll
    for (int t = 0; t < TAPS; t += 3 - NT) {
      unsigned b[4];
      load_matrices<true>(b, pixel + tap[t]);
      const unsigned both[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
      mma<INPUT == 2>(acc[t][0], a, both[0]);
      if constexpr (NT == 2)
        mma<INPUT == 2>(acc[t][NT - 1], a, both[1]);
      else if (t + 1 < TAPS)
        mma<INPUT == 2>(acc[t + 1 < TAPS ? t + 1 : t][0], a, both[1]);
    }
  }

  // The Tensor Core, which truncates, sums low·high, high·low and high·high of 16 outputs; these sums are added in
  // FP32 outside it.
  __device__ __forceinline__ void multiply_tf32(const WgradGroupedParams& p, const WgradGroupedTile& tile,
                                                const WgradGroupedPlaces& places, const unsigned char* patch,
                                                const unsigned char* of_dy, int first,
                                                WgradGroupedSums& acc) const {
    unsigned rows_high[2][4], rows_low[2][4];
    const unsigned char* pixel[2][2];
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        pixel[k][h] = patch + places.at(p, tile, first + k * 8 + h * 4 + threadIdx.x % 4);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const TwoParts v(number(of_dy + (k * 8 + h * 4) * DY_PIXEL + r * (8 * SIZE)));
          rows_high[k][2 * h + r] = v.high, rows_low[k][2 * h + r] = v.low;
        }
      }
#pragma unroll
    for (int t = 0; t < TAPS; ++t) {
      float sum[NT][4] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unsigned high[NT][2], low[NT][2];
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const TwoParts v(number(pixel[k][h] + tap[t] + n * (8 * SIZE)));
            high[n][h] = v.high, low[n][h] = v.low;
          }
        // In three rounds: a product waits for the one before that has the same sums.
#pragma unroll
        for (int n = 0; n < NT; ++n) mma_tf32(sum[n], rows_low[k], high[n]);
#pragma unroll
        for (int n = 0; n < NT; ++n) mma_tf32(sum[n], rows_high[k], low[n]);
#pragma unroll
        for (int n = 0; n < NT; ++n) mma_tf32(sum[n], rows_high[k], high[n]);
      }
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[t][n][e] = __fadd_rn(acc[t][n][e], sum[n][e]);
    }
  }
};
