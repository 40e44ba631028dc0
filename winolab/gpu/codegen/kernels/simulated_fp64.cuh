// c (G, M, N) = a (G, K, M)^T b (G, K, N), summed in FP64 in order: the oracle of simulated products
// of FP32 numbers, or where WIDE the magnitudes of their bounds. A thread has TILE x TILE outputs.
#pragma once
#include "simulated_number.cuh"

struct Fp64Params {
  const Number* a;
  const Number* b;
  double* c;
  int m, n, k;
  int across, blocks;  // blocks along n, and of one matrix
};

extern "C" __global__ void __launch_bounds__(256)
    winolab_fp64(const __grid_constant__ Fp64Params p) {
  const int matrix = blockIdx.x / p.blocks, at = blockIdx.x % p.blocks;
  const int row = (at / p.across * 16 + threadIdx.x / 16) * TILE;
  const int column = (at % p.across * 16 + threadIdx.x % 16) * TILE;
  if (row >= p.m || column >= p.n) return;
  const Number* a = p.a + (long long)matrix * p.k * p.m + row;
  const Number* b = p.b + (long long)matrix * p.k * p.n + column;
  double acc[TILE][TILE] = {};
  for (int k = 0; k < p.k; ++k) {
    double x[TILE], y[TILE];
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
      x[i] = (double)a[(long long)k * p.m + i];
      y[i] = (double)b[(long long)k * p.n + i];
    }
#pragma unroll
    for (int i = 0; i < TILE; ++i)
#pragma unroll
      for (int j = 0; j < TILE; ++j) acc[i][j] = __fma_rn(x[i], y[j], acc[i][j]);
  }
  double* c = p.c + ((long long)matrix * p.m + row) * p.n + column;
#pragma unroll
  for (int i = 0; i < TILE; ++i)
#pragma unroll
    for (int j = 0; j < TILE; ++j) c[(long long)i * p.n + j] = acc[i][j];
}
