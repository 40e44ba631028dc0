// A direct convolution, channels last, and its faults, one a macro. A block sums the outputs of one
// position and one group: its threads bring a part of the window to shared memory, each sums the
// products of a filter. No headers: NVRTC compiles it wherever there is one.
//
// HALF: arrays of FP16. SPLIT: two blocks in turn share the sums of an output.

#ifdef HALF
typedef unsigned short element;
static __device__ float wide(element v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
static __device__ element narrow(float f) {
  element v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(f));
  return v;
}
#else
typedef float element;
static __device__ float wide(element v) { return v; }
static __device__ element narrow(float f) { return f; }
#endif

static __device__ float product_of(float v) {
#ifdef TF32
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  v = __uint_as_float(bits);
#endif
  return v;
}

// By PTX, which keeps subnormal numbers: CuPy compiles with -ftz=true, and fmaf would flush them.
static __device__ float fused(float a, float b, float acc) {
#if defined(__CUDA_ARCH__)
  asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(acc) : "f"(a), "f"(b));
  return acc;
#else
  return fmaf(a, b, acc);
#endif
}

static __device__ float sum(float a, float b, float acc) {
#ifdef HALF_SUMS
  return wide(narrow(fused(a, b, acc)));
#else
  return fused(a, b, acc);
#endif
}

const int THREADS = 128, PART = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
conv(const element* x, const element* w, element* y, element* workspace, int N, int H, int W, int C,
     int K, int R, int S, int OH, int OW, int SH, int SW, int PH, int PW, int LH, int LW, int G) {
  __shared__ float window[PART];
#ifdef SPLIT
  const int position = blockIdx.x / 2, part = blockIdx.x % 2;
#else
  const int position = blockIdx.x;
#endif
  const int ow = position % OW, oh = position / OW % OH, n = position / OW / OH;
  const int g = blockIdx.y, channels = C / G, filters = K / G, count = R * S * channels;
#ifdef UNWRITTEN_TILE
  if (OW > 4 && ow >= OW / 4 * 4) return;  // the last tile, which is not whole
#endif
#ifdef OFF_BY_ONE_PAD
  if (PW > 0) PW -= 1;
#endif
  int first = 0, last = count;
#ifdef SPLIT
  first = part ? count / 2 : 0;
  last = part ? count : count / 2;
#endif
  for (int k0 = 0; k0 < filters; k0 += THREADS) {
    const int k = k0 + threadIdx.x;
    float acc = 0;
    for (int at = first; at < last; at += PART) {
      const int size = min(PART, last - at);
#ifndef MISSING_BARRIER
      __syncthreads();
#endif
      for (int i = PART - 1 - int(threadIdx.x); i >= 0; i -= THREADS) {
        const int j = at + i, c = j % channels, s = j / channels % S, r = j / channels / S;
        const int h = oh * SH - PH + r * LH, v = ow * SW - PW + s * LW;
        float value = 0;
        if (i < size && h >= 0 && h < H && v >= 0 && v < W)
          value = wide(x[((long long)(n * H + h) * W + v) * C + g * channels + c]);
#ifdef SWALLOWED_NAN
        if (value != value) value = 0;
#endif
        window[i] = product_of(value);
      }
#ifndef MISSING_BARRIER
      __syncthreads();
#endif
      if (k < filters) {
        const element* taps = w + (long long)(g * filters + k) * count;
#ifdef READS_OUTSIDE
        const int read = (size + 3) / 4 * 4;  // zeros of the window meet what lies behind the filter
#else
        const int read = size;
#endif
        for (int i = 0; i < read; ++i) {
          int j = at + i;
#ifdef TRANSPOSED_FILTER
          const int c = j % channels, s = j / channels % S, r = j / channels / S;
          j = ((R - 1 - r) * S + S - 1 - s) * channels + c;
#endif
          acc = sum(window[i], product_of(wide(taps[j])), acc);
        }
      }
    }
    if (k < filters) {
      const long long to = ((long long)(n * OH + oh) * OW + ow) * K + g * filters + k;
#ifdef STALE_WORKSPACE
      acc = fused(1, wide(workspace[to]), acc);  // which nobody cleared
      workspace[to] = narrow(acc);
#endif
#ifdef SPLIT
      y[to] = narrow(fused(1, wide(y[to]), acc));  // no atomic addition
#else
      y[to] = narrow(acc);
#endif
    }
  }
}
