// Tensor Cores: wgmma (sm_90a), mma.sync, ldmatrix, fences, 16-bit conversions.
// PTX ISA sections 9.7.15 (wgmma), 9.7.14.5 (mma, ldmatrix). Fragments, by warp and lane,
// with g = lane / 4 and q = lane % 4:
//   accumulators of wgmma m64nN: d[4j + 2r + c] = D[16 warp + 8r + g][8j + 2q + c]
//   A in registers, m64k16:      a[r + 2k] = the pair A[16 warp + 8r + g][8k + 2q + {0, 1}]
//   mma m16n8k16: the same for its one warp; b[k] = the pair B[8k + 2q + {0, 1}][g]
//   mma m16n8k8 of TF32: a[r + 2k] = A[8r + g][4k + q]; b[k] = B[4k + q][g]
#pragma once

enum class Swizzle { NONE = 0, B128 = 1 };

// A matrix in shared memory, of core matrices: 8 rows of 16 bytes.
// Swizzle::NONE, K-major: a core matrix is 8 rows along m or n, each of 8 values along k, in 128
//   contiguous bytes; leading = bytes between core matrices along k, stride = along m or n.
// Swizzle::NONE, MN-major: a core matrix is 8 rows along k, each of 8 values along m or n;
//   leading = bytes to the next core matrix along k, stride = along m or n.
// Swizzle::B128, K-major: rows of 128 bytes (64 values along k); row r of a 1024-byte atom of 8
//   rows has its 16-byte units exchanged by u ^ (r % 8); stride = bytes between atoms along m, n (1024
//   where they are contiguous), leading unused; the next 16 values along k begin 32 bytes further.
// Swizzle::B128, MN-major: atoms of 8 rows along k, each of 64 values along m or n, exchanged
//   alike; leading = bytes between atoms along m or n, stride = along k.
// Only the offset within the block's own shared memory may enter the address.
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* shared, int leading,
                                                                int stride,
                                                                Swizzle swizzle = Swizzle::NONE) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return (unsigned long long)(address >> 4 & 0x3fff) |
         (unsigned long long)(leading >> 4 & 0x3fff) << 16 |
         (unsigned long long)(stride >> 4 & 0x3fff) << 32 |
         (unsigned long long)(swizzle == Swizzle::B128) << 62;
}

// The descriptor of what begins that many bytes (a multiple of 16) further on.
__device__ __forceinline__ unsigned long long descriptor_offset(unsigned long long descriptor,
                                                                int bytes) {
  return descriptor + (unsigned)(bytes >> 4);
}

// Before the first wgmma, and where registers that it reads were written since the last one.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most PENDING of the committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving uses of d across an asynchronous wgmma or a wait.
template <int COUNT>
__device__ __forceinline__ void wgmma_pin(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Between ordinary stores to shared memory and their reading by wgmma or bulk copies.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// d = A B + (accumulate ? d : 0), asynchronously: A is 64 × 16, B is 16 × N, both FP16 or BF16
// (BF16 = true), from shared memory by descriptor; A_MN, B_MN: stored along m, n, not k.
template <int N, bool BF16 = false, bool A_MN = false, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], unsigned long long a,
                                      unsigned long long b, bool accumulate) {
  #include "wgmma_shared.cuh"
}

// The same with A in registers.
template <int N, bool BF16 = false, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const unsigned (&a)[4],
                                      unsigned long long b, bool accumulate) {
  #include "wgmma_registers.cuh"
}

// One warp's m16n8k16: d += A B.
template <bool BF16 = false>
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (BF16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same in FP16 with sums in FP16: d[r] = the pair D[8r + g][2q + {0, 1}].
__device__ __forceinline__ void mma(unsigned (&d)[2], const unsigned (&a)[4],
                                    const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of m16n8k8 in TF32: FP32 numbers whose last 13 bits do not count.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 × 8 matrices of 16-bit values; lane l addresses row l % 8 of matrix l / 8. Lane 4g + q
// gets the pair [g][2q + {0, 1}] of each, or of its transpose.
template <bool TRANSPOSED = false>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* shared) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// Two values rounded to nearest, the first in the low half.
template <bool BF16 = false>
__device__ __forceinline__ unsigned pack(float first, float second) {
  unsigned pair;
  if constexpr (BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

template <bool BF16 = false>
__device__ __forceinline__ void unpack(unsigned pair, float& first, float& second) {
  if constexpr (BF16) {
    first = __uint_as_float(pair << 16), second = __uint_as_float(pair & 0xffff0000u);
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n}"
        : "=f"(first), "=f"(second)
        : "r"(pair));
  }
}
