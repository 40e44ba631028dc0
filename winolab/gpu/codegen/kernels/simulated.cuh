// Simulated matrix products: the arithmetic of winolab.ref.arithmetic.accumulate, the same bits.
//
// c (G, M, N) = a (G, K, M)^T b (G, K, N), each output summed by one thread in the order that the
// constants state, every operation rounded to the accumulator's format. A thread has TILE x TILE
// outputs and reads TILE neighbours of a and b for each k, which its block's others find in the
// first-level cache. Constants, by winolab.gpu.codegen.simulated: ORDER, FUSED, FP32, the format
// (PRECISION, EMIN, EMAX, INFINITIES), BLOCK, EXTRA_BITS, TRUNCATE, LEVELS, TILE, LOWEST (the
// least exponent of the products' normal factors), and PIECES, of which interval() makes the lengths
// in turn.
#pragma once
#include "simulated_rounding.cuh"

struct SimulatedParams {
  const float* a;
  const float* b;
  float* c;
  int m, n, k;
  int across, blocks;  // blocks along n, and of one matrix
};

constexpr int SIMULATED_THREADS = 256;  // 16 x 16
constexpr int ZERO = -(1 << 18), SPECIAL = 1 << 20;

// The exponent of a number, as a format has it whose least one is given; of 0 and of what is not
// finite, one that no sum of two others reaches.
__device__ __forceinline__ int exponent(float x, int least) {
  const int e = field((double)x);
  return e == EXPONENT ? SPECIAL : e == 0 ? ZERO : max(e - 1023, least);
}

__device__ __forceinline__ float add(float x, float y) {
  if constexpr (FP32) return __fadd_rn(x, y);
  return rounded(__dadd_rn((double)x, (double)y));
}

__device__ __forceinline__ float multiply(float x, float y) {
  if constexpr (FP32) return __fmul_rn(x, y);
  return rounded(__dmul_rn((double)x, (double)y));
}

// x * y + c: one rounding where FUSED, by way of the exact sum rounded to odd (eft.odd_add).
__device__ __forceinline__ float multiply_add(float x, float y, float c) {
  if constexpr (!FUSED) return add(multiply(x, y), c);
  if constexpr (FP32) return __fmaf_rn(x, y, c);
  const double p = __dmul_rn((double)x, (double)y), q = (double)c, s = __dadd_rn(p, q);
  const double t = __dsub_rn(s, p);
  const double error = __dadd_rn(__dsub_rn(p, __dsub_rn(s, t)), __dsub_rn(q, t));
  int high = __double2hiint(s);
  unsigned low = (unsigned)__double2loint(s);
  if (fabs(error) > 0.0 && field(error) != EXPONENT && low % 2 == 0) {
    if ((error > 0.0) == (s > 0.0)) {
      low += 1;
    } else {
      high -= low == 0;
      low -= 1;
    }
  }
  return rounded(__hiloint2double(high, (int)low));
}

struct Operands {
  const float *a, *b;
  int m, n;

  __device__ __forceinline__ void load(int k, float (&x)[TILE], float (&y)[TILE]) const {
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
      x[i] = a[(long long)k * m + i];
      y[i] = b[(long long)k * n + i];
    }
  }
};

// For every output of a thread.
template <class Do>
__device__ __forceinline__ void each(const Do& act) {
#pragma unroll
  for (int i = 0; i < TILE; ++i)
#pragma unroll
    for (int j = 0; j < TILE; ++j) act(i, j);
}

// For every product of each, from the first to the last - 1: act(k, i, j, x, y).
template <class Do>
__device__ __forceinline__ void products(const Operands& from, int first, int last, const Do& act) {
  for (int k = first; k < last; ++k) {
    float x[TILE], y[TILE];
    from.load(k, x, y);
    each([&](int i, int j) { act(k, i, j, x[i], y[j]); });
  }
}

// acc <- the products first ... last - 1 added one after the other.
__device__ __forceinline__ void sequential(const Operands& from, int first, int last,
                                           float (&acc)[TILE][TILE]) {
  products(from, first, last, [&](int k, int i, int j, float x, float y) {
    acc[i][j] = multiply_add(x, y, acc[i][j]);
  });
}

__device__ __forceinline__ void pairwise(const Operands& from, int count,
                                         float (&acc)[TILE][TILE]) {
  float sums[LEVELS][TILE][TILE];  // of 2^level products, as in a binary counter
  products(from, 0, count, [&](int k, int i, int j, float x, float y) {
    float total = multiply(x, y);
#pragma unroll
    for (int level = 0; level < LEVELS; ++level) {
      if (!(k >> level & 1)) {
        sums[level][i][j] = total;
        break;
      }
      total = add(sums[level][i][j], total);
    }
  });
#pragma unroll
  for (int level = 0; level < LEVELS; ++level)
    if (count >> level & 1)
      each([&](int i, int j) { acc[i][j] = add(sums[level][i][j], acc[i][j]); });
}

__device__ __forceinline__ void kahan(const Operands& from, int count, float (&acc)[TILE][TILE]) {
  float lost[TILE][TILE] = {};
  products(from, 0, count, [&](int k, int i, int j, float x, float y) {
    const float term = multiply_add(x, y, -lost[i][j]);
    const float total = add(acc[i][j], term);
    lost[i][j] = add(add(total, -acc[i][j]), -term);
    if (!(fabsf(lost[i][j]) < __int_as_float(0x7f800000))) lost[i][j] = 0.0f;
    acc[i][j] = total;
  });
}

// One step of a Tensor Core: products and the accumulator aligned to the largest exponent.
__device__ __forceinline__ void step(const Operands& from, int first, int last,
                                     float (&acc)[TILE][TILE]) {
  int top[TILE][TILE];
  each([&](int i, int j) { top[i][j] = max(exponent(acc[i][j], EMIN), 2 * LOWEST); });
  for (int k = first; k < last; ++k) {
    float x[TILE], y[TILE];
    int p[TILE], q[TILE];
    from.load(k, x, y);
#pragma unroll
    for (int i = 0; i < TILE; ++i) p[i] = exponent(x[i], LOWEST), q[i] = exponent(y[i], LOWEST);
    each([&](int i, int j) { top[i][j] = max(top[i][j], p[i] + q[j]); });
  }
  double total[TILE][TILE], unit[TILE][TILE];
  each([&](int i, int j) {
    if (top[i][j] > SPECIAL / 2) top[i][j] = 0;  // NaN and infinity stay what they are
    top[i][j] += 1 - PRECISION - EXTRA_BITS;
    unit[i][j] = power(-top[i][j]);
    total[i][j] = trunc(__dmul_rn((double)acc[i][j], unit[i][j]));
  });
  products(from, first, last, [&](int k, int i, int j, float x, float y) {
    const double product = __dmul_rn((double)x, (double)y);
    total[i][j] = __dadd_rn(total[i][j], trunc(__dmul_rn(product, unit[i][j])));
  });
  each([&](int i, int j) {
    const double sum = __dmul_rn(total[i][j], power(top[i][j]));
    acc[i][j] = fabs(sum) >= power(EMAX + 1) ? copysignf(__int_as_float(0x7f800000), (float)sum)
                                             : rounded<TRUNCATE>(sum);
  });
}

__device__ __forceinline__ void sum(const Operands& from, int count, float (&acc)[TILE][TILE]) {
  if constexpr (ORDER == 0) sequential(from, 0, count, acc);
  if constexpr (ORDER == 2) pairwise(from, count, acc);
  if constexpr (ORDER == 3) kahan(from, count, acc);
  if constexpr (ORDER == 1 || ORDER == 4) {
    int turn = 0;
    for (int first = 0, last; first < count; first = last, ++turn) {
      const int length = ORDER == 1 ? BLOCK : interval(turn % PIECES);
      last = length ? min(first + length, count) : count;
      float inner[TILE][TILE] = {};
      if constexpr (ORDER == 1)
        sequential(from, first, last, inner);
      else
        for (int k = first; k < last; k += BLOCK) step(from, k, min(k + BLOCK, last), inner);
      each([&](int i, int j) { acc[i][j] = add(acc[i][j], inner[i][j]); });
    }
  }
}

extern "C" __global__ void __launch_bounds__(SIMULATED_THREADS)
    winolab_simulated(const __grid_constant__ SimulatedParams p) {
  const int matrix = blockIdx.x / p.blocks, at = blockIdx.x % p.blocks;
  const int row = (at / p.across * 16 + threadIdx.x / 16) * TILE;
  const int column = (at % p.across * 16 + threadIdx.x % 16) * TILE;
  if (row >= p.m || column >= p.n) return;
  const Operands from{p.a + (long long)matrix * p.k * p.m + row,
                      p.b + (long long)matrix * p.k * p.n + column, p.m, p.n};
  float acc[TILE][TILE] = {};
  sum(from, p.k, acc);
  float* c = p.c + ((long long)matrix * p.m + row) * p.n + column;
  each([&](int i, int j) { c[(long long)i * p.n + j] = acc[i][j]; });
}
