// kernels/twins.cuh for the CPU: the same functions.
#pragma once
#include "pipeline.hpp"

template <int BLOCKS>
void bulk_copy_to_all(void* shared, const void* global, int bytes, unsigned long long* barrier) {
  for (int rank = 0; rank < BLOCKS; ++rank)
    host::start_copy(host::in_block((char*)shared, rank), (const char*)global, bytes,
                     host::in_block(barrier, rank));
}

template <int BLOCKS>
void barrier_arrive_at(unsigned long long* barrier, int rank) {
  own_address(barrier);
  host::arrive(host::barrier(host::in_block(barrier, rank)), 0);
}
