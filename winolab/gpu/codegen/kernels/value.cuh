// An element of an operand as FP32, by way of the read-only cache; INPUT is as in elements.cuh.
#pragma once

#include "elements.cuh"

__device__ __forceinline__ float value(const Element* from) {
  if constexpr (INPUT == 0) {
    return __ldg(from);
  } else {
    float first, none;
    unpack<INPUT == 2>(__ldg(from), first, none);
    return first;
  }
}
