// Launches that only stand in for others: what these found out about their own results.
#pragma once

constexpr int LOST = 0;  // a result may have lost accuracy, or is not finite
constexpr int ZERO = 1;  // results are exactly 0: of zeros, or of numbers that underflowed
constexpr int TINY = 2;  // there are numbers that underflow
constexpr int CONFIRMED = 3;  // a suspect lost accuracy

// Whether to run at all; without flags, always.
__device__ __forceinline__ bool wanted(const int* flags) {
  return !flags || flags[LOST] || (flags[ZERO] && flags[TINY]);
}

// Sets the flags that a sum of |results| asks for which should not be below ``least``.
__device__ __forceinline__ void judge(int* flags, float sum, float least) {
  if (sum >= least && sum < __int_as_float(0x7f800000)) return;
  flags[sum == 0.0f ? ZERO : LOST] = 1;
}
