// What CUDA C++ has and C++ has not, for kernels that run on the CPU.
#pragma once
#include <limits.h>
#include <math.h>

#include "count.hpp"
#include "engine.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (host::now->thread)
#define blockIdx (host::now->block->index)
#define blockDim (host::machine.block)
#define gridDim (host::machine.grid)
constexpr int warpSize = 32;

// Vectors are copied whole, so that the compiler's checks see one access of 8 or 16 bytes.
#define HOST_VECTOR(name, type, bytes, fields, parameters, values)       \
  struct alignas(bytes) name {                                           \
    typedef type Whole __attribute__((vector_size(bytes)));              \
    union {                                                              \
      Whole whole;                                                       \
      struct {                                                           \
        type fields;                                                     \
      };                                                                 \
    };                                                                   \
    name() = default;                                                    \
    name parameters { whole = Whole{HOST_LIST values}; }                 \
    name(const name& from) : whole(from.whole) {}                        \
    name& operator=(const name& from) { return whole = from.whole, *this; } \
  };                                                                     \
  inline name make_##name parameters { return name values; }
#define HOST_LIST(...) __VA_ARGS__
#define HOST_COMMA ,
#define HOST_VECTOR2(name, type) \
  HOST_VECTOR(name, type, 2 * sizeof(type), x HOST_COMMA y, (type a, type b), (a, b))
#define HOST_VECTOR4(name, type)                                                       \
  HOST_VECTOR(name, type, 4 * sizeof(type), x HOST_COMMA y HOST_COMMA z HOST_COMMA w,  \
              (type a, type b, type c, type d), (a, b, c, d))
HOST_VECTOR2(float2, float)
HOST_VECTOR2(int2, int)
HOST_VECTOR2(uint2, unsigned)
HOST_VECTOR2(ushort2, unsigned short)
HOST_VECTOR2(double2, double)
HOST_VECTOR4(ushort4, unsigned short)
HOST_VECTOR4(float4, float)
HOST_VECTOR4(int4, int)
HOST_VECTOR4(uint4, unsigned)
using dim3 = host::Dim3;

template <class T>
T __ldg(const T* pointer) { return *pointer; }
template <class T>
T __ldcg(const T* pointer) { return *pointer; }
template <class T>
T __ldcs(const T* pointer) { return *pointer; }
template <class T>
void __stcs(T* pointer, T value) { *pointer = value; }
template <class T>
void __stcg(T* pointer, T value) { *pointer = value; }

// One rounding each: the compiler is told not to contract.
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

namespace host {
template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Every lane of the mask shows its value; `take` reads the others' between two meetings.
template <class T, class F>
auto exchange(unsigned mask, T value, const char* what, F take) {
  static_assert(sizeof(T) <= 8, "a register or two");
  Warp& w = warp();
  const unsigned lane = now->index % WARP;
  if (!(mask >> lane & 1)) fail("%s by a lane that its mask leaves out", what);
  uint64_t raw = 0;
  memcpy(&raw, &value, sizeof value);
  w.slot[lane] = raw;
  const unsigned lanes = __builtin_popcount(mask & w.live);
  meet(w.meeting, lanes, what);
  auto taken = take(w.slot, lane);
  meet(w.meeting, lanes, what);
  return taken;
}

template <class T>
T from_slot(uint64_t raw) {
  T value;
  memcpy(&value, &raw, sizeof value);
  return value;
}
}  // namespace host

inline unsigned __float_as_uint(float v) { return host::bits<unsigned>(v); }
inline int __float_as_int(float v) { return host::bits<int>(v); }
inline float __uint_as_float(unsigned v) { return host::bits<float>(v); }
inline float __int_as_float(int v) { return host::bits<float>(v); }
inline int __double2hiint(double v) { return (int)(host::bits<uint64_t>(v) >> 32); }
inline int __double2loint(double v) { return (int)host::bits<uint64_t>(v); }
inline double __hiloint2double(int high, int low) {
  return host::bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}

template <class T>
T min(T a, T b) { return b < a ? b : a; }
template <class T>
T max(T a, T b) { return a < b ? b : a; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }

inline void __syncthreads() {
  host::Block& b = *host::now->block;
  host::meet(b.named[0], b.live, "__syncthreads");
}
inline int __syncthreads_count(int predicate) {
  host::Block& b = *host::now->block;
  const int vote = predicate != 0;
  b.votes += vote;
  host::meet(b.named[0], b.live, "__syncthreads_count");
  const int found = b.votes;
  host::meet(b.named[0], b.live, "__syncthreads_count");
  b.votes -= vote;  // before the next meeting of all
  return found;
}
[[noreturn]] inline void __trap() { host::fail("__trap"); }
inline void __syncwarp(unsigned mask = ~0u) {
  host::Warp& w = host::warp();
  host::meet(w.meeting, __builtin_popcount(mask & w.live), "__syncwarp");
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { host::give_way(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return host::exchange(mask, value, "__shfl_sync", [=](uint64_t* slot, unsigned lane) {
    return host::from_slot<T>(slot[lane / width * width + source % width]);
  });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32) {
  return host::exchange(mask, value, "__shfl_xor_sync", [=](uint64_t* slot, unsigned lane) {
    const unsigned from = lane ^ flip;
    return host::from_slot<T>(slot[from / width <= lane / width ? from : lane]);
  });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
  return host::exchange(mask, value, "__shfl_down_sync", [=](uint64_t* slot, unsigned lane) {
    return host::from_slot<T>(slot[(int)(lane % width) + by < width ? lane + by : lane]);
  });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
  return host::exchange(mask, value, "__shfl_up_sync", [=](uint64_t* slot, unsigned lane) {
    return host::from_slot<T>(slot[(int)(lane % width) >= by ? lane - by : lane]);
  });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return host::exchange(mask, predicate, "__ballot_sync", [=](uint64_t* slot, unsigned) {
    unsigned votes = 0;
    for (int lane = 0; lane < host::WARP; ++lane)
      if (mask >> lane & 1 && (int)slot[lane]) votes |= 1u << lane;
    return votes;
  });
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return host::exchange(mask, value, "__reduce_max_sync", [=](uint64_t* slot, unsigned) {
    unsigned most = 0;
    for (int lane = 0; lane < host::WARP; ++lane)
      if (mask >> lane & 1 && (unsigned)slot[lane] > most) most = (unsigned)slot[lane];
    return most;
  });
}

template <class T>
T atomicAdd(T* pointer, T value) {
  if (value == 0) host::give_turn();  // who looks again and again waits for others
  const T old = *pointer;
  *pointer = old + value;
  return old;
}
template <class T>
T atomicMax(T* pointer, T value) {
  const T old = *pointer;
  if (old < value) *pointer = value;
  return old;
}
