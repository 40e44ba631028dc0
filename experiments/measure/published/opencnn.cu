// openCNN's own kernels behind two functions, to be built by nvcc as a library for each of its builds
// (opencnn.py): -I SRC of its sources, which are not ours and lie elsewhere, and -D what its Makefile
// calls OUT. TURING takes the kernels that it has for GPUs before Ampere.

#include <cuda_runtime.h>

#include "config.hpp"

#if defined(BASE)
#include "ampere/convolutionForward_32x64x8_baseline.cu"
#elif defined(TURING)
#include "convolutionForward_32x64x8.cu"
#else
#include "ampere/convolutionForward_32x64x8.cu"
#endif

// The tables in constant memory, as its main() copies them; the CUDA error, or 0.
extern "C" int opencnn_tables() {
  cudaMemcpyToSymbol(access_f_s, aux, sizeof(aux));
  cudaMemcpyToSymbol(access_s, aux2, sizeof(aux2));
#if defined(BASE) || defined(OPTLDS64)
  cudaMemcpyToSymbol(access_s_out, aux3, sizeof(aux3));
  cudaMemcpyToSymbol(out_thread, aux4, sizeof(aux4));
#endif
#if defined(OPTLDS64)
  cudaMemcpyToSymbol(out_sgemm, aux5, sizeof(aux5));
  cudaMemcpyToSymbol(exhange, aux6, sizeof(aux6));
#endif
  return cudaDeviceSynchronize();
}

// y = x * w on the default stream, its filter's transform into ``transformed`` (16 floats a filter
// and channel) first; padding 1, CHWN: x is (c, size, size, n), w (c, 3, 3, k), y (k, size, size, n).
extern "C" int opencnn_forward(float* x, float* w, float* y, float* transformed, int n, int c,
                               int size, int k) {
  const int tiles = (size + 1) / 2;
  return convolutionForward_32x64x8(x, size, size, w, size, size, n, k, y, transformed,
                                    n * k * size * size, tiles, n, 4, c, k, c, 3, 3, 4, 2);
}
