// A sum of FP32 numbers again, by one thread on its FFMA unit, where TF32 parts gave none that is finite:
// of infinity low parts are NaN.
#pragma once

// Where x and w lie, in elements, and x's size; w as a correlation runs over it.
struct AgainParams {
  const float* x;
  const float* w;
  long long x_batch, x_depth, x_row, x_pixel;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int in_depth, in_height, in_width;
};

// A row of channels of both.
__device__ __forceinline__ float add_row(const AgainParams& p, const float* x, const float* w, int channels,
                                         float sum) {
#pragma unroll 1
  for (int c = 0; c < channels; ++c) sum = __fmaf_rn(__ldg(x + c), __ldg(w + c * p.c_stride), sum);
  return sum;
}
