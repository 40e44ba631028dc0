// Direct products, channels last, a thread an output, with faults that were chosen by one who had
// not read the judge.
//
// ONE_TURN: a thread has one output, though blocks are no more than BLOCKS. SCRATCH: the sums of the
// first half of the channels are brought by a kernel before. INPUT_H, INPUT_W: sizes of the map,
// known to the compiler.

const int THREADS = 128, BLOCKS = 132 * 8;

#ifdef INPUT_H
#define H INPUT_H
#define W INPUT_W
#define MAP int, int
#else
#define MAP int H, int W
#endif

// By PTX, which keeps subnormal numbers: CuPy compiles with -ftz=true.
static __device__ float fused(float a, float b, float acc) {
#if defined(__CUDA_ARCH__)
  asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(acc) : "f"(a), "f"(b));
#endif
  return acc;
}

static __device__ float sum(const float* x, const float* w, long at, int from, int to, float start,
                            MAP, int C, int K, int R, int S, int OH, int OW, int SH, int SW,
                            int PH, int PW) {
  const int k = at % K, ow = at / K % OW, oh = at / K / OW % OH;
  const long n = at / K / OW / OH;
  float found = start;
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) {
      const int h = oh * SH - PH + r, v = ow * SW - PW + s;
      if (h < 0 || h >= H || v < 0 || v >= W) continue;
      for (int c = from; c < to; ++c)
        found = fused(x[((n * H + h) * W + v) * C + c], w[((k * R + r) * S + s) * (long)C + c],
                      found);
    }
  return found;
}

#ifdef INPUT_H
#define GIVEN 0, 0, C, K, R, S, OH, OW, SH, SW, PH, PW
#else
#define GIVEN H, W, C, K, R, S, OH, OW, SH, SW, PH, PW
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
first_half(const float* x, const float* w, float* scratch, long count, MAP, int C, int K, int R,
           int S, int OH, int OW, int SH, int SW, int PH, int PW) {
  for (long at = (long)blockIdx.x * THREADS + threadIdx.x; at < count;
       at += (long)gridDim.x * THREADS)
    scratch[at] = sum(x, w, at, 0, C / 2, 0, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS)
conv(const float* x, const float* w, float* y, const float* scratch, long count, MAP, int C, int K,
     int R, int S, int OH, int OW, int SH, int SW, int PH, int PW) {
  for (long at = (long)blockIdx.x * THREADS + threadIdx.x; at < count;
       at += (long)gridDim.x * THREADS) {
#ifdef SCRATCH
    y[at] = sum(x, w, at, C / 2, C, scratch[at], GIVEN);
#else
    y[at] = sum(x, w, at, 0, C, 0, GIVEN);
#endif
#ifdef ONE_TURN
    break;
#endif
  }
}
