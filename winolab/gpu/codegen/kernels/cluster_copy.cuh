// Copies from shared memory to that of other blocks of the cluster, and its barrier in two halves.
// PTX ISA sections 9.7.9.25 (cp.async.bulk), 9.7.13.4 (barrier.cluster).
#pragma once

#include "pipeline.cuh"

// Copies bytes (a multiple of 16, 16-byte aligned) of this block's shared memory to where the block of
// that rank has ``to``, and counts them off on its ``barrier``.
__device__ __forceinline__ void bulk_copy_to(void* to, const void* from, int bytes,
                                             unsigned long long* barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there, counted;\nmapa.shared::cluster.u32 there, %0, %4;\n"
      "mapa.shared::cluster.u32 counted, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, "
      "[counted];\n}" ::"r"(shared_address(to)),
      "r"(shared_address(from)), "r"(bytes), "r"(shared_address(barrier)), "r"(rank)
      : "memory");
}

// The two halves of cluster_sync: what happens between them does not wait for other blocks. Arriving
// orders nothing that was written before, but barriers that are ready: that would take 400 cycles.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
