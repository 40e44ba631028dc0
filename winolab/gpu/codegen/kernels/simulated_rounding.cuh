// Rounding as winolab.ref.arithmetic.formats has it, the same bits. Constants: the format (PRECISION,
// EMIN, EMAX, INFINITIES).
#pragma once

constexpr int EXPONENT = 0x7ff;  // all bits of the field of a double

__device__ __forceinline__ double power(int exponent) {
  return __hiloint2double((exponent + 1023) << 20, 0);
}

__device__ __forceinline__ int field(double x) { return __double2hiint(x) >> 20 & EXPONENT; }

// To the format: Format.round of winolab.ref.arithmetic.formats.
template <bool TOWARDS_ZERO = false>
__device__ __forceinline__ float rounded(double x) {
  const int e = min(max(field(x) - 1023, EMIN), EMAX + 1) + 1 - PRECISION;
  const double scaled = __dmul_rn(x, power(-e));
  double y = __dmul_rn(TOWARDS_ZERO ? trunc(scaled) : rint(scaled), power(e));
  const double largest =
      __dmul_rn(__dsub_rn(2.0, (INFINITIES ? 1 : 2) * power(1 - PRECISION)), power(EMAX));
  const float infinite = __int_as_float(0x7f800000);
  if (fabs(y) > largest && field(x) != EXPONENT) y = copysign(TOWARDS_ZERO ? largest : (double)infinite, x);
  if (!INFINITIES && fabs(y) > largest) y = (double)__int_as_float(0x7fffffff);
  return (float)y;
}
