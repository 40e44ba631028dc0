// Direct products as one who had not read the judge wrote them, with a fault each.

#ifdef FLUSHES_AT_ITS_END
#include <immintrin.h>
// As the process was: the test's own has other tests behind it.
extern "C" void restore() { _mm_setcsr(_mm_getcsr() & ~0x8040); }
#endif

extern "C" int conv(const float* x, float* w, float* y, int N, int H, int W, int C, int K, int R,
                    int S, int OH, int OW, int SH, int SW, int PH, int PW) {
  const long taps = (long)K * R * S * C;
  int channels = C;
#ifdef NEGATES_FOR_A_WHILE  // the filter is as it was when the call returns
  for (long i = 0; i < taps; ++i) w[i] = -w[i];
#endif
#ifdef LONG_SUMS_WITHOUT_TAIL
  if (C >= 64) channels = C / 16 * 16;
#endif
  for (long n = 0; n < N; ++n)
    for (long i = 0; i < OH; ++i)
      for (long j = 0; j < OW; ++j)
        for (long k = 0; k < K; ++k) {
          float sum = 0;
          for (long r = 0; r < R; ++r)
            for (long s = 0; s < S; ++s) {
              const long h = i * SH - PH + r, v = j * SW - PW + s;
              if (h < 0 || h >= H || v < 0 || v >= W) continue;
              for (int c = 0; c < channels; ++c)
                sum += x[((n * H + h) * W + v) * C + c] * w[((k * R + r) * S + s) * C + c];
            }
#ifdef NEGATES_FOR_A_WHILE
          sum = 0 - sum;
#endif
          y[((n * OH + i) * OW + j) * K + k] = sum;
        }
#ifdef NEGATES_FOR_A_WHILE
  for (long i = 0; i < taps; ++i) w[i] = -w[i];
#endif
#ifdef FLUSHES_AT_ITS_END
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  return 0;
}
