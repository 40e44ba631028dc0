// What follows y's sums: bias, residual and activation, each step rounded to y's type, in the order
// and with the operations that winolab/ref/epilogue.py defines.
//
// Stores of all families call finished() where a source gives ACTIVATION (EPILOGUE is defined);
// without it these lines are in no source. FINISHED is y's type: FP32 (0), FP16 (1) or BF16 (2).
#pragma once

#include "either.cuh"
#include "mma.cuh"

using EpilogueElement = Either<FINISHED == 0, float, unsigned short>::type;

struct EpilogueParams {
  const EpilogueElement* bias;
  const EpilogueElement* residual;  // whose elements lie from here as y's do from its first
  float slope;
};

__device__ __forceinline__ float widened(float v) { return v; }
__device__ __forceinline__ float widened(unsigned short v) {
  float first, none;
  unpack<FINISHED == 2>(v, first, none);
  return first;
}

// A number as y's type holds it.
__device__ __forceinline__ float rounded(float v) {
  if constexpr (FINISHED == 0) return v;
  float first, none;
  unpack<FINISHED == 2>(pack<FINISHED == 2>(v, 0.0f), first, none);
  return first;
}

// e to the power of -y, below 2^-43 and above FP32's largest number as there.
__device__ __forceinline__ float exp_of_minus(float y) {
  const float t = y > 30.0f ? -30.0f : y < -89.0f ? 89.0f : -y;
  const float shifted = __fadd_rn(__fmul_rn(t, __int_as_float(LOG2E)), 12582912.0f);  // 1.5 · 2^23
  const float n = __fsub_rn(shifted, 12582912.0f);
  const float r = __fsub_rn(__fsub_rn(t, __fmul_rn(n, __int_as_float(LN2_HIGH))),
                            __fmul_rn(n, __int_as_float(LN2_LOW)));
  float p = 1.0f / 5040, k = 1.0f / 720;
  p = __fadd_rn(__fmul_rn(p, r), k);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 120);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 24);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 6);
  p = __fadd_rn(__fmul_rn(p, r), 0.5f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  const int whole = __float_as_int(shifted) - 0x4b400000, first = whole >> 1;
  const auto power = [](int of) { return __int_as_float((int)((unsigned)(of + 127) << 23)); };
  return __fmul_rn(__fmul_rn(p, power(first)), power(whole - first));
}

__device__ __forceinline__ float activated(float y, float slope) {
  if constexpr (ACTIVATION == 1) return y > 0.0f || y != y ? y : 0.0f;
  if constexpr (ACTIVATION == 2) return y > 0.0f ? y : rounded(__fmul_rn(y, slope));
  if constexpr (ACTIVATION == 3) return rounded(__fdiv_rn(y, __fadd_rn(1.0f, exp_of_minus(y))));
  return y;
}

// One number of y.
__device__ __forceinline__ float finished(float y, float bias, float residual, float slope) {
  y = rounded(y);
  if constexpr (BIAS) y = rounded(__fadd_rn(y, bias));
  if constexpr (RESIDUAL) y = rounded(__fadd_rn(y, residual));
  return activated(y, slope);
}

// COUNT numbers of neighbouring channels as they lie, of which ``left`` are; VECTORS: aligned, and all
// there.
template <int COUNT, bool VECTORS>
__device__ __forceinline__ void load_channels(const EpilogueElement* from, int left,
                                              float (&to)[COUNT]) {
  if constexpr (!VECTORS || COUNT % 2 != 0) {
#pragma unroll
    for (int c = 0; c < COUNT; ++c) to[c] = c < left ? widened(__ldg(from + c)) : 0.0f;
  } else if constexpr (FINISHED == 0) {
    if constexpr (COUNT % 4 == 0) {
#pragma unroll
      for (int c = 0; c < COUNT; c += 4) {
        const float4 v = __ldg(reinterpret_cast<const float4*>(from + c));
        to[c] = v.x, to[c + 1] = v.y, to[c + 2] = v.z, to[c + 3] = v.w;
      }
    } else {
      const float2 v = __ldg(reinterpret_cast<const float2*>(from));
      to[0] = v.x, to[1] = v.y;
    }
  } else {
    unsigned pairs[COUNT / 2];
    if constexpr (COUNT == 8) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
      pairs[0] = v.x, pairs[1] = v.y, pairs[2] = v.z, pairs[3] = v.w;
    } else if constexpr (COUNT == 4) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(from));
      pairs[0] = v.x, pairs[1] = v.y;
    } else {
      pairs[0] = __ldg(reinterpret_cast<const unsigned*>(from));
    }
#pragma unroll
    for (int c = 0; c < COUNT; c += 2) unpack<FINISHED == 2>(pairs[c / 2], to[c], to[c + 1]);
  }
}

// COUNT numbers of neighbouring channels, of which ``left`` are, from ``channel`` on, that go to ``to``
// in y.
template <int COUNT, bool VECTORS>
__device__ __forceinline__ void finish_channels(const EpilogueParams& p, float (&v)[COUNT],
                                                const EpilogueElement* to, const EpilogueElement* y,
                                                int channel, int left = COUNT) {
  float bias[COUNT] = {}, residual[COUNT] = {};
  if constexpr (BIAS) load_channels<COUNT, VECTORS>(p.bias + channel, left, bias);
  if constexpr (RESIDUAL) load_channels<COUNT, VECTORS>(p.residual + (to - y), left, residual);
#pragma unroll
  for (int c = 0; c < COUNT; ++c) v[c] = finished(v[c], bias[c], residual[c], p.slope);
}

// One number.
__device__ __forceinline__ float finish_channel(const EpilogueParams& p, float v,
                                                const EpilogueElement* to, const EpilogueElement* y,
                                                int channel) {
  float one[1] = {v};
  finish_channels<1, false>(p, one, to, y, channel);
  return one[0];
}

// Pairs of neighbouring channels as 16-bit numbers, which lie aligned.
template <int PAIRS>
__device__ __forceinline__ void finish_pairs(const EpilogueParams& p, unsigned (&pairs)[PAIRS],
                                             const EpilogueElement* to, const EpilogueElement* y,
                                             int channel) {
  float v[2 * PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) unpack<FINISHED == 2>(pairs[i], v[2 * i], v[2 * i + 1]);
  finish_channels<2 * PAIRS, true>(p, v, to, y, channel);
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) pairs[i] = pack<FINISHED == 2>(v[2 * i], v[2 * i + 1]);
}

// A tile's ``columns`` outputs of neighbouring channels, ``pitch`` elements apart. As much of the residual
// as registers hold is asked for at once, where there is no output from its first element on.
template <int COUNT, bool VECTORS, int OUTPUTS>
__device__ __forceinline__ void finish_tile(const EpilogueParams& p, float (&tile)[COUNT][OUTPUTS],
                                            const EpilogueElement* to, const EpilogueElement* y,
                                            int pitch, int columns, int channel, int left) {
  constexpr int ONCE = COUNT > 2 ? 1 : OUTPUTS;
  const bool any = columns > 0;
  float bias[COUNT] = {};
  if constexpr (BIAS)
    load_channels<COUNT, VECTORS>(p.bias + (any ? channel : 0), any ? left : 0, bias);
#pragma unroll
  for (int first = 0; first < OUTPUTS; first += ONCE) {
    float residual[ONCE][COUNT] = {};
    if constexpr (RESIDUAL) {
#pragma unroll
      for (int o = 0; o < ONCE; ++o)
        load_channels<COUNT, VECTORS>(
            p.residual + (first + o < columns ? to - y + (long long)(first + o) * pitch : 0),
            any ? left : 0, residual[o]);
    }
#pragma unroll
    for (int o = 0; o < ONCE; ++o)
#pragma unroll
      for (int c = 0; c < COUNT; ++c)
        tile[c][first + o] = finished(tile[c][first + o], bias[c], residual[o][c], p.slope);
  }
}
