// codegen/kernels/mma.cuh for the CPU: the same functions.
#pragma once
#include "pipeline.hpp"

enum class Swizzle { NONE = 0, B128 = 1 };

namespace host {
float from_half(unsigned short h);
unsigned short to_half(float v);  // to nearest even; 65520 and more is infinite
unsigned short to_bfloat(float v);
float odd(double v);  // 24 bits, the last one 1 where v has more: rounded again, rounded once
float widen(unsigned short v, bool bf16);

// What mma.sync has of a lane.
struct Fragments {
  unsigned a[4], b[2];
  float* d;
};
void multiply(Fragments mine, bool bf16);
void multiply_tf32(Fragments mine);
void wgmma_wait(int pending);
void load_matrices(unsigned (&r)[4], const void* shared, bool transposed);

template <int N, bool BF16, bool A_MN, bool B_MN>
Product& start_product(float (&d)[N / 2], unsigned long long b, bool accumulate) {
  static_assert(N % 8 == 0 && N <= 256, "a width of wgmma");
  Product& p = now->ordered->products.add();
  p.d = d, p.b = b, p.n = N, p.bf16 = BF16, p.accumulate = accumulate;
  p.a_mn = A_MN, p.b_mn = B_MN, p.a_registers = p.tf32 = false;
  return p;
}

}  // namespace host

inline unsigned long long matrix_descriptor(const void* shared, int leading, int stride,
                                            Swizzle swizzle = Swizzle::NONE) {
  const unsigned address = shared_address(shared) & 0xffffff;
  if (address % 16 || leading % 16 || stride % 16) host::fail("a matrix that is not aligned");
  return (unsigned long long)(address >> 4) | (unsigned long long)(leading >> 4 & 0x3fff) << 16 |
         (unsigned long long)(stride >> 4 & 0x3fff) << 32 |
         (unsigned long long)(swizzle == Swizzle::B128) << 62;
}
inline unsigned long long descriptor_offset(unsigned long long descriptor, int bytes) {
  return descriptor + (unsigned)(bytes >> 4);
}

inline void wgmma_fence() {}
inline void fence_async() {}
template <int COUNT>
void wgmma_pin(float (&)[COUNT]) {}
inline void wgmma_commit() { ++host::now->ordered->products.group; }
template <int PENDING>
void wgmma_wait() {
  host::wgmma_wait(PENDING);
}

template <int N, bool BF16 = false, bool A_MN = false, bool B_MN = false>
void wgmma(float (&d)[N / 2], unsigned long long a, unsigned long long b, bool accumulate) {
  host::start_product<N, BF16, A_MN, B_MN>(d, b, accumulate).a = a;
}
template <int N, bool BF16 = false, bool B_MN = false>
void wgmma(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b, bool accumulate) {
  host::Product& p = host::start_product<N, BF16, false, B_MN>(d, b, accumulate);
  memcpy(p.registers, a, sizeof p.registers);
  p.a = 0, p.a_registers = true;
}

template <bool BF16 = false>
void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  host::multiply({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, d}, BF16);
}

// Sums are rounded to FP16 once a chunk, to nearest.
inline void mma(unsigned (&d)[2], const unsigned (&a)[4], const unsigned (&b)[2]) {
  float wide[4];
  for (int i = 0; i < 4; ++i) wide[i] = host::from_half(d[i / 2] >> i % 2 * 16 & 0xffff);
  mma<false>(wide, a, b);
  for (int r = 0; r < 2; ++r)
    d[r] = host::to_half(wide[2 * r]) | (unsigned)host::to_half(wide[2 * r + 1]) << 16;
}

inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  host::multiply_tf32({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, d});
}

template <bool TRANSPOSED = false>
void load_matrices(unsigned (&r)[4], const void* shared) {
  host::load_matrices(r, shared, TRANSPOSED);
}

template <bool BF16 = false>
unsigned pack(float first, float second) {
  if (BF16) return host::to_bfloat(first) | (unsigned)host::to_bfloat(second) << 16;
  return host::to_half(first) | (unsigned)host::to_half(second) << 16;
}
template <bool BF16 = false>
void unpack(unsigned pair, float& first, float& second) {
  first = host::widen(pair & 0xffff, BF16), second = host::widen(pair >> 16, BF16);
}
