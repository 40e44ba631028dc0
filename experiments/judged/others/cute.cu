// A function of C around the CuTe kernel of conv_op_optimization/cute, with the layouts that its
// program gives it, on a stream. Arrays lie channels last.

#include <cuda_runtime.h>

#include "include/cute/tensor.hpp"

#include "src/implgemm.cu"

using namespace cute;

extern "C" int conv(float* x, float* w, float* y, int N, int C, int H, int W, int K, int R, int S,
                    int OH, int OW, cudaStream_t stream) {
  auto images = make_layout(
      make_shape(make_shape(OW, OH, N), make_shape(C, S, R)),
      make_stride(make_stride(C, C * W, C * W * H), make_stride(_1{}, C, C * W)));
  auto filters = make_layout(make_shape(K, make_shape(C, S, R)),
                             make_stride(C * S * R, make_stride(_1{}, C, C * S)));
  auto results = make_layout(make_shape(K, make_shape(OW, OH, N)),
                             make_stride(_1{}, make_stride(K, OW * K, OH * OW * K)));
  const int positions = N * OH * OW;
  const dim3 grid((positions + 127) / 128, (K + 127) / 128);
  if (N)
    implgemm<float><<<grid, 256, 0, stream>>>(
        make_tensor(make_gmem_ptr(w), filters), make_tensor(make_gmem_ptr(x), images),
        make_tensor(make_gmem_ptr(y), results), K, positions, C * R * S);
  return cudaGetLastError();
}
