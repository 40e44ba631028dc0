// codegen/kernels/pairs.cuh for the CPU: the same functions.
#pragma once
#include "mma.hpp"

struct Half2 {
  unsigned bits;
  Half2 operator-() const { return {bits ^ 0x80008000u}; }
};

namespace host {
template <bool BF16>
Half2 pair_fma(unsigned q, Half2 a, Half2 b) {
  unsigned found = 0;
  for (int at = 0; at < 32; at += 16) {
    const auto wide = [&](unsigned bits) { return (double)widen(bits >> at & 0xffff, BF16); };
    const float sum = odd(wide(q) * wide(a.bits) + wide(b.bits));
    found |= (unsigned)(BF16 ? to_bfloat(sum) : to_half(sum)) << at;
  }
  return {found};
}
}  // namespace host

// The kernel's INPUT, which stands behind this, says what the numbers are.
#define pair_fma(q, a, b) host::pair_fma<(INPUT == 2)>(q, a, b)
#define pair_mul(q, a) host::pair_fma<(INPUT == 2)>(q, a, Half2{0x80008000u})
#define pair_add(a, b) host::pair_fma<(INPUT == 2)>(INPUT == 2 ? 0x3f803f80u : 0x3c003c00u, a, b)
#define pair_sub(a, b) pair_add(a, -(b))
