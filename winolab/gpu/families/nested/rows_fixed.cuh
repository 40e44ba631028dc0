// What rows_scaled.cuh has, for tensors of 16 bits (fixed_scale.cuh): no scale but FP16's, which the
// transforms' constants have, and nothing to find out about the filter's rows.
#pragma once

#include "filter_params.cuh"
#include "output_params.cuh"
#include "fixed_scale.cuh"

__device__ __forceinline__ void describe(const NestedFilterParams&, int) {}

template <int COLUMNS>
__device__ __forceinline__ float row_scale(const NestedFilterParams&, int, int,
                                           const float (&)[2][COLUMNS][RH]) {
  return FIXED_FILTER;
}

struct TileOutputs {
  __device__ __forceinline__ TileOutputs(const Row*, float) {}
  __device__ __forceinline__ void add(const float (&)[2]) {}
  __device__ __forceinline__ void keep(float2&) const {}
  __device__ __forceinline__ void take(const float2&) {}
  __device__ __forceinline__ void check(const OutputParams&, const Out*, int, int, int, int,
                                        int) const {}
};
