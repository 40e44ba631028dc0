// TF32 parts of FP32 numbers.
#pragma once

// Four neighbouring numbers: high is rounded to 11 bits, low the rest, 12 bits at most, of which the Tensor
// Core takes 11.
struct FourParts {
  uint4 high, low;
  __device__ __forceinline__ explicit FourParts(const float (&v)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const unsigned rounded = (__float_as_uint(v[e]) + 0x1000u) & 0xffffe000u;
      (&high.x)[e] = rounded;
      (&low.x)[e] = __float_as_uint(__fsub_rn(v[e], __uint_as_float(rounded)));
    }
  }
};
