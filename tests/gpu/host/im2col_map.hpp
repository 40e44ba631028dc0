// codegen/kernels/im2col_map.cuh for the CPU: the same struct and functions.
#pragma once
#include "tensor_map.hpp"

inline void map_prefetch(const TensorMap&) {}

struct Positions {
  int c, w, h, d, n;
  int tap_w, tap_h, tap_d;
};

namespace host {
// Every 16-byte unit of a position is a copy of its own.
void positions_copy(void* shared, const TensorMap& map, int rank, const Positions& from,
                    unsigned long long* barrier);
}  // namespace host

template <int RANK>
void positions_copy(void* shared, const TensorMap& map, const Positions& from,
                    unsigned long long* barrier) {
  host::positions_copy(shared, map, RANK, from, barrier);
}
