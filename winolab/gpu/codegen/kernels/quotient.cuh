// Divisions by numbers that the host knows.
#pragma once

// A divisor that the host knows (Granlund & Montgomery 1994), of 0 ≤ n < 2³¹.
struct Quotient {
  long long magic;  // of 32 bits, the uppermost of which is set
  int shift, divisor;
};
__device__ __forceinline__ int divide(const Quotient& by, int n, int& rest) {
  const unsigned high = (unsigned)((unsigned long long)(2u * (unsigned)n) * (unsigned)by.magic >> 32);
  const int quotient = (int)(high >> by.shift);
  rest = n - quotient * by.divisor;
  return quotient;
}
