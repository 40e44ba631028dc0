// Arithmetic of pairs of 16-bit numbers, each operation rounded once: FP16, with INPUT = 2 BF16,
// whose sums and products before 9.0 are FMAs. Constants are their bits. PTX ISA section 9.7.4.
#pragma once

struct Half2 {
  unsigned bits;
  __device__ __forceinline__ Half2 operator-() const { return {bits ^ 0x80008000u}; }
};

__device__ __forceinline__ Half2 pair_fma(unsigned q, Half2 a, Half2 b) {
  Half2 d;
  if constexpr (INPUT == 2)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d.bits) : "r"(q), "r"(a.bits), "r"(b.bits));
  else
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d.bits) : "r"(q), "r"(a.bits), "r"(b.bits));
  return d;
}

__device__ __forceinline__ Half2 pair_mul(unsigned q, Half2 a) {
  if constexpr (INPUT == 2) return pair_fma(q, a, {0x80008000u});
  Half2 d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d.bits) : "r"(q), "r"(a.bits));
  return d;
}

__device__ __forceinline__ Half2 pair_add(Half2 a, Half2 b) {
  if constexpr (INPUT == 2) return pair_fma(0x3f803f80u, a, b);
  Half2 d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d.bits) : "r"(a.bits), "r"(b.bits));
  return d;
}

__device__ __forceinline__ Half2 pair_sub(Half2 a, Half2 b) { return pair_add(a, -b); }
