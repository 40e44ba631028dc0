// codegen/kernels/mma.cuh for the CPU: the same functions. Products of 16-bit numbers are exact; a chunk
// of them and the accumulator are summed as winolab.ref.arithmetic.accumulate's tensor_core does.
#pragma once
#include "pipeline.hpp"

#ifndef HOST_CHUNK
#define HOST_CHUNK 16  // products that are aligned and added at once
#endif
#ifndef HOST_EXTRA_BITS
#define HOST_EXTRA_BITS 2  // kept below the last of the largest term
#endif

enum class Swizzle { NONE = 0, B128 = 1 };

namespace host {
inline float from_half(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return bits<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = fraction * 0x1p-24f;
  return sign ? -value : value;
}

// To nearest even; 65520 and more is infinite.
inline unsigned short to_half(float v) {
  const unsigned raw = bits<unsigned>(v), sign = raw >> 16 & 0x8000, size = raw & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7fff;
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size >= 0x38800000)  // normal: drop 13 bits
    return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
  const float aligned = bits<float>(size) + 0.5f;  // the last bit of 0.5 is 2^-24
  return sign | (bits<unsigned>(aligned) - 0x3f000000);
}

inline unsigned short to_bfloat(float v) {
  const unsigned raw = bits<unsigned>(v);
  if ((raw & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (raw + 0x7fff + (raw >> 16 & 1)) >> 16;
}

inline float widen(unsigned short v, bool bf16) {
  return bf16 ? bits<float>((unsigned)v << 16) : from_half(v);
}

inline float truncated(double v) {
  const double size = v < 0 ? -v : v;
  if (size >= 0x1p128) return v < 0 ? -INFINITY : INFINITY;
  if (size < 0x1p-126) return (float)((double)(long long)(v * 0x1p149) * 0x1p-149);
  return (float)bits<double>(bits<uint64_t>(v) & ~((1ull << 29) - 1));
}

inline double binade(double v) {
  return bits<double>(bits<uint64_t>(v) & 0x7ff0000000000000);
}

inline float chunk(const float* a, const float* b, int n, float sum) {
  double largest = sum < 0 ? -(double)sum : sum;
  bool finite = largest < INFINITY;
  for (int i = 0; i < n; ++i) {
    const double size = binade(a[i]) * binade(b[i]);  // a product's exponent is its factors' sum
    finite &= size < INFINITY;
    if (size > largest) largest = size;
  }
  double total = 0;
  if (!finite) {
    for (int i = 0; i < n; ++i) total += (double)a[i] * b[i];
    return (float)(total + sum);
  }
  const double top = binade(largest);
  const double spacing = (top < 0x1p-126 ? 0x1p-126 : top) * (0x1p-23 / (1 << HOST_EXTRA_BITS));
  const double inverse = 1 / spacing;
  for (int i = 0; i < n; ++i) total += __builtin_trunc((double)a[i] * b[i] * inverse);
  return truncated((total + __builtin_trunc(sum * inverse)) * spacing);
}

inline float products(const float (&a)[16], const float (&b)[16], float sum) {
  for (int k = 0; k < 16; k += HOST_CHUNK) sum = chunk(a + k, b + k, HOST_CHUNK, sum);
  return sum;
}

// The element at (mn, k) of a matrix in shared memory, see codegen/mma.cuh.
inline float element(unsigned long long descriptor, bool mn_major, int mn, int k, bool bf16) {
  const unsigned leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  unsigned at = (descriptor & 0x3fff) << 4;
  if (descriptor >> 62 == (int)Swizzle::B128) {
    at += mn_major ? mn / 64 * leading + k / 8 * stride + k % 8 * 128 + mn % 64 * 2
                   : mn / 8 * stride + mn % 8 * 128 + k * 2;
    at ^= at >> 3 & 0x70;
  } else if (descriptor >> 62 == 2 && mn_major) {  // rows of 64 bytes
    at += mn / 32 * leading + k / 8 * stride + k % 8 * 64 + mn % 32 * 2;
    at ^= at >> 3 & 0x30;
  } else {
    const int row = mn_major ? k : mn, column = mn_major ? mn : k;
    at += k / 8 * leading + mn / 8 * stride + row % 8 * 16 + column % 8 * 2;
  }
  const Block& b = *now->block;
  if (at < GUARD || at - GUARD + 2 > b.bytes) fail("wgmma reads outside shared memory");
  const Quiet quiet;
  unsigned short value;
  memcpy(&value, b.shared() + at - GUARD, 2);
  return widen(value, bf16);
}

// This thread's part of the product, when all lanes of its warp have come to the wait.
inline void multiply(const Product& p) {
  const int lane = now->index % WARP, g = lane / 4, q = lane % 4, wide = now->index / WARP % 4;
  const Fiber* warp = now - lane;
  const ptrdiff_t at = &p - now->products.list;
  const Product& first = warp->products.list[at];
  if (p.a != first.a || p.b != first.b || p.n != first.n || p.accumulate != first.accumulate)
    fail("wgmma with other operands than lane 0's");
  float a[2][16];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < 16; ++k) {
      if (p.a_registers) {
        const unsigned pair = warp[4 * g + k % 8 / 2].products.list[at].registers[r + k / 8 * 2];
        a[r][k] = widen(pair >> k % 2 * 16, p.bf16);
      } else {
        a[r][k] = element(p.a, p.a_mn, 16 * wide + 8 * r + g, k, p.bf16);
      }
    }
  for (int i = 0; i < p.n / 2; i += 4)
    for (int c = 0; c < 2; ++c) {
      float b[16];
      for (int k = 0; k < 16; ++k) b[k] = element(p.b, p.b_mn, i * 2 + 2 * q + c, k, p.bf16);
      for (int r = 0; r < 2; ++r) {
        float& d = p.d[i + 2 * r + c];
        d = products(a[r], b, p.accumulate ? d : 0.0f);
      }
    }
}

template <int N, bool BF16, bool A_MN, bool B_MN>
Product& start_product(float (&d)[N / 2], unsigned long long b, bool accumulate) {
  static_assert(N % 8 == 0 && N <= 256, "a width of wgmma");
  Product& p = now->products.add();
  p.d = d, p.b = b, p.n = N, p.bf16 = BF16, p.accumulate = accumulate;
  p.a_mn = A_MN, p.b_mn = B_MN, p.a_registers = false;
  return p;
}

// Lane by lane values of a warp: every lane shows its own while `take` runs.
template <class T, class F>
void with_lanes(const T& mine, const char* what, F take) {
  exchange(~0u, (uint64_t)&mine, what, [&](uint64_t* slot, unsigned lane) {
    const Quiet quiet;
    take([=](int other) -> const T& { return *(const T*)slot[other]; }, (int)lane);
    return 0;
  });
}

struct Fragments {
  unsigned a[4], b[2];
};
inline unsigned short* matrix_row(const void* shared) {
  touch(shared, 16, false, "load_matrices");
  shared_address((const char*)shared + 15);
  if ((uintptr_t)shared % 16) fail("a matrix row that is not 16-byte aligned");
  return (unsigned short*)shared;
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
inline void wgmma_commit() { ++host::now->products.group; }
template <int PENDING>
void wgmma_wait() {
  host::Warp& warp = host::warp();
  host::meet(warp.meeting, host::WARP, "wgmma_wait");
  for (int i = 0; i < host::now->products.count; ++i) {
    const host::Product& p = host::now->products.list[i];
    if (p.group + PENDING < host::now->products.group) host::multiply(p);
  }
  host::meet(warp.meeting, host::WARP, "wgmma_wait");
  host::now->products.finish(PENDING, [](const host::Product&) {});
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
  host::Fragments mine;
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  host::with_lanes(mine, "mma", [&](auto of, int lane) {
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 2; ++c) {
        float row[16], column[16];
        for (int k = 0; k < 16; ++k) {
          const int from = k % 8 / 2, shift = k % 2 * 16;
          row[k] = host::widen(of(4 * g + from).a[r + k / 8 * 2] >> shift, BF16);
          column[k] = host::widen(of(4 * (2 * q + c) + from).b[k / 8] >> shift, BF16);
        }
        d[2 * r + c] = host::products(row, column, d[2 * r + c]);
      }
  });
}

// Sums are rounded to FP16 once a chunk, to nearest.
inline void mma(unsigned (&d)[2], const unsigned (&a)[4], const unsigned (&b)[2]) {
  float wide[4];
  for (int i = 0; i < 4; ++i) wide[i] = host::from_half(d[i / 2] >> i % 2 * 16 & 0xffff);
  mma<false>(wide, a, b);
  for (int r = 0; r < 2; ++r)
    d[r] = host::to_half(wide[2 * r]) | (unsigned)host::to_half(wide[2 * r + 1]) << 16;
}

template <bool TRANSPOSED = false>
void load_matrices(unsigned (&r)[4], const void* shared) {
  host::with_lanes(host::matrix_row(shared), "load_matrices", [&](auto of, int lane) {
    const int g = lane / 4, q = lane % 4;
    for (int m = 0; m < 4; ++m) {
      unsigned pair[2];
      for (int c = 0; c < 2; ++c)
        pair[c] = TRANSPOSED ? of(8 * m + 2 * q + c)[g] : of(8 * m + g)[2 * q + c];
      r[m] = pair[0] | pair[1] << 16;
    }
  });
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
