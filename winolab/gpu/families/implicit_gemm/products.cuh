// Products of a stage: FFMA (PRODUCTS 0), three of TF32 parts (1), or of 16 bits (2), by mma.sync.
//
// A warp has MT × NT tiles of 16 rows × 8 columns; a lane's sums of a tile are as mma.cuh has them.
// A TF32 part has 11 bits and FP32's exponents, so that two of them serve every FP32 number: nothing
// is scaled. The Tensor Core, which truncates, sums low·high, high·low and high·high of a stage; stages
// are added in FP32 outside it.
#pragma once

#include "mma.cuh"
#include "copies.cuh"
#include "results.cuh"

static_assert(BLOCK_ROWS % (16 * WARP_ROWS) == 0 && BLOCK_COLUMNS % (16 * WARP_COLUMNS) == 0 && DEPTH % 16 == 0,
              "whole tiles");

// Where element (row, depth) of A, or (depth, column) of B, lies in a stage.
__device__ __forceinline__ int a_at(int m, int k) {
  return GRADIENT ? k * W_PITCH + m : m * X_PITCH + k;
}
__device__ __forceinline__ int b_at(int k, int n) {
  return GRADIENT ? k * X_PITCH + n : ROTATED ? k * W_PITCH + n : n * W_PITCH + k;
}

// Merged groups: which tiles of a warp some group has. Of correlations, of DEPTH channels from
// ``channel`` on; of gradients, by bits of all tiles.
struct Diagonal {
  int first, last;      // columns
  unsigned long long tiles;
  __device__ __forceinline__ bool has(int i, int j, int n) const {
    if (!MERGED) return true;
    if (GRADIENT) return tiles >> (i * NT + j) & 1;
    return n + j * 8 < last && n + j * 8 + 8 > first;
  }
};

__device__ __forceinline__ Diagonal of_channels(const ImplicitParams& p, int channel, int depth) {
  if (!MERGED) return {};
  return {channel >> p.channels_log << p.out_log,
          ((channel + depth - 1) >> p.channels_log) + 1 << p.out_log, 0};
}

// m, n: the warp's first row and column.
__device__ __forceinline__ Diagonal of_tiles(const ImplicitParams& p, const ImplicitWork& work, int m,
                                             int n) {
  Diagonal found = {};
  if (!MERGED) return found;
  static_assert(!MERGED || MT * NT <= 64, "a bit for each tile");
  for (int i = 0; i < MT; ++i)
    for (int j = 0; j < NT; ++j) {
      const int row = m + i * 16, channel = (n + j * 8) % work.channels;
      const bool meets = row >> p.out_log << p.channels_log < channel + 8 &&
                         ((row + 15 >> p.out_log) + 1) << p.channels_log > channel;
      if (meets) found.tiles |= 1ull << (i * NT + j);
    }
  return found;
}

// Without Tensor Cores.
__device__ __forceinline__ void multiply_ffma(ImplicitSums& acc, const Element* a, const Element* b,
                                              const Warp& at) {
  const int g = at.lane / 4, q = at.lane % 4;
  a += a_at(at.m + g, 0), b += b_at(0, at.n + 2 * q);
#pragma unroll 2
  for (int k = 0; k < DEPTH; ++k) {
    float rows[MT][2], columns[NT][2];
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) rows[i][r] = a[a_at(i * 16 + r * 8, 0)];
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) columns[j][c] = b[b_at(0, j * 8 + c)];
#pragma unroll
    for (int i = 0; i < MT; ++i)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[i][j][e] = __fmaf_rn(rows[i][e / 2], columns[j][e % 2], acc[i][j][e]);
    a += a_at(0, 1), b += b_at(1, 0);
  }
}

// high is v rounded to 11 bits, low the rest: 12 bits at most, of which the Tensor Core takes 11. Of
// NaN one of them is NaN; of infinity, and of what rounds to it, low is not finite.
struct TwoParts {
  unsigned high, low;
  __device__ __forceinline__ TwoParts(float v) {
    high = (__float_as_uint(v) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(__fsub_rn(v, __uint_as_float(high)));
  }
};

__device__ __forceinline__ void multiply_tf32(const ImplicitParams& p, const ImplicitWork& work, ImplicitSums& acc,
                                              const Element* a, const Element* b, const Warp& at,
                                              int step, const Diagonal& known) {
  const int g = at.lane / 4, q = at.lane % 4;
  ImplicitSums sum = {};
  a += a_at(at.m + g, q), b += b_at(q, at.n + g);  // places from there on are known to the compiler
#pragma unroll 2
  for (int k = 0; k < DEPTH; k += 8) {
    const Diagonal some =
        GRADIENT ? known : of_channels(p, MERGED ? step * DEPTH + k & work.channels - 1 : 0, 8);
    unsigned high[NT][2], low[NT][2];
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const TwoParts v(b[b_at(4 * h, j * 8)]);
        high[j][h] = v.high, low[j][h] = v.low;
      }
#pragma unroll
    for (int i = 0; i < MT; ++i) {
      unsigned rows_high[4], rows_low[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const TwoParts v(a[a_at(i * 16 + e % 2 * 8, e / 2 * 4)]);
        rows_high[e] = v.high, rows_low[e] = v.low;
      }
      // In three rounds: a product waits for the one before that has the same sums.
#pragma unroll
      for (int j = 0; j < NT; ++j)
        if (some.has(i, j, work.column + at.n)) mma_tf32(sum[i][j], rows_low, high[j]);
#pragma unroll
      for (int j = 0; j < NT; ++j)
        if (some.has(i, j, work.column + at.n)) mma_tf32(sum[i][j], rows_high, low[j]);
#pragma unroll
      for (int j = 0; j < NT; ++j)
        if (some.has(i, j, work.column + at.n)) mma_tf32(sum[i][j], rows_high, high[j]);
    }
    a += a_at(0, 8), b += b_at(8, 0);
  }
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = __fadd_rn(acc[i][j][e], sum[i][j][e]);
}

__device__ __forceinline__ void multiply_halves(const ImplicitParams& p, const ImplicitWork& work,
                                                ImplicitSums& acc, const Element* a, const Element* b,
                                                const Warp& at, int step, const Diagonal& known) {
  const int upper = at.lane / 16 * 8, middle = at.lane / 8 % 2 * 8, eight = at.lane % 8;
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    const Diagonal some =
        GRADIENT ? known : of_channels(p, MERGED ? step * DEPTH + k & work.channels - 1 : 0, 16);
    unsigned rows[MT][4];
#pragma unroll
    for (int i = 0; i < MT; ++i) {
      const int m = at.m + i * 16;
      load_matrices<GRADIENT>(rows[i], a + (GRADIENT ? a_at(m + middle, k + upper + eight)
                                                     : a_at(m + middle + eight, k + upper)));
    }
#pragma unroll
    for (int j = 0; j < NT; j += 2) {
      const int n = at.n + j * 8;
      unsigned both[4];
      load_matrices<W_BY_DEPTH>(both, b + (W_BY_DEPTH ? b_at(k + middle + eight, n + upper)
                                                      : b_at(k + middle, n + upper + eight)));
      const unsigned columns[2][2] = {{both[0], both[1]}, {both[2], both[3]}};
#pragma unroll
      for (int i = 0; i < MT; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (some.has(i, j + c, work.column + at.n)) mma<INPUT == 2>(acc[i][j + c], rows[i], columns[c]);
    }
  }
}
