// A function of C around a kernel of conv_op_optimization/cuda/implicitgemm: SOURCE is its file, and
// a block has ROWS × COLUMNS results and LINES of THREADS. The launch is its own's, on a stream.
// Arrays lie channels first.

#include <cuda_runtime.h>

#include SOURCE

extern "C" int conv(float* x, float* w, float* y, int N, int C, int H, int W, int K, int R, int S,
                    int SH, int SW, int PH, int PW, int OH, int OW, cudaStream_t stream) {
  param_t p = {};
  p.input = x, p.weight = w, p.output = y;
  p.n = N, p.c = C, p.h = H, p.w = W, p.k = K, p.r = R, p.s = S;
  p.u = SH, p.v = SW, p.p = PH, p.q = PW, p.Oh = OH, p.Ow = OW;
  const dim3 grid((OH * OW + COLUMNS - 1) / COLUMNS, (K + ROWS - 1) / ROWS, N);
  if (N) implgemm<<<grid, dim3(THREADS, LINES), 0, stream>>>(p);
  return cudaGetLastError();
}
