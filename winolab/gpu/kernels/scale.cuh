// Powers of two by which x and every output channel's row of w are multiplied, so that their 16-bit
// parts serve them, and how small a result may be before it has lost accuracy to them.
//
// An exact scale of x would read all of it; a sample's largest element, with HEADROOM, may be
// wrong, and then the results show it: numbers that overflow make them infinite or NaN, and numbers
// far below the scale, whose low parts are lost, make them small. Of the operands' absolute errors
// of at most 2^-25 an output gets, as relative RMS, sqrt(K) 2^-25 / sqrt(3) times |G row|·|AT| times
// the row's RMS; FP32 in order gets 0.30 · 2^-24 sqrt(K) times the output. An output is in doubt
// where the first exceeds 1.3 times the second. The same with G and BT exchanged holds for the
// row's own elements below 1/4 against inputs of at most 2^15. A row of which one element is half
// (of the sum of squares) is always in doubt: FP32 errs less there than products of 22 bits, whose
// errors do not average. SCALE_* bound the growth in the transforms and HEADROOM what a sample may
// have missed, as exponents; LEAST_* are these thresholds' factors, in units of 2^-10.

constexpr int SAMPLERS = 32, SAMPLE = 1 << 16;  // blocks that sample x; vectors
constexpr int MOST_THREADS = 1024;              // of a block of winolab_scale
constexpr float UNDERFLOW = 1.0f / (1 << 22);  // above it no number vanishes

struct Header {
  int flags[4];  // guard.cuh
  unsigned maxima[SAMPLERS];  // of x, of each sampling block
};

struct Row {
  float scale, back;  // of the row, and its inverse
  float least;        // RMS of outputs, scaled, below which they are in doubt
  float tiny;         // whether a number of the row vanishes though it is not 0
};

struct ScaleParams {
  const float* x;
  const float* w;
  Header* header;
  Row* rows;
  long long batch_stride, depth_stride, row_stride, pixel_stride, channel_stride;
  long long vectors;  // of all elements
  long long w_group, w_m, w_c, w_depth, w_row, w_tap;
  long long w_step;  // between all elements of a row, where it is the same; else 0
  int depth, height, width, run;  // run: vectors that follow one another
  int wide;                       // whether a vector has 4 floats, not 1
  int all_rows, padded, group_rows;  // rows; of a group, with and without those that fill it up
  int channels, taps, taps_height, taps_width;
  int together;  // rows of a block: 8 where they are contiguous, or 1
  int first;     // block of the launch: those of x, SAMPLERS, come before those of the rows
  // Where the caller knows: what a sample of x would find, as its bits; the scale of all rows; or 0.
  int known_x;
  float known_w;
};

__device__ __forceinline__ unsigned magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

__device__ __forceinline__ const float* vector_at(const ScaleParams& p, long long i) {
  const int length = p.wide ? 4 : 1;
  if (i < p.run) return p.x + i * p.channel_stride * length;
  const long long pixel = i / p.run;
  long long rest = pixel;
  const long long width = rest % p.width;
  rest /= p.width;
  const long long height = rest % p.height;
  rest /= p.height;
  return p.x + rest / p.depth * p.batch_stride + rest % p.depth * p.depth_stride +
         height * p.row_stride + width * p.pixel_stride +
         (i - pixel * p.run) * p.channel_stride * length;
}

__device__ __forceinline__ float4 load_vector(const ScaleParams& p, long long i) {
  const float* x = vector_at(p, i);
  if (p.wide) return __ldg(reinterpret_cast<const float4*>(x));
  return make_float4(__ldg(x), 0.0f, 0.0f, 0.0f);
}

__device__ __forceinline__ float element_of_row(const ScaleParams& p, int row, int i) {
  const float* w = p.w + row / p.padded * p.w_group + row % p.padded * p.w_m;
  if (p.w_step) return __ldg(w + i * p.w_step);
  const int c = i % p.channels, tap = i / p.channels;
  const int fw = tap % p.taps_width, fh = tap / p.taps_width % p.taps_height;
  const int fd = tap / p.taps_width / p.taps_height;
  return __ldg(w + c * p.w_c + fd * p.w_depth + fh * p.w_row + fw * p.w_tap);
}

// The power of two that brings a number of these bits below 2^(15 - growth); infinity and NaN: 1.
__device__ __forceinline__ float scale_of(unsigned bits, int growth) {
  if (bits == 0 || bits >= 0x7f800000u) return 1.0f;
  const int e = max(-126, min(126, 14 - ((int)(bits >> 23) - 127) - growth));
  return __uint_as_float((unsigned)(e + 127) << 23);
}

__device__ __forceinline__ float inverse_of(float power) {
  return __uint_as_float((254u << 23) - __float_as_uint(power));
}

// Sums, or maxima, of the threads whose number is the same modulo ``together``.
template <class T, class F>
__device__ __forceinline__ T combine(T (&values)[MOST_THREADS], T value, int together, F f) {
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half >= together; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] = f(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  return values[threadIdx.x % together];
}

struct Greater {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return max(a, b); }
};
struct Plus {
  __device__ float operator()(float a, float b) const { return __fadd_rn(a, b); }
};

extern "C" __global__ void __launch_bounds__(MOST_THREADS)
    winolab_scale(const __grid_constant__ ScaleParams p) {
  next_launch_may_begin();
  __shared__ unsigned largest[MOST_THREADS];
  __shared__ float squares[MOST_THREADS];
  __shared__ float lossy[MOST_THREADS];
  const int block = blockIdx.x + p.first;
  unsigned most = 0;
  if (block < SAMPLERS) {
    if (threadIdx.x < 4 && blockIdx.x == 0) p.header->flags[threadIdx.x] = 0;
    if (p.known_x) {
      if (threadIdx.x < SAMPLERS) p.header->maxima[threadIdx.x] = p.known_x;
      return;
    }
    const long long stride = p.vectors / SAMPLE;
    const unsigned first = block * blockDim.x + threadIdx.x;
#pragma unroll 4
    for (unsigned at = first; at < SAMPLE; at += SAMPLERS * blockDim.x) {
      // Scattered, so that samples do not all fall on the same channels.
      const long long i = stride > 1 ? at * stride + (at * 2654435761u >> 8) % stride : at;
      const float4 v = i < p.vectors ? load_vector(p, i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      most = max(max(most, max(magnitude(v.x), magnitude(v.y))),
                 max(magnitude(v.z), magnitude(v.w)));
    }
    most = combine(largest, most, 1, Greater());
    if (threadIdx.x == 0) p.header->maxima[block] = most;
    return;
  }
  const int row = (block - SAMPLERS) * p.together + threadIdx.x % p.together;
  const int first = threadIdx.x / p.together, step = blockDim.x / p.together;
  const int count = row % p.padded < p.group_rows ? p.channels * p.taps : 0;
#pragma unroll 4
  for (int i = first; i < count; i += step) most = max(most, magnitude(element_of_row(p, row, i)));
  most = combine(largest, most, p.together, Greater());
  const float scale = p.known_w != 0.0f ? p.known_w : scale_of(most, SCALE_FILTER);
  float square = 0.0f, lost = 0.0f;
  unsigned gone = 0;
#pragma unroll 4
  for (int i = first; i < count; i += step) {
    const float raw = element_of_row(p, row, i), v = fabsf(__fmul_rn(raw, scale));
    square = __fmaf_rn(v, v, square);
    if (raw != 0.0f && v < 0.25f) lost = __fadd_rn(lost, 1.0f);
    gone |= raw != 0.0f && v < UNDERFLOW;
  }
  square = combine(squares, square, p.together, Plus());
  lost = combine(lossy, lost, p.together, Plus());
  gone = combine(largest, gone, p.together, Greater());
  if (first == 0) {
    const float peak = __fmul_rn(__uint_as_float(most), scale);
    const bool single = __fmul_rn(peak, peak) > __fmul_rn(0.5f, square);
    const float of_inputs = __fmul_rn(LEAST_INPUT / 1024.0f, sqrtf(square / count));
    const float of_filter = __fmul_rn(LEAST_FILTER * 32.0f, sqrtf(lost / count));
    const float sum = count ? __fadd_rn(of_inputs, of_filter) : 0.0f;
    const float least = single ? __int_as_float(0x7f800000) : sum;
    p.rows[row] = {scale, inverse_of(scale), least, (float)gone};
  }
}

// Of all lanes of a warp.
__device__ __forceinline__ float input_scale(const Header* header) {
  static_assert(SAMPLERS == 32, "a lane each");
  unsigned most = __ldg(&header->maxima[threadIdx.x % 32]);
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, flip));
  return scale_of(most, SCALE_INPUT + HEADROOM);
}

__device__ __forceinline__ float row_scale(const Row* rows, int m) { return __ldg(&rows[m].scale); }

// A thread's outputs in four neighbouring channels: watched, and scaled back.
struct Watched {
  int* flags;
  const Row* rows;  // of the four
  float back;
  float sum[4] = {};
  int outputs = 0;

  __device__ __forceinline__ Watched(Header* header, const Row* rows, int channel)
      : flags(header->flags), rows(rows + channel), back(inverse_of(input_scale(header))) {}

  // A tile's outputs, of which the first ``count`` are: watched, then scaled back, which is exact
  // but where FP32 holds the result with fewer bits, or not; so the smaller factor comes first.
  __device__ __forceinline__ void tile(float (&y)[4][N], int count) {
    float all = 0.0f, least = 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float4 row = __ldg(reinterpret_cast<const float4*>(rows + c));  // a Row
      const float first = fminf(back, row.y), last = fmaxf(back, row.y);
      float size = 0.0f;
#pragma unroll
      for (int o = 0; o < N; ++o) {
        if (o < count) size = __fadd_rn(size, fabsf(y[c][o]));
        y[c][o] = __fmul_rn(__fmul_rn(y[c][o], first), last);
      }
      sum[c] = __fadd_rn(sum[c], size);
      all = __fadd_rn(all, size);
      least = __fadd_rn(least, row.z);
    }
    judge(flags, all, __fmul_rn(least, count));
    outputs += count;
  }

  // Every channel by itself, over these tiles and those of the other half of the warp. A few
  // outputs may all be near 0 by chance: tile() alone serves them.
  __device__ __forceinline__ void channels() const {
    const int count = outputs + __shfl_xor_sync(0xffffffffu, outputs, 16);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float all = __fadd_rn(sum[c], __shfl_xor_sync(0xffffffffu, sum[c], 16));
      if (count >= 4) judge(flags, all, __fmul_rn(__ldg(&rows[c].least), count));
    }
  }
};

// Numbers that vanish though they are not 0, where some results are.
extern "C" __global__ void __launch_bounds__(256)
    winolab_scan(const __grid_constant__ ScaleParams p) {
  next_launch_may_begin();
  launch_before_done();
  if (!p.header->flags[ZERO]) return;
  const long long first = (long long)blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256ll;
  const float scale = input_scale(p.header);
  bool tiny = false;
  for (long long i = first; i < p.vectors; i += step) {
    const float4 v = load_vector(p, i);
    const float elements[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (float x : elements) tiny |= x != 0.0f && fabsf(__fmul_rn(x, scale)) < UNDERFLOW;
  }
  for (long long i = first; i < p.all_rows; i += step) tiny |= p.rows[i].tiny != 0.0f;
  if (tiny) p.header->flags[TINY] = 1;
}
