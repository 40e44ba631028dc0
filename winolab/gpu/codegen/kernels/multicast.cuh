// Signals and copies between the MULTICAST blocks of a cluster that bring filters for one another.
// PTX ISA sections 9.7.9.25 (cp.async.bulk, multicast), 9.7.13.15 (mbarrier).
#pragma once

#include "pipeline.cuh"

// Copies contiguous bytes (a multiple of 16, 16-byte aligned) to all BLOCKS of the cluster, to
// where this block has them, and counts them off on each one's barrier.
template <int BLOCKS>
__device__ __forceinline__ void bulk_copy_to_all(void* shared, const void* global, int bytes,
                                                 unsigned long long* barrier) {
  if constexpr (BLOCKS > 1)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier)), "h"((unsigned short)((1 << BLOCKS) - 1))
        : "memory");
  else
    bulk_copy((float*)shared, (const float*)global, bytes, barrier);
}

// Arrives at this barrier in the block of that rank of the cluster.
template <int BLOCKS>
__device__ __forceinline__ void barrier_arrive_at(unsigned long long* barrier, int rank) {
  if constexpr (BLOCKS > 1)
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
  else
    barrier_arrive(barrier);
}
