// Direct forward and backward data of split FP32 on wgmma: x is read as it lies in memory.
//
// A block computes a box of at most BN output positions × BM output channels, a work tile; a step
// is 32 channels of a tap: low·high, high·low, high·high, summed by the Tensor Core, which
// truncates, over a step, then added in FP32 outside it. The SPLIT_K of a cluster, which share a box's
// steps, each add up and look at a part of all sums, by way of the stages' memory.
//
// Roles: a producer thread orders the copies of x and w (walk.cuh); consumer warpgroups have 64 of the
// positions each: a lane reads its channels of x, 16 bytes at once, scales and splits them in registers,
// and multiplies by the filter's parts (split_filter.cuh), a slice of output channels after another:
// while one is multiplied, the last one's sums are added.
//
// Barriers: who arrives → who waits
//   x_full, w_full[stage]     the producer thread, with its copy's bytes → consumers
//   x_empty[stage]            a lane of each consumer warp, when products by it have begun → the producer
//                             thread
//   w_empty[stage]            the same, when they are done
//   cluster, twice            all threads (SPLIT_K): sums are there; sums are read
#pragma once

#include "walk.cuh"
#include "split_filter.cuh"

struct DirectSplitParams {
  Header* header;
  const Row* rows;
  // A row of outputs of one phase that a window of a suspect is in; rows of an image.
  int window_width, window_height;
  int images, one_row;  // one_row: positions of an image where all are in one row, or 0
  DirectParams walk;
};

// Slices of output channels, WIDTH each, and how many have partial sums at once: as many as registers
// are left of 65,536 for.
constexpr int GROUPS = CONSUMERS / 128;
constexpr int SLICES = GROUPS == 4 ? (BM > 64 ? 2 : 1)
                       : BM > 192  ? 4
                       : BM == 192 ? 3
                       : BM > 64   ? 2
                                   : 1;
constexpr int WIDTH = BM / SLICES, SUMS = GROUPS == 2 && SLICES > 1 ? 2 : 1;
constexpr int SMALL = (BM + 127) / 128;  // words that have two bits of every eight of BM channels
static_assert(!ALONG && BM % (8 * SLICES) == 0, "a copy for a tap, whole products");
static_assert(BM <= CONSUMERS, "a thread reads a channel's factors");

struct DirectSplitShared {
  DirectShared stages;
  alignas(16) BlockFactors<BM> factors;  // of a work tile's output channels
};
static_assert(sizeof(DirectSplitShared) <= SHARED, "as the plan has it");

// The image of a box's position, by its number; of none, another one.
__device__ __forceinline__ int image_of(const DirectSplitParams& params, const DirectWorkTile& work,
                                        int at) {
  const DirectParams& p = params.walk;
  const int image = params.one_row ? (work.width + at % p.pitch) / params.one_row
                                   : work.image + at / p.pitch / p.box_height;
  return min(image, params.images - 1);
}

// An output that is small by itself: a window of its row, or rows, that has CHECKED_OUTPUTS tells.
__device__ __forceinline__ void suspect(const DirectSplitParams& params, const DirectWorkTile& work,
                                        const float* y, int at, const Factors& factors) {
  const DirectParams& p = params.walk;
  int width = params.window_width, height = params.window_height, along = 1, down = 1;
  if (STRIDED && ROTATED) {
    along = p.along_width.stride, down = p.along_height.stride;
    width = (p.out_width - 1 - work.taps_width.output) / along + 1;
    height = (p.out_height - 1 - work.taps_height.output) / down + 1;
  }
  const int w = (work.width + at % p.pitch) % params.window_width;
  const int h = work.height + at / p.pitch % p.box_height;
  const int wide = min(width, CHECKED_OUTPUTS);
  const int high = min(height, (CHECKED_OUTPUTS + wide - 1) / wide);
  const int back = w - max(0, w + 1 - wide), up = h - max(0, h + 1 - high);
  const long long row = p.y_row * down, pixel = (long long)p.y_pixel * along;
  note(params.header, {y - back * pixel - up * row, row, factors, (int)pixel, (short)wide, (short)high});
}

// An output, scaled as its sum was.
__device__ __forceinline__ float size_of(float output, const Factors& f) {
  return fabsf(__fmul_rn(__fmul_rn(output, inverse_of(f.last)), inverse_of(f.first)));
}

// Whether CHECKED_OUTPUTS of the warp's positions up to one, or its first, tell that a channel is not 0
// around there. All of them are stored.
__device__ __forceinline__ bool told(const DirectSplitParams& params, const DirectWorkTile& work,
                                     int channel, int at, const Factors& f) {
  const int last = max(at, at / 16 * 16 + CHECKED_OUTPUTS - 1);
  float sum = 0.0f;
#pragma unroll 1
  for (int i = last - CHECKED_OUTPUTS + 1; i <= last; ++i) {
    const float* const y = position(params.walk, work, i);
    if (y) sum = __fadd_rn(sum, size_of(y[channel], f));
  }
  return sum > __fmul_rn(CHECKED_OUTPUTS, f.least);
}

// An output that is not as large as it should be by itself, or not finite. Where chance has made one 0,
// as it does one of some 10^8, those beside it spare a scan of all of x.
__device__ __forceinline__ void look_again(const DirectSplitParams& params, const DirectWorkTile& work,
                                           const float* y, int channel, int at, float back) {
  // Where all is computed again anyway nothing is noted: of gradients that are far apart in size 10
  // million outputs asked for a number, which took 5.7 of 6.9 ms (docs/notes/080).
  volatile int* const flags = params.header->flags;
  if (flags[LOST]) return;
  const Factors f(ChannelFactors(params.rows + work.channel + channel), back);
  if (size_of(y[channel], f) != 0.0f) return suspect(params, work, y + channel, at, f);
  if (!flags[ZERO] && !told(params, work, channel, at, f)) flags[ZERO] = 1;
}

// A lane's first channel of the j-th eight columns of a block: the filter's rows are in such an order
// that it has four neighbours of two times eight.
__device__ __forceinline__ int channel_of(int j, int lane) {
  return j / 2 * 16 + lane % 4 * 4 + j % 2 * 2;
}

// Sums of COUNT times eight columns, from the FIRST on, are scaled back, and checked but where there is
// nothing to sum.
template <int FIRST, int COUNT>
__device__ __forceinline__ void store(const DirectSplitParams& params, const DirectWorkTile& work,
                                      const BlockFactors<BM>& of, const float (&acc)[BM / 2],
                                      const float (&scale)[2], int first, int lane) {
  constexpr int VECTOR = COUNT % 2 ? 2 : 4;  // channels of a store
  using Vector = typename Either<VECTOR == 4, float4, float2>::type;
  const DirectParams& p = params.walk;
  const int count = p.out_channels - work.channel;
  float* y[2];
  const float back[2] = {inverse_of(scale[0]), inverse_of(scale[1])};
#pragma unroll
  for (int r = 0; r < 2; ++r) y[r] = position(p, work, first + r * 8 + lane / 4);
  const auto fits = [](float size, float least) {
    return size >= least && size < __int_as_float(0x7f800000);
  };
  bool all_fit[2] = {true, true};  // by position
#pragma unroll
  for (int j = FIRST; j < FIRST + COUNT; j += VECTOR / 2) {
    const int channel = channel_of(j, lane);
    if (j % 8 == 0) asm volatile("" ::: "memory");  // few factors are in registers at once
    const Vector backs = *reinterpret_cast<const Vector*>(of.back + channel);
    const Vector leasts = *reinterpret_cast<const Vector*>(of.least + channel);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Vector v;
#pragma unroll
      for (int e = 0; e < VECTOR; ++e) {
        const float sum = acc[4 * (j + e / 2) + 2 * r + e % 2];
        ChannelFactors channel_factors;
        channel_factors.back = (&backs.x)[e], channel_factors.least = (&leasts.x)[e];
        const Factors factors(channel_factors, back[r]);
        all_fit[r] = all_fit[r] && fits(fabsf(sum), factors.least);
        (&v.x)[e] = __fmul_rn(__fmul_rn(sum, factors.first), factors.last);
      }
      if (y[r] && channel < count) *reinterpret_cast<Vector*>(y[r] + channel) = v;
    }
  }
  if (work.steps == 0) return;
  __syncwarp();  // lanes will read what others have stored
  // They are few; a copy of this code for each sum would be too long for the instruction cache.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (all_fit[r] || !y[r]) continue;
    unsigned small[SMALL] = {};  // two bits of eight columns: channels whose sums are
#pragma unroll
    for (int j = FIRST; j < FIRST + COUNT; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int channel = channel_of(j, lane) + c;
        if (channel < count && !fits(fabsf(acc[4 * j + 2 * r + c]), of.least[channel]))
          small[j / 16] |= 1u << (j % 16 * 2 + c);
      }
#pragma unroll
    for (int i = 0; i < SMALL; ++i)
#pragma unroll 1
      for (unsigned left = small[i]; left; left &= left - 1) {
        const int bit = __ffs(left) - 1, channel = channel_of(i * 16 + bit / 2, lane) + bit % 2;
        look_again(params, work, y[r], channel, first + r * 8 + lane / 4, back[r]);
      }
  }
}

// A cluster's blocks each finish a part of the channels: what others finish a block leaves in the
// stages' memory, each thread for the one of its number there.
template <int RANK = 0>
__device__ __forceinline__ void finish(int rank, const DirectSplitParams& params,
                                       const DirectWorkTile& work, DirectSplitShared& shared,
                                       float (&acc)[BM / 2], const float (&scale)[2], int first,
                                       int lane) {
  constexpr int COUNT = BM / 8 / SPLIT_K;
  if constexpr (RANK + 1 < SPLIT_K)
    if (rank != RANK) return finish<RANK + 1>(rank, params, work, shared, acc, scale, first, lane);
  float4* const sums = reinterpret_cast<float4*>(&shared.stages);
  const auto at = [](int of, int j) { return (of * COUNT + j) * CONSUMERS + (int)threadIdx.x; };
  consumers_sync<CONSUMERS>();  // nobody multiplies any more
#pragma unroll
  for (int other = 0; other < SPLIT_K; ++other)
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      const float* from = &acc[4 * (other * COUNT + j)];
      if (other != RANK) sums[at(other, j)] = make_float4(from[0], from[1], from[2], from[3]);
    }
  cluster_sync();
#pragma unroll
  for (int other = 0; other < SPLIT_K; ++other) {
    if (other == RANK) continue;
    const float4* theirs = cluster_pointer(sums, other);
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      const float4 more = theirs[at(RANK, j)];
      float* const sum = &acc[4 * (RANK * COUNT + j)];
      sum[0] = __fadd_rn(sum[0], more.x), sum[1] = __fadd_rn(sum[1], more.y);
      sum[2] = __fadd_rn(sum[2], more.z), sum[3] = __fadd_rn(sum[3], more.w);
    }
  }
  store<RANK * COUNT, COUNT>(params, work, shared.factors, acc, scale, first, lane);
  cluster_sync();
}

// A lane's channels of x for two products of 16, scaled and split: rows g and g + 8 of a warp's 16, of
// these scales.
struct Fragments {
  unsigned high[2][4], low[2][4];
  __device__ __forceinline__ void read(const unsigned char* x, int row, int lane,
                                       const float (&scale)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + r * 8 + lane / 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int unit = (lane % 4 * 2 + h) ^ (at & 7);  // as the 128-byte swizzle has it
        const float4 v = *reinterpret_cast<const float4*>(x + at * ROW_BYTES + unit * 16);
        const float s = scale[r];
        split_pair(__fmul_rn(v.x, s), __fmul_rn(v.y, s), high[h][r], low[h][r]);
        split_pair(__fmul_rn(v.z, s), __fmul_rn(v.w, s), high[h][r + 2], low[h][r + 2]);
      }
    }
  }
  // They are read until products are waited for, which a compiler does not know.
  __device__ __forceinline__ void keep() const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" ::"r"(high[h][i]), "r"(low[h][i]));
  }
  __device__ __forceinline__ static void split_pair(float first, float second, unsigned& high,
                                                    unsigned& low) {
    high = pack(first, second);
    float high_first, high_second;
    unpack(high, high_first, high_second);
    low = pack(__fsub_rn(first, high_first), __fsub_rn(second, high_second));
  }
};

// Begins a step's products in a slice's output channels, by the filter's high parts.
__device__ __forceinline__ void begin(float (&sum)[WIDTH / 2], const Fragments& x,
                                      unsigned long long high) {
  const unsigned long long low = descriptor_offset(high, ROW_BYTES / 2);
  wgmma_pin(sum);
  wgmma_fence();
  wgmma<WIDTH>(sum, x.low[0], high, false);
  wgmma<WIDTH>(sum, x.low[1], descriptor_offset(high, 32), true);
  wgmma<WIDTH>(sum, x.high[0], low, true);
  wgmma<WIDTH>(sum, x.high[1], descriptor_offset(low, 32), true);
  wgmma<WIDTH>(sum, x.high[0], high, true);
  wgmma<WIDTH>(sum, x.high[1], descriptor_offset(high, 32), true);
  wgmma_commit();
}

// Adds a slice's products, which are done but for PENDING slices behind it.
template <int SLICE, int PENDING>
__device__ __forceinline__ void add(float (&acc)[BM / 2], float (&sum)[WIDTH / 2]) {
  wgmma_wait<PENDING>();
  wgmma_pin(sum);
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i)
    acc[SLICE * WIDTH / 2 + i] = __fadd_rn(acc[SLICE * WIDTH / 2 + i], sum[i]);
}

// A step's products, added to the sums; ``all_begun`` runs when the last ones have begun.
template <int SLICE = 0, class AllBegun>
__device__ __forceinline__ void multiply(float (&acc)[BM / 2], float (&sums)[SUMS][WIDTH / 2],
                                         const Fragments& x, unsigned long long w,
                                         const AllBegun& all_begun) {
  begin(sums[SLICE % SUMS], x, descriptor_offset(w, SLICE * WIDTH * ROW_BYTES));
  if constexpr (SLICE + 1 == SLICES) all_begun();
  if constexpr (SUMS == 2 && SLICE > 0) add<SLICE - 1, 1>(acc, sums[(SLICE - 1) % SUMS]);
  if constexpr (SUMS == 1 || SLICE + 1 == SLICES) add<SLICE, 0>(acc, sums[SLICE % SUMS]);
  if constexpr (SLICE + 1 < SLICES)
    multiply<SLICE + 1>(acc, sums, x, w, all_begun);
  else
    x.keep();
}

// The factors of a work tile's output channels, read together: a load between two stores waits for
// memory each time (docs/notes/101).
__device__ __forceinline__ void read_factors(const DirectSplitParams& params,
                                             const DirectWorkTile& work, BlockFactors<BM>& factors) {
  const int m = threadIdx.x;
  ChannelFactors of;
  of.back = 1.0f, of.least = -1.0f;  // behind the last channel nothing is small
  if (m < BM && work.channel + m < params.walk.out_channels)
    of = ChannelFactors(params.rows + work.channel + m);
  consumers_sync<CONSUMERS>();  // nobody reads the last ones
  if (m < BM) factors.set(m, of);
  consumers_sync<CONSUMERS>();
}

__device__ __forceinline__ void consume(const DirectSplitParams& params, DirectSplitShared& shared) {
  const DirectParams& p = params.walk;
  DirectShared& stages = shared.stages;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int first = group * 64 + warp * 16;
  const float of_x = input_scale(params.header);
  const bool one = one_scale(params.header, of_x, params.images);
  float scale[2] = {of_x, of_x};  // of the lane's two positions
  int channel = -1;               // of the factors that are there
  const unsigned long long w = matrix_descriptor(stages.w[0], 16, 1024, Swizzle::B128);
  Pipe<X_STAGES> x_pipe;
  Pipe<W_STAGES> w_pipe;
  const bool stays = filter_stays(p);
#pragma unroll 1
  for (int index = blockIdx.x / SPLIT_K; index < p.work_tiles; index += gridDim.x / SPLIT_K) {
    const DirectWorkTile work(p, index);
    if (stays) w_pipe = {};
    if (!one) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        scale[r] = image_scale(params.header, of_x, image_of(params, work, first + r * 8 + lane / 4));
    }
    float acc[BM / 2], sums[SUMS][WIDTH / 2];
#pragma unroll
    for (int i = 0; i < BM / 2; ++i) acc[i] = 0.0f;
    Fragments x;
#pragma unroll 1
    for (int left = work.end - work.begin; left; --left) {
      barrier_wait(&stages.x_full[x_pipe.stage], x_pipe.phase);
      x.read(stages.x[x_pipe.stage], first, lane, scale);
      barrier_wait(&stages.w_full[w_pipe.stage], w_pipe.phase);
      multiply(acc, sums, x, descriptor_offset(w, w_pipe.stage * BM * ROW_BYTES), [&] {
        if (lane == 0) barrier_arrive(&stages.x_empty[x_pipe.stage]);  // x has been read
        x_pipe.advance();
      });
      if (!stays && lane == 0) barrier_arrive(&stages.w_empty[w_pipe.stage]);
      w_pipe.advance();
    }
    if (work.channel != channel) read_factors(params, work, shared.factors);
    channel = work.channel;
    if constexpr (SPLIT_K == 1)
      store<0, BM / 8>(params, work, shared.factors, acc, scale, first, lane);
    else
      finish(cluster_rank(), params, work, shared, acc, scale, first, lane);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(THREADS, 1)
    winolab_direct_split(const __grid_constant__ DirectSplitParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DirectSplitShared& shared = *reinterpret_cast<DirectSplitShared*>(memory);
  DirectShared& stages = shared.stages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < X_STAGES; ++s) {
      barrier_init(&stages.x_full[s], 1);
      barrier_init(&stages.x_empty[s], CONSUMERS / 32);
    }
    for (int s = 0; s < W_STAGES; ++s) {
      barrier_init(&stages.w_full[s], 1);
      barrier_init(&stages.w_empty[s], CONSUMERS / 32);
    }
    barriers_ready();
  }
  __syncthreads();
  launch_before_done();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (threadIdx.x == CONSUMERS) produce(p.walk, stages);
    if constexpr (SPLIT_K > 1) {
      cluster_sync();
      cluster_sync();
    }
  }
}
