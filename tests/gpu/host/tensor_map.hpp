// codegen/kernels/tensor_map.cuh for the CPU: the same functions.
#pragma once
#include "pipeline.hpp"

// As winolab.gpu.tensor_map.TensorMap packs it.
struct alignas(64) TensorMap {
  const char* address;
  long long strides[4];
  int sizes[5], box[5], size, plain, steps[5];
  short lower[3], upper[3], rank;  // of PositionsMap; the rank of others is 0
  char unused[128 - 8 - 32 - 68 - 14];
};
static_assert(sizeof(TensorMap) == 128, "the driver's");
inline unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 3) << 4; }

// Every 16-byte unit of a box is a copy of its own.
void box_copy(void* shared, const TensorMap& map, int c, int w, int h, int d, int n,
              unsigned long long* barrier);
