// dW by direct products on wgmma: the tensor memory accelerator walks x and dy in the order
// of positions, so that one thread orders a stage's copies and nobody else finds addresses.
//
// A block sums BO output × BI input channels of one tap over a part of the positions; a step is KC of
// these. Roles: a thread of the last warp orders copies; consumer warpgroups multiply 64 · HELD
// output channels each, or, where BO is 64, half of a step's positions.
//
// The SPLIT_K blocks of a cluster have a part of the positions each. Each adds up an equal share of
// the rows of all parts' sums, which the others copy to it, in the order of the parts.
//
// TF32: of FP32 numbers, 32 positions a step, by a warpgroup for 64 output channels. dy is parted in
// registers, x to shared memory, turned, while the step before is multiplied (tf32_parts.cuh); sums that
// are not finite are added up again on FFMA units.
//
// Barriers: who arrives → who waits
//   full[stage]   the copies' bytes → consumers
//   empty[stage]  a lane of each consumer warp, when the next step's products have begun, or TF32 when both
//                 operands have been read → the thread that orders copies
//   brought       the bytes of other blocks' sums → consumers
//   named 1       consumers: nobody multiplies any more; sums are in shared memory; TF32, x is in parts
//   cluster       all threads: ``brought`` is ready; all sums have been brought
#pragma once

#include "cluster_sums.cuh"
#include "elements.cuh"
#include "im2col_map.cuh"
#include "pipe.cuh"
#include "shape.cuh"
#ifdef TF32
#include "tf32_parts.cuh"
#endif

struct Im2colParams {
  TensorMap x_map, dy_map;
  Out* dw;
  long long dw_out, dw_depth, dw_row, dw_tap, dw_in;  // strides in elements
  int out_depth, out_height, out_width;
  int starts[32];  // [part][width, height, depth, image]: its first position
  int next_width, next_height, next_depth, next_image;  // how far a step is, as digits
  int stride_depth, stride_height, stride_width;
  int dilation_depth, dilation_height, dilation_width;
  int pad_depth, pad_height, pad_width;
  int taps_height, taps_width;
  int of_width, of_height, of_blocks;  // 2³⁰ over the taps of a row, of a column, over blocks_in
  int channels, out_channels;          // of a group
  int blocks_in;                       // of its input channels
  int steps;                           // of all positions
  int vectors;  // whether dw takes four neighbouring input channels at once
#ifdef TF32
  alignas(64) GradientAgainParams again;
#endif
};

using Im2colSums = ClusterSums<BO, BI, SPLIT_K>;
typedef float Im2colHeld[HELD][BI / 2];

struct Im2colShared {
  unsigned short dy[STAGES][PLANES_M][PLANE];  // [plane][position][64 channels]
  unsigned short x[STAGES][PLANES_N][PLANE];
#ifdef TF32
  unsigned char parts[2][2][BI * ROW_BYTES];  // x's of two steps, high and low: [input channel][32 positions]
#endif
  Im2colSums sums;  // of other parts
  unsigned long long full[STAGES], empty[STAGES], brought;
};
static_assert(sizeof(Im2colShared) <= SHARED, "as the config has it");
static_assert(4 * BO * Im2colSums::PITCH <= STAGES * STAGE_BYTES, "room for sums");

// What a block computes: blockIdx is (channels × part of the positions, tap, group).
struct Im2colWork {
  int part, group, out, in, width, height, depth, begin, end;
  __device__ __forceinline__ explicit Im2colWork(const Im2colParams& p) {
    const int channels = (int)blockIdx.x / SPLIT_K;
    part = (int)blockIdx.x % SPLIT_K, group = blockIdx.z;
    const int row = over(channels, p.of_blocks), line = over(blockIdx.y, p.of_width);
    out = row * BO, in = (channels - row * p.blocks_in) * BI;
    width = (int)blockIdx.y - line * p.taps_width;
    depth = over(line, p.of_height), height = line - depth * p.taps_height;
    begin = (int)((long long)p.steps * part / SPLIT_K);
    end = (int)((long long)p.steps * (part + 1) / SPLIT_K);
  }
  // n over what 2³⁰ was divided by, up; their product is below 2³⁰.
  static __device__ __forceinline__ int over(int n, int inverse) {
    return (int)((unsigned)n * (unsigned long long)(unsigned)inverse >> 30);
  }
};

// A position of dy as digits.
struct Im2colWalk {
  int w, h, d, n;
  __device__ __forceinline__ Im2colWalk(const Im2colParams& p, int part)
      : w(p.starts[4 * part]), h(p.starts[4 * part + 1]), d(p.starts[4 * part + 2]),
        n(p.starts[4 * part + 3]) {}
  // A step further.
  __device__ __forceinline__ void advance(const Im2colParams& p) {
    const bool over_w = (w += p.next_width) >= p.out_width;
    w -= over_w ? p.out_width : 0, h += p.next_height + over_w;
    const bool over_h = h >= p.out_height;
    h -= over_h ? p.out_height : 0, d += p.next_depth + over_h;
    const bool over_d = d >= p.out_depth;
    d -= over_d ? p.out_depth : 0, n += p.next_image + over_d;
  }
};

__device__ __forceinline__ void produce(const Im2colParams& p, const Im2colWork& work,
                                        Im2colShared& shared) {
  const int out = work.group * p.out_channels + work.out, in = work.group * p.channels + work.in;
  const int tap_w = work.width * p.dilation_width, tap_h = work.height * p.dilation_height;
  const int tap_d = work.depth * p.dilation_depth;
  Im2colWalk at(p, work.part);
  Pipe<STAGES> pipe;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    unsigned long long* const full = &shared.full[pipe.stage];
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
    barrier_arrive_expect(full, STAGE_BYTES);
#ifdef TF32
#pragma unroll
    for (int i = 0; i < PLANES_M; ++i)
      positions_copy<RANK>(shared.dy[pipe.stage][i], p.dy_map,
                           {out + 32 * i, at.w, at.h, at.d, at.n, 0, 0, 0}, full);
#else
#pragma unroll
    for (int i = 0; i < PLANES_M; ++i)
      positions_copy<RANK>(shared.dy[pipe.stage][i], p.dy_map,
                           {out + 64 * i, at.w, at.h, at.d, at.n, 0, 0, 0}, full);
#endif
    const int w = at.w * p.stride_width - p.pad_width, h = at.h * p.stride_height - p.pad_height;
    const int d = at.d * p.stride_depth - p.pad_depth;
#ifdef TF32
#pragma unroll
    for (int i = 0; i < PLANES_N; ++i)
      positions_copy<RANK>(shared.x[pipe.stage][i], p.x_map,
                           {in + 32 * i, w, h, d, at.n, tap_w, tap_h, tap_d}, full);
#else
#pragma unroll
    for (int i = 0; i < PLANES_N; ++i)
      positions_copy<RANK>(shared.x[pipe.stage][i], p.x_map,
                           {in + 64 * i, w, h, d, at.n, tap_w, tap_h, tap_d}, full);
#endif
    at.advance(p);
    pipe.advance();
  }
}

#ifdef TF32
// Reads a step from its stage: dy to registers, x in parts to one of two places.
__device__ __forceinline__ void take(Im2colShared& shared, Pipe<STAGES>& pipe, GradientParts& dy, int of,
                                     int group, int lane) {
  barrier_wait(&shared.full[pipe.stage], pipe.phase);
  part_positions(reinterpret_cast<const unsigned char*>(shared.x[pipe.stage]), shared.parts[of]);
  fence_async();
  dy.read(reinterpret_cast<const unsigned char*>(shared.dy[pipe.stage][group * 2]), lane);
  __syncwarp();  // all lanes have read them
  if (lane == 0) barrier_arrive(&shared.empty[pipe.stage]);
  pipe.advance();
}

// The Tensor Core, which truncates, sums low·high, high·low and high·high of a step; steps are added in FP32
// outside it. While one is multiplied, the next one is taken.
__device__ __forceinline__ void consume(const Im2colWork& work, Im2colShared& shared, Im2colHeld& acc,
                                        int group, int lane) {
#pragma unroll
  for (int j = 0; j < BI / 2; ++j) acc[0][j] = 0.0f;
  const unsigned long long x = matrix_descriptor(shared.parts[0][0], 16, 1024, Swizzle::B128);
  GradientParts dy;
  Pipe<STAGES> pipe;
  int of = 0;
  if (work.begin < work.end) {
    take(shared, pipe, dy, of, group, lane);
    consumers_sync<CONSUMERS>();
  }
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    dy.part();
    const unsigned long long high = descriptor_offset(x, of * 2 * BI * ROW_BYTES);
    const unsigned long long low = descriptor_offset(high, BI * ROW_BYTES);
    float sum[BI / 2];
    wgmma_pin(sum);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BI>(sum, dy.low[s], descriptor_offset(high, s * 32), s > 0);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BI>(sum, dy.high[s], descriptor_offset(low, s * 32), true);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BI>(sum, dy.high[s], descriptor_offset(high, s * 32), true);
    wgmma_commit();
    of ^= 1;
    if (step + 1 < work.end) take(shared, pipe, dy, of, group, lane);
    wgmma_wait<0>();
    wgmma_pin(sum);
    dy.keep();
#pragma unroll
    for (int j = 0; j < BI / 2; ++j) acc[0][j] = __fadd_rn(acc[0][j], sum[j]);
    consumers_sync<CONSUMERS>();
  }
}

// Four neighbouring sums of an output channel, on FFMA units; what lies outside x is in none.
__device__ __noinline__ float4 summed_again(const Im2colParams& p, int out, int in) {
  const GradientAgainParams& of = p.again;
  const Im2colWork work(p);
  const float* const dy = of.dy + work.group * p.out_channels + out;
  const float* const x = of.x + work.group * p.channels + in;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (int n = 0; n < of.batch; ++n)
#pragma unroll 1
    for (int at_d = 0; at_d < p.out_depth; ++at_d)
#pragma unroll 1
      for (int at_h = 0; at_h < p.out_height; ++at_h) {
        const int d = at_d * p.stride_depth - p.pad_depth + work.depth * p.dilation_depth;
        const int h = at_h * p.stride_height - p.pad_height + work.height * p.dilation_height;
        if (d < 0 || d >= of.in_depth || h < 0 || h >= of.in_height) continue;
        if (sum.x != sum.x && sum.y != sum.y && sum.z != sum.z && sum.w != sum.w) return sum;  // NaN stays
        sum = add_positions(of, dy + n * of.dy_batch + at_d * of.dy_depth + at_h * of.dy_row,
                            x + n * of.x_batch + d * of.x_depth + h * of.x_row, p.out_width,
                            work.width * p.dilation_width - p.pad_width, p.stride_width, sum);
      }
  return sum;
}
#else
__device__ __forceinline__ void consume(const Im2colWork& work, Im2colShared& shared, Im2colHeld& acc,
                                        int group, int lane) {
  constexpr int DEPTHS = KC / 16 / GROUPS_K;  // of 16 positions, of a warpgroup
  const int group_m = group % GROUPS_M, first = group / GROUPS_M * DEPTHS;
#pragma unroll
  for (int i = 0; i < HELD; ++i)
#pragma unroll
    for (int j = 0; j < BI / 2; ++j) acc[i][j] = 0.0f;
  const unsigned long long dy =
      matrix_descriptor(shared.dy[0][group_m * HELD], 1024, 1024, Swizzle::B128);
  const unsigned long long x = matrix_descriptor(shared.x[0][0], 2 * PLANE, 1024, Swizzle::B128);
  Pipe<STAGES> pipe;
  unsigned long long* read = nullptr;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    const unsigned long long a = descriptor_offset(dy, pipe.stage * (int)sizeof shared.dy[0]);
    const unsigned long long b = descriptor_offset(x, pipe.stage * (int)sizeof shared.x[0]);
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
#pragma unroll
    for (int i = 0; i < HELD; ++i) wgmma_pin(acc[i]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTHS; ++k)
#pragma unroll
      for (int i = 0; i < HELD; ++i)
        wgmma<BI, BF16, true, true>(acc[i], descriptor_offset(a, i * 2 * PLANE + (first + k) * 2048),
                                    descriptor_offset(b, (first + k) * 2048), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (read && lane == 0) barrier_arrive(read);
    read = &shared.empty[pipe.stage];
    pipe.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < HELD; ++i) wgmma_pin(acc[i]);
}
#endif

// Four neighbouring sums to dw.
__device__ __forceinline__ void store_four(const Im2colParams& p, Out* to, const float4& sums) {
  if (p.vectors) {
    if constexpr (sizeof(Out) == 2)
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pack<OUTPUT == 2>(sums.x, sums.y), pack<OUTPUT == 2>(sums.z, sums.w));
    else
      *reinterpret_cast<float4*>(to) = sums;
    return;
  }
  store_sum(to, sums.x), store_sum(to + p.dw_in, sums.y);
  store_sum(to + 2 * p.dw_in, sums.z), store_sum(to + 3 * p.dw_in, sums.w);
}

// A block's rows: what it and the other parts have of them, added up in the order of the parts.
__device__ __forceinline__ void finish(const Im2colParams& p, const Im2colWork& work,
                                       const Im2colShared& shared, const float* sums) {
  constexpr int ROW = BI / 4;  // fours
  const int first = work.part * Im2colSums::SHARE, rows = Im2colSums::rows(work.part);
#ifdef TF32
  Out* const dw = p.dw + work.depth * p.dw_depth + work.height * p.dw_row + work.width * p.dw_tap;
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * ROW; i += CONSUMERS) {
    const int row = i / ROW, in = work.in + i % ROW * 4, out = work.out + GradientParts::channel(first + row);
    if (out >= p.out_channels || in >= p.channels) continue;
    float4 sum = shared.sums.added(work.part, sums, row, i % ROW * 4);
    float none = 0.0f;  // NaN, where one is not finite
#pragma unroll
    for (int e = 0; e < 4; ++e) none += (&sum.x)[e] * 0.0f;
    if (none != 0.0f) {
      const float4 again = summed_again(p, out, in);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!(fabsf((&sum.x)[e]) < __int_as_float(0x7f800000))) (&sum.x)[e] = (&again.x)[e];
    }
    store_four(p, dw + (long long)(work.group * p.out_channels + out) * p.dw_out + in * p.dw_in, sum);
  }
#else
  Out* const dw = p.dw + (long long)(work.group * p.out_channels + work.out + first) * p.dw_out +
                  work.depth * p.dw_depth + work.height * p.dw_row + work.width * p.dw_tap +
                  work.in * p.dw_in;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * ROW; i += CONSUMERS) {
    const int row = i / ROW, column = i % ROW * 4;
    const float4 sum = shared.sums.added(work.part, sums, row, column);
    if (work.out + first + row < p.out_channels && work.in + column < p.channels)
      store_four(p, dw + row * p.dw_out + column * p.dw_in, sum);
  }
#endif
}

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(THREADS, BLOCKS)
    winolab_wgrad_im2col(const __grid_constant__ Im2colParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Im2colShared& shared = *reinterpret_cast<Im2colShared*>(memory);
  const Im2colWork work(p);
  if (threadIdx.x == CONSUMERS) map_prefetch(p.x_map), map_prefetch(p.dy_map);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.empty[s], CONSUMERS / 32);
    }
    barrier_init(&shared.brought, 1);
    barriers_ready();
    if (SPLIT_K > 1) barrier_arrive_expect(&shared.brought, Im2colSums::brought(work.part));
  }
  __syncthreads();
  if constexpr (SPLIT_K > 1) cluster_arrive();
  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS) produce(p, work, shared);
    if constexpr (SPLIT_K > 1) cluster_wait(), cluster_sync();
    return;
  }
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float* const sums = reinterpret_cast<float*>(&shared);
  const int row = group % GROUPS_M * (64 * HELD) + warp * 16 + lane / 4;
  float* const own = sums + row * Im2colSums::PITCH + lane % 4 * 2;
  {
    Im2colHeld acc;
    consume(work, shared, acc, group, lane);
    consumers_sync<CONSUMERS>();  // nobody multiplies any more
    if (group < GROUPS_M) Im2colSums::leave<false>(acc, own);
    if constexpr (GROUPS_K > 1) {
      consumers_sync<CONSUMERS>();
      if (group >= GROUPS_M) Im2colSums::leave<true>(acc, own);
    }
  }
  if constexpr (SPLIT_K > 1) {
    fence_async();  // ordinary stores are not of the proxy that bulk copies read by
    cluster_wait();
  }
  consumers_sync<CONSUMERS>();
  if constexpr (SPLIT_K > 1) {
    shared.sums.bring(work.part, sums, &shared.brought);
    barrier_wait(&shared.brought, 0);
    cluster_arrive();  // what was copied to this block has been read where it came from
  }
#ifdef TF32
  finish(p, Im2colWork(p), shared, sums);  // found again: products take all registers
#else
  finish(p, work, shared, sums);
#endif
  if constexpr (SPLIT_K > 1) cluster_wait();
}
