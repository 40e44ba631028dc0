// Tensor copies of compute capability 9.0 that walk an array position by position.
// PTX ISA section 5.5.4 (im2col mode), 9.7.9.27 (cp.async.bulk.tensor).
#pragma once

#include "tensor_map.cuh"

// Lets the map be read before the first copy by it.
__device__ __forceinline__ void map_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Where a copy begins: a channel and a position of the map's window, and how far behind each position
// the element lies that it brings, a tap.
struct Positions {
  int c, w, h, d, n;
  int tap_w, tap_h, tap_d;
};

// Copies positions × 64 channels of an array and counts their bytes off on the barrier: positions of
// the map's window, along w first, then h, d and n. Zeros where an element lies outside the array.
// RANK: 5, or 4 of arrays that have no d, whose taps may lie farther.
template <int RANK>
__device__ __forceinline__ void positions_copy(void* shared, const TensorMap& map, const Positions& from,
                                               unsigned long long* barrier) {
  if constexpr (RANK == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared_address(shared)),
        "l"(&map), "r"(from.c), "r"(from.w), "r"(from.h), "r"(from.n), "r"(shared_address(barrier)),
        "h"((unsigned short)from.tap_w), "h"((unsigned short)from.tap_h)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(shared_address(shared)),
        "l"(&map), "r"(from.c), "r"(from.w), "r"(from.h), "r"(from.d), "r"(from.n),
        "r"(shared_address(barrier)), "h"((unsigned short)from.tap_w),
        "h"((unsigned short)from.tap_h), "h"((unsigned short)from.tap_d)
        : "memory");
}
