// Sums of FP32 numbers again, by one thread on its FFMA unit, where TF32 parts gave one that is not finite: of
// infinity low parts are NaN.
#pragma once

// Where x and dy lie, in elements, and their sizes.
struct GradientAgainParams {
  const float* x;
  const float* dy;
  long long x_batch, x_depth, x_row, x_pixel;
  long long dy_batch, dy_depth, dy_row, dy_pixel;
  int batch, in_depth, in_height, in_width;
};

// A row of positions of dy, the first of which meets place ``first`` of a row of x, and the next one ``apart``
// behind it: four neighbouring sums.
__device__ __forceinline__ float4 add_positions(const GradientAgainParams& p, const float* dy, const float* x,
                                                int positions, int first, int apart, float4 sum) {
#pragma unroll 4
  for (int at = 0; at < positions; ++at) {
    const int column = first + at * apart;
    if (column < 0 || column >= p.in_width) continue;
    const float of = __ldg(dy + at * p.dy_pixel);
    const float4 four = __ldg(reinterpret_cast<const float4*>(x + column * p.x_pixel));
    sum.x = __fmaf_rn(of, four.x, sum.x), sum.y = __fmaf_rn(of, four.y, sum.y);
    sum.z = __fmaf_rn(of, four.z, sum.z), sum.w = __fmaf_rn(of, four.w, sum.w);
  }
  return sum;
}
