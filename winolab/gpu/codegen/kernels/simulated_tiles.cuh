// What stands around the sums of a simulated convolution whose transforms are in FP32: inputs are
// gathered and transformed, sums are transformed back, as winolab.ref.algorithms.engine does, the
// same bits.
//
// A tile has three dimensions, the first of them of one input and output where a problem has fewer.
// Constants, by winolab.gpu.codegen.simulated_tiles: along each dimension I inputs, A states, N
// outputs and R taps of a tile, ROUNDS (whether states are rounded to the format of products, of
// simulated_rounding.cuh's constants), WIDE (whether all is FP64, of the inputs' magnitudes);
// bt0 ... at2 are the programs.
#pragma once
#include "simulated_number.cuh"
#include "simulated_rounding.cuh"

struct StatesParams {
  const float* x;        // (N, input, channels)
  const long long* ids;  // of tiles, flat in (N, tiles)
  Number* v;             // (states, depth, filled)
  int tiles, filled, depth, channels;
  int tiles0, origin0, step0, dilation0, input0, spread0, pieces0;
  int tiles1, origin1, step1, dilation1, input1, spread1, pieces1;
  int tiles2, origin2, step2, dilation2, input2, spread2, pieces2;
};

struct OutputsParams {
  const Number* m;  // (states, filled, columns)
  Number* y;        // (outputs of a tile, tiles, channels)
  int tiles, filled, channels, columns;
};

constexpr int AROUND_THREADS = 256, WARP = 32;

// Every step-th number from one on.
struct Strided {
  Number* first;
  int step;
  __device__ __forceinline__ Number& operator[](int i) const { return first[i * step]; }
};

// Where a tap reads along a dimension, or -1 outside of the input and between its elements.
__device__ __forceinline__ int place(int at, int input, int spread) {
  return at < 0 || at >= input || at % spread ? -1 : at / spread;
}

__device__ __forceinline__ void gather(const StatesParams& p, long long id, int k,
                                       Number (&found)[I0 * I1 * I2]) {
  const int at2 = (int)(id % p.tiles2), at1 = (int)(id / p.tiles2 % p.tiles1);
  const long long rest = id / p.tiles2 / p.tiles1;
  const int at0 = (int)(rest % p.tiles0);
  const long long image = rest / p.tiles0;
  const int channel = k % p.channels, piece = k / p.channels;
  const int q2 = piece % p.pieces2, q1 = piece / p.pieces2 % p.pieces1;
  const int q0 = piece / p.pieces2 / p.pieces1;
  for (int i0 = 0; i0 < I0; ++i0) {
    const int w0 = place(p.origin0 + at0 * p.step0 + (q0 * R0 + i0) * p.dilation0, p.input0, p.spread0);
    for (int i1 = 0; i1 < I1; ++i1) {
      const int w1 = place(p.origin1 + at1 * p.step1 + (q1 * R1 + i1) * p.dilation1, p.input1, p.spread1);
      for (int i2 = 0; i2 < I2; ++i2) {
        const int w2 =
            place(p.origin2 + at2 * p.step2 + (q2 * R2 + i2) * p.dilation2, p.input2, p.spread2);
        if (w0 < 0 || w1 < 0 || w2 < 0) continue;
        const int size0 = (p.input0 + p.spread0 - 1) / p.spread0;
        const int size1 = (p.input1 + p.spread1 - 1) / p.spread1;
        const int size2 = (p.input2 + p.spread2 - 1) / p.spread2;
        const long long pixel = ((image * size0 + w0) * size1 + w1) * size2 + w2;
        const float x = p.x[pixel * p.channels + channel];
        found[(i0 * I1 + i1) * I2 + i2] = WIDE ? fabsf(x) : x;
      }
    }
  }
}

// Neighbouring threads have neighbouring tiles, whose states lie together; a block's warps have
// neighbouring channels, whose inputs do.
extern "C" __global__ void __launch_bounds__(AROUND_THREADS)
    winolab_simulated_states(const __grid_constant__ StatesParams p) {
  const int t = blockIdx.x * WARP + threadIdx.x % WARP;
  const int k = blockIdx.y * (AROUND_THREADS / WARP) + threadIdx.x / WARP;
  if (t >= p.filled || k >= p.depth) return;
  Number inputs[I0 * I1 * I2] = {}, one[A0 * I1 * I2], two[A0 * A1 * I2], states[A0 * A1 * A2];
  if (t < p.tiles) gather(p, p.ids[t], k, inputs);
#pragma unroll
  for (int i = 0; i < I1 * I2; ++i) {
    Strided to{one + i, I1 * I2};
    bt0(Strided{inputs + i, I1 * I2}, to);
  }
#pragma unroll
  for (int a = 0; a < A0; ++a)
#pragma unroll
    for (int i = 0; i < I2; ++i) {
      Strided to{two + a * A1 * I2 + i, I2};
      bt1(Strided{one + a * I1 * I2 + i, I2}, to);
    }
#pragma unroll
  for (int a = 0; a < A0 * A1; ++a) {
    Strided to{states + a * A2, 1};
    bt2(Strided{two + a * I2, 1}, to);
  }
#pragma unroll
  for (int s = 0; s < A0 * A1 * A2; ++s)
    p.v[((long long)s * p.depth + k) * p.filled + t] =
        ROUNDS ? (Number)rounded((double)states[s]) : states[s];
}

extern "C" __global__ void __launch_bounds__(AROUND_THREADS)
    winolab_simulated_outputs(const __grid_constant__ OutputsParams p) {
  const long long at = (long long)blockIdx.x * AROUND_THREADS + threadIdx.x;
  if (at >= (long long)p.tiles * p.channels) return;
  const int t = (int)(at / p.channels), channel = (int)(at % p.channels);
  Number states[A0 * A1 * A2], one[N0 * A1 * A2], two[N0 * N1 * A2], outputs[N0 * N1 * N2];
#pragma unroll
  for (int s = 0; s < A0 * A1 * A2; ++s)
    states[s] = p.m[((long long)s * p.filled + t) * p.columns + channel];
#pragma unroll
  for (int i = 0; i < A1 * A2; ++i) {
    Strided to{one + i, A1 * A2};
    at0(Strided{states + i, A1 * A2}, to);
  }
#pragma unroll
  for (int n = 0; n < N0; ++n)
#pragma unroll
    for (int i = 0; i < A2; ++i) {
      Strided to{two + n * N1 * A2 + i, A2};
      at1(Strided{one + n * A1 * A2 + i, A2}, to);
    }
#pragma unroll
  for (int n = 0; n < N0 * N1; ++n) {
    Strided to{outputs + n * N2, 1};
    at2(Strided{two + n * A2, 1}, to);
  }
#pragma unroll
  for (int n = 0; n < N0 * N1 * N2; ++n)
    p.y[((long long)n * p.tiles + t) * p.channels + channel] = outputs[n];
}
