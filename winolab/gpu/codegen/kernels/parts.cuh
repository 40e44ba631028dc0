// Values of 16 bits for the Tensor Core: one part, or a high and a low one whose sum is the value.
// Sources give PARTS, BF16 (of the parts) and WIDE (whether arrays hold FP32).
#pragma once

#include "either.cuh"
#include "mma.cuh"

using Element = Either<WIDE, float, unsigned short>::type;

__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ float value(unsigned short x) {
  float first, second;
  unpack<BF16>(x, first, second);
  return first;
}

// A pair of values: [0] rounded, [1] what is left of it, rounded.
__device__ __forceinline__ void split(float first, float second, unsigned (&pair)[PARTS]) {
  pair[0] = pack<BF16>(first, second);
  if constexpr (PARTS == 2) {
    float high_first, high_second;
    unpack<BF16>(pair[0], high_first, high_second);
    pair[1] = pack<BF16>(__fsub_rn(first, high_first), __fsub_rn(second, high_second));
  }
}

// What is left of a value whose high part is the FP16 number in the upper half of ``bits``. Its sign,
// exponent and fraction are moved to where FP64 has them, 2^1008 too small, which is exact and takes
// no conversion: those of 64 bits run at an eighth of the rate. (Infinities become finite: a value
// with such a high part is lost whatever its low part is.)
__device__ __forceinline__ double left_of(double value, unsigned bits) {
  const double high = __hiloint2double((int)bits >> 6 & 0x81fffc00, 0);
  return __fma_rn(high, -__hiloint2double(1023 + 1008 << 20, 0), value);
}

// Splits numbers of more digits than FP32 holds, by way of FP32.
__device__ __forceinline__ void split(double first, double second, unsigned (&pair)[PARTS]) {
  pair[0] = pack<BF16>(__double2float_rn(first), __double2float_rn(second));
  if constexpr (PARTS == 2) {
    static_assert(PARTS == 1 || !BF16, "left_of takes FP16");
    pair[1] = pack<BF16>(__double2float_rn(left_of(first, pair[0] << 16)),
                         __double2float_rn(left_of(second, pair[0])));
  }
}

// Stores four neighbouring outputs, or as many of them as are left.
__device__ __forceinline__ void store(float* to, const float (&v)[4], int left) {
  if constexpr (YVEC == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < left) to[c] = v[c];
  }
}
__device__ __forceinline__ void store(unsigned short* to, const float (&v)[4], int left) {
  const uint2 pairs = make_uint2(pack<BF16>(v[0], v[1]), pack<BF16>(v[2], v[3]));
  if constexpr (YVEC == 4) {
    *reinterpret_cast<uint2*>(to) = pairs;
  } else {
    const unsigned short values[] = {(unsigned short)pairs.x, (unsigned short)(pairs.x >> 16),
                                     (unsigned short)pairs.y, (unsigned short)(pairs.y >> 16)};
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < left) to[c] = values[c];
  }
}
