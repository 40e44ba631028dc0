// Direct products behind a C function, right (fault 0) or with one of ten faults (issue 50).

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct Sizes {
  int N, H, W, C, K, R, S, OH, OW, SH, SW, PH, PW, LH, LW, G;
};

struct Call {
  const float* x;
  const float* w;
  float* y;
  Sizes z;
  int fault, first, last;  // channels of a group
};

static float bits(unsigned u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

static float tf32(float f) {
  unsigned u;
  __builtin_memcpy(&u, &f, 4);
  return bits((u + 0x1000) & 0xffffe000);
}

static float sum_at(const Call& c, int n, int oh, int ow, int k) {
  const Sizes& z = c.z;
  const int inside = z.C / z.G, group = k / (z.K / z.G);
  const int ends = c.fault == 7 ? (c.last + 3) / 4 * 4 : c.last;  // whole vectors
  float sum = 0;
  for (int r = 0; r < z.R; ++r) {
    for (int s = 0; s < z.S; ++s) {
      const int ih = oh * z.SH - z.PH + r * z.LH;
      const int iw = ow * z.SW - z.PW + s * z.LW + (c.fault == 2 && z.PW);
      if (ih < 0 || ih >= z.H || iw < 0 || iw >= z.W) continue;
      const int tap = c.fault == 9 ? (z.R - 1 - r) * z.S + z.S - 1 - s : r * z.S + s;
      const long at = ((long)(n * z.H + ih) * z.W + iw) * z.C + group * inside;
      for (int i = c.first; i < ends; ++i) {
        float a = c.x[at + i];
        float b = i < c.last ? c.w[((long)k * z.R * z.S + tap) * inside + i] : 0;
        if (c.fault == 4) a = tf32(a), b = tf32(b);
        if (c.fault == 5 && a != a) a = 0;
        sum += a * b;
        if (c.fault == 10 && (sum > 65504 || sum < -65504)) sum = sum > 0 ? 1 / 0.0f : -1 / 0.0f;
      }
    }
  }
  return sum;
}

static int started;  // threads that race

static void all(const Call& c, float* held) {
  const Sizes& z = c.z;
  for (int n = 0; n < z.N; ++n)
    for (int oh = 0; oh < z.OH; ++oh)
      for (int ow = 0; ow < z.OW; ++ow)
        for (int k = 0; k < z.K; ++k) {
          if (c.fault == 1 && ow >= z.OW / 4 * 4) continue;
          const long at = ((long)(n * z.OH + oh) * z.OW + ow) * z.K + k;
          const float sum = sum_at(c, n, oh, ow, k);
          if (c.fault == 3) {  // threads of parts of the channels add without a lock
            volatile float* out = c.y + at;
            const float held_by_now = *out;
            if (at % 8 == 0) sched_yield();
            *out = held_by_now + sum;
          } else {
            c.y[at] = sum + (held ? held[at] : 0);
          }
          if (held) held[at] = sum;
        }
}

static void* part(void* given) {
  if (((Call*)given)->fault == 3) {
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < 2) sched_yield();
  }
  all(*(Call*)given, nullptr);
  return nullptr;
}

static void* late(void* given) {
  usleep(20000);
  part(given);
  free(given);
  return nullptr;
}

static float workspace[1 << 20];

static int run(int fault, const float* x, const float* w, float* y, const Sizes& z) {
  Call c{x, w, y, z, fault, 0, z.C / z.G};
  const long count = (long)z.N * z.OH * z.OW * z.K;
  if (fault == 3) {
    for (long i = 0; i < count; ++i) y[i] = 0;
    Call first = c, second = c;
    first.last = second.first = c.last / 2;
    pthread_t other;
    started = 0;
    pthread_create(&other, nullptr, part, &first);
    part(&second);
    pthread_join(other, nullptr);
  } else if (fault == 6) {
    pthread_t other;
    Call* kept = (Call*)malloc(sizeof(Call));
    *kept = c;
    pthread_create(&other, nullptr, late, kept);
    pthread_detach(other);
  } else {
    all(c, fault == 8 && count <= 1 << 20 ? workspace : nullptr);
  }
  return 0;
}

#define KERNEL(name, fault)                                                                   \
  extern "C" int name(const float* x, const float* w, float* y, int N, int H, int W, int C,   \
                      int K, int R, int S, int OH, int OW, int SH, int SW, int PH, int PW,    \
                      int LH, int LW, int G) {                                                \
    return run(fault, x, w, y, {N, H, W, C, K, R, S, OH, OW, SH, SW, PH, PW, LH, LW, G});     \
  }

KERNEL(right, 0)
KERNEL(unwritten_tile, 1)
KERNEL(off_by_one_pad, 2)
KERNEL(race, 3)
KERNEL(tf32_products, 4)
KERNEL(swallowed_nan, 5)
KERNEL(late_write, 6)
KERNEL(reads_outside, 7)
KERNEL(stale_workspace, 8)
KERNEL(transposed_filter, 9)
KERNEL(overflow, 10)
