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

// COUNT numbers of neighbouring channels, of which ``left`` are, from ``channel`` on, that go to ``to``
// in y; VECTORS: where they lie aligned, and are all there.
template <int COUNT, bool VECTORS>
__device__ __forceinline__ void finish_channels(const EpilogueParams& p, float (&v)[COUNT],
                                                const EpilogueElement* to, const EpilogueElement* y, int channel,
                                                int left) {
  const EpilogueElement* residual = p.residual + (to - y);
  float other[COUNT];
  if constexpr (RESIDUAL && VECTORS && COUNT % 2 == 0) {
    if constexpr (FINISHED != 0) {
      unsigned pairs[COUNT / 2];
      if constexpr (COUNT == 8) {
        const uint4 all = *reinterpret_cast<const uint4*>(residual);
        pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
      } else if constexpr (COUNT == 4) {
        const uint2 all = *reinterpret_cast<const uint2*>(residual);
        pairs[0] = all.x, pairs[1] = all.y;
      } else {
        pairs[0] = *reinterpret_cast<const unsigned*>(residual);
      }
#pragma unroll
      for (int c = 0; c < COUNT; c += 2) unpack<FINISHED == 2>(pairs[c / 2], other[c], other[c + 1]);
    } else if constexpr (COUNT == 4) {
      const float4 all = *reinterpret_cast<const float4*>(residual);
      other[0] = all.x, other[1] = all.y, other[2] = all.z, other[3] = all.w;
    } else {
#pragma unroll
      for (int c = 0; c < COUNT; c += 2) {
        const float2 pair = *reinterpret_cast<const float2*>(residual + c);
        other[c] = pair.x, other[c + 1] = pair.y;
      }
    }
  } else {
#pragma unroll
    for (int c = 0; c < COUNT; ++c)
      other[c] = RESIDUAL && c < left ? widened(residual[c]) : 0.0f;
  }
#pragma unroll
  for (int c = 0; c < COUNT; ++c) {
    const float bias = BIAS && c < left ? widened(__ldg(p.bias + channel + c)) : 0.0f;
    v[c] = finished(v[c], bias, other[c], p.slope);
  }
}
