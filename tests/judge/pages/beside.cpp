// Direct products, stride 1, whose values are right: each fault but the first is an access beyond
// an array, of which nothing comes.

struct Sizes {
  int N, H, W, C, K, R, S, OH, OW, PH, PW;
};

enum Fault {
  RIGHT, MASKED_END, MASKED_START, VECTOR, VECTOR_OF_W, BEFORE_W, WRITES_END, WRITES_START,
  WRITES_X, READS_Y,
};

static float dropped(const volatile float* from) { return *from * 0 == 0 ? 0 : 0; }

static void again(volatile float* at) { *at = *at; }  // no guard zone sees other bits

// Four numbers, of which those behind the last are dropped.
static void four(float* to, const volatile float* from, int count) {
  for (int i = 0; i < 4; ++i) to[i] = from[i];
  for (int i = count; i < 4; ++i) to[i] = 0;
}

static int run(Fault fault, float* x, float* w, float* y, const Sizes& z) {
  const long in = (long)z.N * z.H * z.W * z.C, taps = (long)z.K * z.R * z.S * z.C;
  const long out = (long)z.N * z.OH * z.OW * z.K;
  for (long at = 0; at < out; ++at) {
    const int k = at % z.K, ow = at / z.K % z.OW, oh = at / z.K / z.OW % z.OH;
    const int n = at / z.K / z.OW / z.OH;
    float sum = 0;
    for (int r = 0; r < z.R; ++r)
      for (int s = 0; s < z.S; ++s) {
        const int h = oh - z.PH + r, v = ow - z.PW + s;
        const bool inside = h >= 0 && h < z.H && v >= 0 && v < z.W;
        const long from = ((long)(n * z.H + h) * z.W + v) * z.C, tap = ((long)k * z.R + r) * z.S + s;
        if (fault == MASKED_START && from < in) sum += inside ? 0 : dropped(x + from);
        if (fault == MASKED_END && from >= 0) sum += inside ? 0 : dropped(x + from);
        if (!inside) continue;
        for (int c = 0; c < z.C; c += 4) {
          const int count = z.C - c < 4 ? z.C - c : 4;
          float a[4], b[4];
          for (int i = 0; i < 4; ++i) a[i] = b[i] = 0;
          for (int i = 0; i < count; ++i) a[i] = x[from + c + i], b[i] = w[tap * z.C + c + i];
          if (fault == VECTOR) four(a, x + from + c, count);
          if (fault == VECTOR_OF_W) four(b, w + tap * z.C + c, count);
          for (int i = 0; i < count; ++i) sum += a[i] * b[i];
        }
      }
    y[at] = sum;
  }
  if (fault == BEFORE_W) dropped(w - 1);
  if (fault == WRITES_END) again(y + out);
  if (fault == WRITES_START) again(y - 1);
  if (fault == WRITES_X) again(x + in);
  if (fault == READS_Y) dropped(y + out);
  return 0;
}

#define KERNEL(name, fault)                                                                    \
  extern "C" int name(float* x, float* w, float* y, int N, int H, int W, int C, int K, int R,  \
                      int S, int OH, int OW, int PH, int PW) {                                 \
    return run(fault, x, w, y, {N, H, W, C, K, R, S, OH, OW, PH, PW});                         \
  }

KERNEL(right, RIGHT)
KERNEL(masked_end, MASKED_END)
KERNEL(masked_start, MASKED_START)
KERNEL(vector, VECTOR)
KERNEL(vector_of_w, VECTOR_OF_W)
KERNEL(before_w, BEFORE_W)
KERNEL(writes_end, WRITES_END)
KERNEL(writes_start, WRITES_START)
KERNEL(writes_x, WRITES_X)
KERNEL(reads_y, READS_Y)

// Whole vectors from addresses that are multiples of 16 where arrays' are, as "aligned" promises.
extern "C" int whole_vectors(float* x, float* w, float* y, int N, int H, int W, int C, int K,
                             int R, int S, int OH, int OW, int PH, int PW) {
  const long sizes[] = {(long)N * H * W * C, (long)K * R * S * C};
  for (int i = 0; i < 2; ++i)
    for (long at = 0; at < sizes[i]; at += 4) {
      float kept[4];
      four(kept, (i ? w : x) + at, sizes[i] - at < 4 ? sizes[i] - at : 4);
    }
  return right(x, w, y, N, H, W, C, K, R, S, OH, OW, PH, PW);
}
