// Types of the arrays: x and dy as INPUT says, dw as OUTPUT does; FP32 (0), FP16 (1) or BF16 (2).
#pragma once

#include "either.cuh"
#include "mma.cuh"

using Element = Either<INPUT == 0, float, unsigned short>::type;
using Out = Either<OUTPUT == 0, float, unsigned short>::type;

__device__ __forceinline__ void store_sum(Out* to, float sum) {
  if constexpr (OUTPUT == 0)
    *to = sum;
  else
    *to = (unsigned short)pack<OUTPUT == 2>(sum, 0.0f);
}
