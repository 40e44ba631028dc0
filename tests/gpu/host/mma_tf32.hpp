// codegen/kernels/mma_tf32.cuh for the CPU: the same function.
#pragma once

#include "mma.hpp"

template <int N>
void wgmma_tf32(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b, bool accumulate) {
  host::Product& p = host::start_product<N, true, false, false>(d, b, accumulate);  // FP32's exponents
  memcpy(p.registers, a, sizeof p.registers);
  p.a = 0, p.a_registers = p.tf32 = true;
}
