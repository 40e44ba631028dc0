// Powers of two by which x and every output channel's row of w are multiplied, so that their 16-bit
// parts serve them, and how small a result may be before it has lost accuracy to them.
//
// An exact scale of x would read all of it; a sample's largest element, with HEADROOM, may be
// wrong, and then the results show it: numbers that overflow make them infinite or NaN, and numbers
// far below the scale, whose low parts are lost, make them small. Of the operands' absolute errors
// of at most 2^-25 an output gets, as relative RMS, sqrt(K) 2^-25 / sqrt(3) times |G row|·|AT| times
// the row's RMS; FP32 in order gets 0.30 · 2^-24 sqrt(K) times the output. An output is suspect
// where the first exceeds 1.3 times the second. The same with G and BT exchanged holds for the
// row's own elements below 1/4 against inputs of at most 2^15. A row of which one element is half
// (of the sum of squares) is always suspect: FP32 errs less there than products of 22 bits, whose
// errors do not average. SCALE_* bound the growth in the transforms and HEADROOM what a sample may
// have missed, as exponents; LEAST_* are these thresholds' factors, in units of 2^-10.
//
// Images may be far apart in size. An image whose own sample lies more than MARGIN exponents below the
// tensor's is multiplied by a larger power of two, its own (image_scale). Every output belongs to one
// image, and what is said above of an output and x's scale holds of its image's.
#pragma once

#include "pipeline.cuh"
#include "fallback.cuh"

constexpr int SAMPLE = 1 << 16, SAMPLE_RUN = 8;  // vectors of x, by SAMPLERS blocks; side by side
constexpr int SCALE_WARPS = SCALE_THREADS / 32;
static_assert(PEAKS == SAMPLERS * SCALE_WARPS, "a warp looks at an image, a block of as many as x has");
// Exponents by which an image has to lie below x to have a scale of its own, and that are left above
// its sample besides HEADROOM, as it is smaller. Images of one distribution lie nearer.
constexpr int MARGIN = 4;
constexpr float UNDERFLOW = 1.0f / (1 << 22);    // above it no number vanishes
constexpr unsigned INFINITE = 0x7f800000u;       // bits; from here on up no number is finite

struct Tickets {  // of fallback_kernel.cuh
  int taken, done;
};

struct Header {
  int flags[4];  // fallback.cuh
  Tickets scans, filters;
  int suspects, room;                       // noted, those without room too; how many have some
  // As bits: the largest element of each block's sample of x; of each SCALE_WARPS images the smallest of
  // the largest elements of their samples that is neither 0 nor infinite, or INFINITE.
  alignas(16) unsigned maxima[SAMPLERS], minima[SAMPLERS];
};

struct Row;  // of an output channel
struct ScaleParams {
  const float* x;
  Header* header;
  const Row* rows;  // of all groups
  long long batch_stride, depth_stride, row_stride, pixel_stride, channel_stride;
  long long vectors;  // of all elements
  long long of_image;  // of those of an image
  int depth, height, width, run;  // run: vectors that follow one another
  int wide;                       // whether a vector has 4 floats, not 1
  int all_rows;
  int known;  // what the sample would find, as its bits, where the caller knows it; or 0
  int late;   // whether the launch behind may begin only when the sample is there
  int room;   // for suspects, behind the header
  int images;  // that may have scales of their own; 0: none has
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

// The power of two that brings a number of these bits below 2^(15 - growth); infinity and NaN: 1.
__device__ __forceinline__ float scale_of(unsigned bits, int growth) {
  if (bits == 0 || bits >= INFINITE) return 1.0f;
  const int e = max(-126, min(126, 14 - ((int)(bits >> 23) - 127) - growth));
  return __uint_as_float((unsigned)(e + 127) << 23);
}

__device__ __forceinline__ float inverse_of(float power) {
  return __uint_as_float((254u << 23) - __float_as_uint(power));
}

// What a row loses to its scale, for the thresholds.
struct Loss {
  float square, lost;  // sum of squares; how many have low parts that may be missing
  unsigned gone;       // whether a number vanishes though it is not 0
  __device__ __forceinline__ void add(float raw, float scaled) {
    const float v = fabsf(scaled);
    square = __fmaf_rn(v, v, square);
    if (raw != 0.0f && v < 0.25f) lost = __fadd_rn(lost, 1.0f);
    gone = raw != 0.0f && v < UNDERFLOW ? 1u : gone;
  }
};

struct Row {
  float scale, back;  // of the row, and its inverse
  float least;        // RMS of outputs, scaled, below which they are suspect
  float tiny;         // whether a number of the row vanishes though it is not 0
#ifdef FALLBACK
#else
  // most: bits of its largest element; count: of its elements.
  __device__ __forceinline__ Row(unsigned most, float scale, const Loss& loss, int count)
      : scale(scale), back(inverse_of(scale)), tiny(loss.gone) {
    const float peak = __fmul_rn(__uint_as_float(most), scale);
    const bool single = __fmul_rn(peak, peak) > __fmul_rn(0.5f, loss.square);
    const float of_inputs = __fmul_rn(LEAST_INPUT / 1024.0f, sqrtf(loss.square / count));
    const float of_filter = __fmul_rn(LEAST_FILTER * 32.0f, sqrtf(loss.lost / count));
    const float sum = count ? __fadd_rn(of_inputs, of_filter) : 0.0f;
    least = single ? __int_as_float(0x7f800000) : sum;
  }
#endif
};

// Behind the header: the largest elements, as bits, of samples of the first PEAKS images.
__device__ __forceinline__ unsigned* peaks(Header* header) {
  return reinterpret_cast<unsigned*>(reinterpret_cast<unsigned char*>(header) + HEADER_BYTES);
}
__device__ __forceinline__ const unsigned* peaks(const Header* header) {
  return peaks(const_cast<Header*>(header));
}

__device__ __forceinline__ unsigned magnitude(const float4& v) {
  return max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
}

// The vector that a sample's number stands for: runs are scattered, so that samples do not all fall on
// the same channels. Vector by vector a call took 1 to 2 us longer.
__device__ __forceinline__ long long sampled(unsigned at, unsigned stride) {
  const unsigned run = at / SAMPLE_RUN;
  const long long first = run * (long long)stride + (run * 2654435761u >> 8) % max(stride, 1u);
  return stride > 1 ? first * SAMPLE_RUN + at % SAMPLE_RUN : at;
}

#ifdef FALLBACK
#else
// Blocks on a multiprocessor, so that the launch has at most 40 registers. With 64 the driver splits
// the multiprocessor's memory otherwise than for the launch behind, whose blocks then wait, or crowd
// on 12 of 132 multiprocessors and take 18 us instead of 6 (docs/notes/093).
constexpr int SCALE_BLOCKS = 6;

// The largest elements of samples of x, by SAMPLERS blocks, and of each image, by a warp of the blocks
// behind them; no flag is set. Beside the filter's transform. An image alone has x's scale, and so has
// each where the caller knows it, which a single block then says.
extern "C" __global__ void __launch_bounds__(SCALE_THREADS, SCALE_BLOCKS)
    winolab_scale(const __grid_constant__ ScaleParams p) {
  if (!p.late) next_launch_may_begin();
  __shared__ unsigned largest[SCALE_WARPS];
  constexpr int CLEARED = sizeof(Header) / sizeof(int) - 2 * SAMPLERS;  // all but maxima and minima
  const int block = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int* const word = reinterpret_cast<int*>(p.header) + threadIdx.x;
  if (threadIdx.x < CLEARED && block == 0) *word = word == &p.header->room ? p.room : 0;
  if (p.known || (p.images == 1 && block == 0)) {
#pragma unroll 1
    for (int i = threadIdx.x; i < p.images; i += SCALE_THREADS) peaks(p.header)[i] = 0;
    if (threadIdx.x < SAMPLERS) p.header->minima[threadIdx.x] = INFINITE;
  }
  if (p.known) {
    if (threadIdx.x < SAMPLERS) p.header->maxima[threadIdx.x] = p.known;
  } else {
    constexpr int EACH = SAMPLE / (SAMPLERS * SCALE_THREADS);  // vectors that a lane looks at
    const bool of_x = block < SAMPLERS;
    const int image = (block - SAMPLERS) * SCALE_WARPS + warp;
    const long long first = of_x ? 0 : image * p.of_image;
    const long long all = of_x ? p.vectors : image < p.images ? p.of_image : 0;
    const unsigned at = of_x ? block * SCALE_THREADS + threadIdx.x : lane;
    const unsigned step = of_x ? SAMPLERS * SCALE_THREADS : 32;
    // all vectors, or of runs all over, even where there are too few for all samples
    const unsigned least = of_x ? all / SAMPLE : all / (32 * EACH);
    const unsigned stride = all > (long long)step * EACH ? max(least, 2u) : 1;
    float4 found[EACH];  // at once: one by one each load would wait for the last
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const long long i = sampled(at + k * step, stride);
      found[k] = i < all ? load_vector(p, first + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    unsigned most = 0;
#pragma unroll
    for (int k = 0; k < EACH; ++k) most = max(most, magnitude(found[k]));
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) largest[warp] = most;
    if (lane == 0 && !of_x && image < p.images) peaks(p.header)[image] = most;
    __syncthreads();
    unsigned smallest = INFINITE;
#pragma unroll
    for (int i = 0; i < SCALE_WARPS; ++i) {
      most = max(most, largest[i]);
      if (largest[i]) smallest = min(smallest, largest[i]);
    }
    if (threadIdx.x == 0) {
      if (of_x) p.header->maxima[block] = most;
      if (!of_x) p.header->minima[block - SAMPLERS] = smallest;
    }
  }
  if (p.late) next_launch_may_begin();
  launch_before_done();  // so that who waits for this launch has waited for the filter's, too
}

#endif
// The scale of x; all lanes of a warp ask together.
__device__ __forceinline__ float input_scale(const Header* header) {
  static_assert(SAMPLERS == 4 * 32, "four of each lane");
  // not by __ldg, which might move ahead of where the launch before is waited for
  const uint4 found = reinterpret_cast<const uint4*>(header->maxima)[threadIdx.x % 32];
  unsigned most = max(max(found.x, found.y), max(found.z, found.w));
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, flip));
  return scale_of(most, SCALE_INPUT + HEADROOM);
}

// The scale of an image by its largest element; ``scale``: x's, which it has unless it is far smaller.
__device__ __forceinline__ float scale_of_peak(unsigned peak, float scale) {
  if (peak == 0 || peak >= INFINITE) return scale;
  return fmaxf(scale, scale_of(peak, SCALE_INPUT + HEADROOM + MARGIN));
}
__device__ __forceinline__ float image_scale(const Header* header, float scale, int image) {
  return image < PEAKS ? scale_of_peak(peaks(header)[image], scale) : scale;
}

// Whether so many images all have x's scale; all lanes of a warp ask together. A loop, though up to 256
// images take one round: without, kernels that have no register left spill.
__device__ __forceinline__ bool one_scale(const Header* header, float scale, int images) {
  const int groups = (min(images, PEAKS) + SCALE_WARPS - 1) / SCALE_WARPS;
  bool same = true;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < groups; i += 32)
    same &= scale_of_peak(header->minima[i], scale) == scale;
  return __all_sync(0xffffffffu, same);
}

__device__ __forceinline__ float scaled(float scale, float x) { return __fmul_rn(scale, x); }

// What results in an output channel are scaled back by, besides x's scale, and Row::least.
struct ChannelFactors {
  float back, least;
  __device__ __forceinline__ ChannelFactors() {}
  __device__ __forceinline__ ChannelFactors(const Row* row) {
    const float4 v = *reinterpret_cast<const float4*>(row);
    back = v.y, least = v.z;
  }
};

// Those of a block's output channels, in shared memory.
template <int COUNT>
struct BlockFactors {
  float back[COUNT], least[COUNT];
  __device__ __forceinline__ void set(int m, const ChannelFactors& of) {
    back[m] = of.back, least[m] = of.least;
  }
  __device__ __forceinline__ ChannelFactors at(int m) const {
    ChannelFactors of;
    of.back = back[m], of.least = least[m];
    return of;
  }
};

// What results in a channel of an image are scaled back by, the smaller factor first, and Row::least.
struct Factors {
  float first, last, least;
  __device__ __forceinline__ Factors() {}
  __device__ __forceinline__ Factors(const ChannelFactors& of, float back)
      : first(fminf(back, of.back)), last(fmaxf(back, of.back)), least(of.least) {}
};
