// codegen/kernels/multicast.cuh for the CPU: the same functions.
#pragma once
#include "pipeline.hpp"

template <int BLOCKS>
void bulk_copy_to_all(void* shared, const void* global, int bytes, unsigned long long* barrier) {
  own_address(shared);
  for (int rank = 0; rank < BLOCKS; ++rank)
    host::start_bulk_copy(host::in_block((char*)shared, rank), global, bytes,
                          host::in_block(barrier, rank));
}

template <int BLOCKS>
void barrier_arrive_at(unsigned long long* barrier, int rank) {
  own_address(barrier);
  host::arrive(host::barrier(host::in_block(barrier, rank)), 0);
}
