// Direct forward and backward data of 16 bits on wgmma, of few positions: the tensor memory accelerator
// walks x in the order of outputs, and a cluster shares a sum.
//
// A block computes BN output positions × BM output channels of a group; a step is 64 channels of a tap.
// Roles: a thread of the last warp orders copies of x and w; consumer warpgroups multiply 64 positions
// each. The SPLIT_K blocks of a cluster have a part of the steps each (cluster_sums.cuh).
//
// Backward data (ROTATED): x is dy, output channels are neighbours in w, which wgmma reads along them,
// and taps are walked backwards.
//
// TF32: of FP32 numbers, 32 channels a step; x is parted in registers, w from one shared place to another,
// and sums that are not finite are added up again on FFMA units.
//
// Barriers: who arrives → who waits
//   full[stage]   the copies' bytes → consumers
//   empty[stage]  a lane of each consumer warp, when the next step's products have begun, or TF32 its own →
//                 the thread that orders copies
//   brought       the bytes of other blocks' sums → consumers
//   named 1       consumers: nobody multiplies any more; sums are in shared memory; TF32, w is in parts
//   cluster       all threads: ``brought`` is ready; all sums have been brought
#pragma once

#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "cluster_sums.cuh"
#include "elements.cuh"
#include "im2col_map.cuh"
#include "pipe.cuh"
#include "quotient.cuh"
#include "shape.cuh"
#ifdef TF32
#include "tf32_parts.cuh"
#endif

struct PositionsParams {
  TensorMap x_map, w_map;
  Out* y;
  long long y_batch, y_depth, y_row, y_pixel;  // strides in elements
  int positions;
  int stride_depth, stride_height, stride_width;
  int dilation_depth, dilation_height, dilation_width;
  int pad_depth, pad_height, pad_width;
  int taps_depth, taps_height, taps_width;
  int channels, out_channels;  // of a group
  int chunks, steps;           // of a tap, of a sum
  int starts[32];  // [part][chunk, width, height, depth]: its first step
  Quotient of_width, of_height, of_depth, by_blocks_m;  // of outputs; a group's output channels'
#ifdef TF32
  alignas(64) AgainParams again;
#endif
#ifdef EPILOGUE
  alignas(64) EpilogueParams epilogue;
#endif
};

using PositionsSums = ClusterSums<BN, BM, SPLIT_K>;
typedef float PositionsHeld[1][BM / 2];

struct PositionsShared {
  unsigned char x[STAGES][BN * ROW_BYTES];  // [position][64 channels]
  unsigned char w[STAGES][BM * ROW_BYTES];  // [output channel][64 channels], or planes of the reverse
#ifdef TF32
  unsigned char parts[2][2][BM * ROW_BYTES];  // w's of two steps, high and low: [output channel][32 channels]
#endif
  PositionsSums sums;
  long long places[BN];  // of the positions in y, or -1
  unsigned long long full[STAGES], empty[STAGES], brought;
};
static_assert(sizeof(PositionsShared) <= SHARED, "as the config has it");
static_assert(4 * BN * PositionsSums::PITCH <= STAGES * STAGE_BYTES, "room for sums");

// An output position as digits.
struct PositionDigits {
  int w, h, d, n;
  __device__ __forceinline__ PositionDigits(const PositionsParams& p, int position) {
    const int slice = divide(p.of_height, divide(p.of_width, position, w), h);
    if constexpr (RANK == 4)
      n = slice, d = 0;
    else
      n = divide(p.of_depth, slice, d);
  }
};

// What a block computes: blockIdx is (output channels × positions × part of the steps, group).
struct PositionsWork {
  int part, group, out, first, begin, end;
  __device__ __forceinline__ explicit PositionsWork(const PositionsParams& p) {
    first = divide(p.by_blocks_m, blockIdx.x / SPLIT_K, out) * BN, out *= BM;
    part = (int)blockIdx.x % SPLIT_K, group = blockIdx.y;
    begin = (int)((unsigned)(p.steps * part) / SPLIT_K);
    end = (int)((unsigned)(p.steps * (part + 1)) / SPLIT_K);
  }
};

__device__ __forceinline__ void produce(const PositionsParams& p, const PositionsWork& work,
                                        PositionsShared& shared) {
  const PositionDigits at(p, work.first);
  const int w = at.w * p.stride_width - p.pad_width, h = at.h * p.stride_height - p.pad_height;
  const int d = at.d * p.stride_depth - p.pad_depth;
  const int* const start = p.starts + 4 * work.part;
  int chunk = start[0], tap_w = start[1], tap_h = start[2], tap_d = start[3];
  Pipe<STAGES> pipe;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    unsigned long long* const full = &shared.full[pipe.stage];
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
    barrier_arrive_expect(full, STAGE_BYTES);
    const int from = work.group * p.channels + chunk * KC;
    if constexpr (ROTATED) {
#ifdef TF32
#pragma unroll
      for (int i = 0; i < BM / KC; ++i)
        box_copy(shared.w[pipe.stage] + i * PLANE, p.w_map, work.out + i * KC,
                 p.taps_width - 1 - tap_w, p.taps_height - 1 - tap_h, p.taps_depth - 1 - tap_d, from,
                 full);
#else
#pragma unroll
      for (int i = 0; i < BM / 64; ++i)
        box_copy(shared.w[pipe.stage] + i * PLANE, p.w_map, work.out + i * 64,
                 p.taps_width - 1 - tap_w, p.taps_height - 1 - tap_h, p.taps_depth - 1 - tap_d, from,
                 full);
#endif
    } else {
      box_copy(shared.w[pipe.stage], p.w_map, chunk * KC, tap_w, tap_h, tap_d,
               work.group * p.out_channels + work.out, full);
    }
    positions_copy<RANK>(shared.x[pipe.stage], p.x_map,
                         {from, w, h, d, at.n, tap_w * p.dilation_width, tap_h * p.dilation_height,
                          tap_d * p.dilation_depth},
                         full);
    pipe.advance();
    if (++chunk < p.chunks) continue;
    chunk = 0;
    if (++tap_w < p.taps_width) continue;
    tap_w = 0;
    if (++tap_h == p.taps_height) tap_h = 0, ++tap_d;
  }
}

#ifdef TF32
// The Tensor Core, which truncates, sums low·high, high·low and high·high of a step; steps are added in FP32
// outside it. While one is multiplied, the next one's w is parted.
__device__ __forceinline__ void consume(const PositionsWork& work, PositionsShared& shared,
                                        PositionsHeld& acc, int group, int lane) {
#pragma unroll
  for (int j = 0; j < BM / 2; ++j) acc[0][j] = 0.0f;
  const unsigned long long w = matrix_descriptor(shared.parts[0][0], 16, 1024, Swizzle::B128);
  const int first = group * 64 + (int)threadIdx.x / 32 % 4 * 16;
  Pipe<STAGES> pipe;
  int of = 0;
  if (work.begin < work.end) {
    barrier_wait(&shared.full[0], 0);
    part_filters(shared.w[0], shared.parts[0]);
    fence_async();
    consumers_sync<CONSUMERS>();
  }
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    PositionParts x;
    x.read(shared.x[pipe.stage], first, lane);
    const unsigned long long high = descriptor_offset(w, of * 2 * BM * ROW_BYTES);
    const unsigned long long low = descriptor_offset(high, BM * ROW_BYTES);
    float sum[BM / 2];
    wgmma_pin(sum);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BM>(sum, x.low[s], descriptor_offset(high, s * 32), s > 0);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BM>(sum, x.high[s], descriptor_offset(low, s * 32), true);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_tf32<BM>(sum, x.high[s], descriptor_offset(high, s * 32), true);
    wgmma_commit();
    __syncwarp();  // all lanes have read x
    if (lane == 0) barrier_arrive(&shared.empty[pipe.stage]);
    pipe.advance(), of ^= 1;
    if (step + 1 < work.end) {
      barrier_wait(&shared.full[pipe.stage], pipe.phase);
      part_filters(shared.w[pipe.stage], shared.parts[of]);
      fence_async();
    }
    wgmma_wait<0>();
    wgmma_pin(sum);
    x.keep();
#pragma unroll
    for (int j = 0; j < BM / 2; ++j) acc[0][j] = __fadd_rn(acc[0][j], sum[j]);
    consumers_sync<CONSUMERS>();
  }
}

// A sum that is not finite, on the FFMA unit.
__device__ __noinline__ float summed_again(const PositionsParams& p, const PositionsWork& work, int position,
                                           int out) {
  const AgainParams& of = p.again;
  const PositionDigits at(p, position);
  const float* const w = of.w + (long long)(work.group * p.out_channels + out) * of.m_stride;
  const float* const image = of.x + at.n * of.x_batch + work.group * p.channels;
  float sum = 0.0f;
  for (int tap_d = 0; tap_d < p.taps_depth; ++tap_d)
    for (int tap_h = 0; tap_h < p.taps_height; ++tap_h)
      for (int tap_w = 0; tap_w < p.taps_width; ++tap_w) {
        const int d = at.d * p.stride_depth - p.pad_depth + tap_d * p.dilation_depth;
        const int h = at.h * p.stride_height - p.pad_height + tap_h * p.dilation_height;
        const int column = at.w * p.stride_width - p.pad_width + tap_w * p.dilation_width;
        const bool is = d >= 0 && d < of.in_depth && h >= 0 && h < of.in_height && column >= 0 &&
                        column < of.in_width;
        const float* const x = image + d * of.x_depth + h * of.x_row + column * of.x_pixel;
        const float* const tap = w + tap_d * of.depth_stride + tap_h * of.row_stride + tap_w * of.width_stride;
        if (is) sum = add_row(of, x, tap, p.channels, sum);
      }
  return sum;
}
#else
__device__ __forceinline__ void consume(const PositionsWork& work, PositionsShared& shared,
                                        PositionsHeld& acc, int group, int lane) {
#pragma unroll
  for (int j = 0; j < BM / 2; ++j) acc[0][j] = 0.0f;
  const unsigned long long x =
      matrix_descriptor(shared.x[0] + group * PLANE, 16, 1024, Swizzle::B128);
  const unsigned long long w =
      matrix_descriptor(shared.w[0], ROTATED ? PLANE : 16, 1024, Swizzle::B128);
  Pipe<STAGES> pipe;
  unsigned long long* read = nullptr;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    const unsigned long long a = descriptor_offset(x, pipe.stage * (int)sizeof shared.x[0]);
    const unsigned long long b = descriptor_offset(w, pipe.stage * (int)sizeof shared.w[0]);
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    wgmma_pin(acc[0]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KC / 16; ++k)
      wgmma<BM, BF16, false, ROTATED>(acc[0], descriptor_offset(a, k * 32),
                                      descriptor_offset(b, k * (ROTATED ? 16 * ROW_BYTES : 32)), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (read && lane == 0) barrier_arrive(read);
    read = &shared.empty[pipe.stage];
    pipe.advance();
  }
  wgmma_wait<0>();
  wgmma_pin(acc[0]);
}
#endif

// Eight neighbouring sums to y.
__device__ __forceinline__ void store_eight(const PositionsParams& p, Out* to, const float4& low,
                                            const float4& high, int channel) {
  if constexpr (OUTPUT == 0) {
    float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#ifdef EPILOGUE
    finish_channels<8, true>(p.epilogue, v, to, p.y, channel);
#endif
    reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    unsigned v[4] = {pack<BF16>(low.x, low.y), pack<BF16>(low.z, low.w), pack<BF16>(high.x, high.y),
                     pack<BF16>(high.z, high.w)};
#ifdef EPILOGUE
    finish_pairs(p.epilogue, v, to, p.y, channel);
#endif
    *reinterpret_cast<uint4*>(to) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

// A block's share of the positions.
__device__ __forceinline__ void finish(const PositionsParams& p, const PositionsWork& work,
                                       const PositionsShared& shared, const float* sums) {
  constexpr int ROW = BM / 8;  // eights
  const int first = work.part * PositionsSums::SHARE, rows = PositionsSums::rows(work.part);
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * ROW; i += CONSUMERS) {
    const int row = i / ROW, column = i % ROW * 8;
    const long long place = shared.places[first + row];
    if (place < 0 || work.out + column >= p.out_channels) continue;
#ifdef TF32
    float4 low = shared.sums.added(work.part, sums, row, column);
    float4 high = shared.sums.added(work.part, sums, row, column + 4);
    float none = 0.0f;  // NaN, where one is not finite
#pragma unroll
    for (int e = 0; e < 4; ++e) none += (&low.x)[e] * 0.0f + (&high.x)[e] * 0.0f;
    if (none != 0.0f) {
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        float& sum = e < 4 ? (&low.x)[e] : (&high.x)[e - 4];
        if (!(fabsf(sum) < __int_as_float(0x7f800000)))
          sum = summed_again(p, work, work.first + first + row, work.out + column + e);
      }
    }
#else
    const float4 low = shared.sums.added(work.part, sums, row, column);
    const float4 high = shared.sums.added(work.part, sums, row, column + 4);
#endif
    const int channel = work.group * p.out_channels + work.out + column;
    store_eight(p, p.y + place + channel, low, high, channel);
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(THREADS, BLOCKS)
    winolab_im2col(const __grid_constant__ PositionsParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  PositionsShared& shared = *reinterpret_cast<PositionsShared*>(memory);
  const PositionsWork work(p);
  if (threadIdx.x == CONSUMERS) map_prefetch(p.x_map), map_prefetch(p.w_map);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.empty[s], CONSUMERS / 32);
    }
    barrier_init(&shared.brought, 1);
    barriers_ready();
    if (SPLIT_K > 1) barrier_arrive_expect(&shared.brought, PositionsSums::brought(work.part));
  }
  __syncthreads();
  if constexpr (SPLIT_K > 1) cluster_arrive();
  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS) produce(p, work, shared);
    if constexpr (SPLIT_K > 1) cluster_wait(), cluster_sync();
    return;
  }
  if (threadIdx.x < BN) {  // while the first copies are on their way
    const int position = work.first + (int)threadIdx.x;
    const PositionDigits at(p, position);
    shared.places[threadIdx.x] =
        position < p.positions
            ? at.n * p.y_batch + at.d * p.y_depth + at.h * p.y_row + at.w * p.y_pixel
            : -1;
  }
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float* const sums = reinterpret_cast<float*>(&shared);
  {
    PositionsHeld acc;
    consume(work, shared, acc, group, lane);
    consumers_sync<CONSUMERS>();  // nobody multiplies any more
    const int row = group * 64 + warp * 16 + lane / 4;
    PositionsSums::leave<false>(acc, sums + row * PositionsSums::PITCH + lane % 4 * 2);
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
  finish(p, work, shared, sums);
  if constexpr (SPLIT_K > 1) cluster_wait();
}
