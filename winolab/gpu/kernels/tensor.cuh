// Tensor Cores: wgmma (sm_90a), mma.sync, ldmatrix, stmatrix, fences, 16-bit conversions.
// PTX ISA sections 9.7.15 (wgmma), 9.7.14.5 (mma, ldmatrix, stmatrix). Fragments, by warp and lane,
// with g = lane / 4 and q = lane % 4:
//   accumulators of wgmma m64nN: d[4j + 2r + c] = D[16 warp + 8r + g][8j + 2q + c]
//   A in registers, m64k16:      a[r + 2k] = the pair A[16 warp + 8r + g][8k + 2q + {0, 1}]
//   mma m16n8k16: the same for its one warp; b[k] = the pair B[8k + 2q + {0, 1}][g]

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
// Of the address, only the offset within the block's own shared memory may enter.
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

// Lists of accumulators, for the assembler and for the compiler.
#define WGMMA_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_R8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_R16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_R24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_R32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_R40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_R48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_R56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_R64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_R72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_R80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_R88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_R96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_R104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_R112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_R120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_D(i)                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_REGISTERS_16 WGMMA_R0
#define WGMMA_VALUES_16 WGMMA_D(0)
#define WGMMA_REGISTERS_32 WGMMA_REGISTERS_16 ", " WGMMA_R8
#define WGMMA_VALUES_32 WGMMA_VALUES_16, WGMMA_D(8)
#define WGMMA_REGISTERS_64 WGMMA_REGISTERS_32 ", " WGMMA_R16 ", " WGMMA_R24
#define WGMMA_VALUES_64 WGMMA_VALUES_32, WGMMA_D(16), WGMMA_D(24)
#define WGMMA_REGISTERS_96 WGMMA_REGISTERS_64 ", " WGMMA_R32 ", " WGMMA_R40
#define WGMMA_VALUES_96 WGMMA_VALUES_64, WGMMA_D(32), WGMMA_D(40)
#define WGMMA_REGISTERS_128 WGMMA_REGISTERS_96 ", " WGMMA_R48 ", " WGMMA_R56
#define WGMMA_VALUES_128 WGMMA_VALUES_96, WGMMA_D(48), WGMMA_D(56)
#define WGMMA_REGISTERS_256 \
  WGMMA_REGISTERS_128 ", " WGMMA_R64 ", " WGMMA_R72 ", " WGMMA_R80 ", " WGMMA_R88 ", " \
  WGMMA_R96 ", " WGMMA_R104 ", " WGMMA_R112 ", " WGMMA_R120
#define WGMMA_VALUES_256 \
  WGMMA_VALUES_128, WGMMA_D(64), WGMMA_D(72), WGMMA_D(80), WGMMA_D(88), WGMMA_D(96), \
  WGMMA_D(104), WGMMA_D(112), WGMMA_D(120)

// One instruction; A, B, ACCUMULATE and MORE name the operands that follow the accumulators.
#define WGMMA_ASM(N, TYPE, A, B, ACCUMULATE, MORE)                                          \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                                            \
  ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                      \
  " {" WGMMA_REGISTERS_##N "}, " A ", " B ", p, 1, 1" MORE ";\n}"
#define WGMMA_SHARED(N, TYPE, A, B, ACCUMULATE, TA, TB)                                     \
  asm volatile(WGMMA_ASM(N, TYPE, A, B, ACCUMULATE, ", " TA ", " TB)                        \
               : WGMMA_VALUES_##N                                                           \
               : "l"(a), "l"(b), "r"((int)accumulate), "n"((int)A_MN), "n"((int)B_MN))
#define WGMMA_REGISTER(N, TYPE, A, B, ACCUMULATE, TB)                                       \
  asm volatile(WGMMA_ASM(N, TYPE, A, B, ACCUMULATE, ", " TB)                                \
               : WGMMA_VALUES_##N                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)accumulate),  \
                 "n"((int)B_MN))

// d = A B + (accumulate ? d : 0), asynchronously: A is 64 × 16, B is 16 × N, both FP16 or BF16
// (BF16 = true), A and B from shared memory by descriptor; A_MN, B_MN: stored along m, n, not k.
template <int N, bool BF16 = false, bool A_MN = false, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], unsigned long long a,
                                      unsigned long long b, bool accumulate) {
  if constexpr (N == 16 && BF16)
    WGMMA_SHARED(16, "bf16", "%8", "%9", "%10", "%11", "%12");
  else if constexpr (N == 16)
    WGMMA_SHARED(16, "f16", "%8", "%9", "%10", "%11", "%12");
  else if constexpr (N == 32 && BF16)
    WGMMA_SHARED(32, "bf16", "%16", "%17", "%18", "%19", "%20");
  else if constexpr (N == 32)
    WGMMA_SHARED(32, "f16", "%16", "%17", "%18", "%19", "%20");
  else if constexpr (N == 64 && BF16)
    WGMMA_SHARED(64, "bf16", "%32", "%33", "%34", "%35", "%36");
  else if constexpr (N == 64)
    WGMMA_SHARED(64, "f16", "%32", "%33", "%34", "%35", "%36");
  else if constexpr (N == 96 && BF16)
    WGMMA_SHARED(96, "bf16", "%48", "%49", "%50", "%51", "%52");
  else if constexpr (N == 96)
    WGMMA_SHARED(96, "f16", "%48", "%49", "%50", "%51", "%52");
  else if constexpr (N == 128 && BF16)
    WGMMA_SHARED(128, "bf16", "%64", "%65", "%66", "%67", "%68");
  else if constexpr (N == 128)
    WGMMA_SHARED(128, "f16", "%64", "%65", "%66", "%67", "%68");
  else if constexpr (N == 256 && BF16)
    WGMMA_SHARED(256, "bf16", "%128", "%129", "%130", "%131", "%132");
  else if constexpr (N == 256)
    WGMMA_SHARED(256, "f16", "%128", "%129", "%130", "%131", "%132");
  else
    static_assert(N == 0, "add the width to the list");
}

// The same with A in registers.
template <int N, bool BF16 = false, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const unsigned (&a)[4],
                                      unsigned long long b, bool accumulate) {
  if constexpr (N == 16 && BF16)
    WGMMA_REGISTER(16, "bf16", "{%8, %9, %10, %11}", "%12", "%13", "%14");
  else if constexpr (N == 16)
    WGMMA_REGISTER(16, "f16", "{%8, %9, %10, %11}", "%12", "%13", "%14");
  else if constexpr (N == 32 && BF16)
    WGMMA_REGISTER(32, "bf16", "{%16, %17, %18, %19}", "%20", "%21", "%22");
  else if constexpr (N == 32)
    WGMMA_REGISTER(32, "f16", "{%16, %17, %18, %19}", "%20", "%21", "%22");
  else if constexpr (N == 64 && BF16)
    WGMMA_REGISTER(64, "bf16", "{%32, %33, %34, %35}", "%36", "%37", "%38");
  else if constexpr (N == 64)
    WGMMA_REGISTER(64, "f16", "{%32, %33, %34, %35}", "%36", "%37", "%38");
  else if constexpr (N == 96 && BF16)
    WGMMA_REGISTER(96, "bf16", "{%48, %49, %50, %51}", "%52", "%53", "%54");
  else if constexpr (N == 96)
    WGMMA_REGISTER(96, "f16", "{%48, %49, %50, %51}", "%52", "%53", "%54");
  else if constexpr (N == 128 && BF16)
    WGMMA_REGISTER(128, "bf16", "{%64, %65, %66, %67}", "%68", "%69", "%70");
  else if constexpr (N == 128)
    WGMMA_REGISTER(128, "f16", "{%64, %65, %66, %67}", "%68", "%69", "%70");
  else if constexpr (N == 256 && BF16)
    WGMMA_REGISTER(256, "bf16", "{%128, %129, %130, %131}", "%132", "%133", "%134");
  else if constexpr (N == 256)
    WGMMA_REGISTER(256, "f16", "{%128, %129, %130, %131}", "%132", "%133", "%134");
  else
    static_assert(N == 0, "add the width to the list");
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

template <bool TRANSPOSED = false>
__device__ __forceinline__ void store_matrices(void* shared, const unsigned (&r)[4]) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
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
