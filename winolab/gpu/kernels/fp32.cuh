// Arrays of FP32.

using Element = float;
using Out = float;

__device__ __forceinline__ void store_sum(Out* to, float sum) { *to = sum; }
