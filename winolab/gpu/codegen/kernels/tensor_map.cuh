// Bulk tensor copies of compute capability 9.0: boxes of arrays, zeros outside.
// PTX ISA section 9.7.9.27 (cp.async.bulk.tensor).
#pragma once

#include "pipeline.cuh"

// What bulk tensor copies know of an array in global memory: tensor_map.TensorMap.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

// Copies a box of an array of five dimensions, whose first element has these coordinates, and counts
// its bytes off on the barrier; zeros where it lies outside the array.
__device__ __forceinline__ void box_copy(void* shared, const TensorMap& map, int c, int w, int h,
                                         int d, int n, unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "r"(shared_address(barrier))
      : "memory");
}

// Where such a copy puts the byte that would lie ``at`` bytes behind a multiple of 1024: the 16-byte
// units of 64 bytes are exchanged.
__device__ __forceinline__ unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 3) << 4; }
