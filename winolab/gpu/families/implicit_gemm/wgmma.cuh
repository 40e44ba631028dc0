// Implicit GEMM of 16 bits on wgmma (sm_90a): all directions, any stride, dilation, groups and even
// channels.
//
// A block computes BLOCK_ROWS × BLOCK_COLUMNS results; a step is 64 deep. Roles: producer warps copy
// (gather.cuh); each consumer warpgroup multiplies MT × 64 rows.
//
// SLICE: of merged groups, the columns that SLICE_DEPTH of a tap's PATCH channels meet; BLOCK_COLUMNS:
// all.
//
// Barriers: who arrives → who waits
//   full[stage]    all producer threads, when their copies are there → consumers
//   empty[stage]   a lane of each consumer warp, when the next step's products have begun → producers
#pragma once

#include "gather.cuh"
#include "results.cuh"
#include "pipe.cuh"

static_assert(INPUT != 0 && WARP_ROWS % 4 == 0 && WARP_COLUMNS == 1, "warpgroups below each other");
constexpr bool FULL = BLOCKS == 1 && CONSUMERS == 256;  // registers for a block of 384 threads alone
constexpr int PRODUCER_REGISTERS = FULL ? 120 : 0, CONSUMER_REGISTERS = FULL ? 192 : 0;

// WHOLE: vectors are aligned.
template <bool WHOLE>
__device__ __forceinline__ void produce(const ImplicitParams& p, const ImplicitWork& work,
                                        GatherShared& shared) {
  Gather gather(p, work, shared);
  Pipe<STAGES> pipe;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    gather.prepare();
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
    gather.template start<WHOLE>(pipe.stage);
    if constexpr (WHOLE) {
      copy_async_arrive(&shared.full[pipe.stage]);
    } else {
      fence_async();  // ordinary stores are not of the proxy that wgmma reads by
      barrier_arrive(&shared.full[pipe.stage]);
    }
    pipe.advance();
  }
  copy_async_wait<0>();
}

// Products of a stage, asynchronous.
__device__ __forceinline__ void multiply(ImplicitSums& acc, unsigned long long a, unsigned long long b) {
  constexpr int A_NEXT = GRADIENT ? 16 * ROW_BYTES : 32, B_NEXT = W_BY_DEPTH ? 16 * ROW_BYTES : 32;
  constexpr int A_TILE = GRADIENT ? PLANE : 64 * ROW_BYTES;
#pragma unroll
  for (int i = 0; i < MT; ++i) wgmma_pin(*reinterpret_cast<float(*)[BLOCK_COLUMNS / 2]>(&acc[i]));
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    const int first = SLICE < BLOCK_COLUMNS ? k * 16 % PATCH / SLICE_DEPTH * SLICE : 0;  // column
    const int shift = first * (W_BY_DEPTH ? SIZE : ROW_BYTES);
#pragma unroll
    for (int i = 0; i < MT; ++i)
      wgmma<SLICE, INPUT == 2, GRADIENT, W_BY_DEPTH>(
          *reinterpret_cast<float(*)[SLICE / 2]>(&acc[i][first / 8][0]),
          descriptor_offset(a, i * A_TILE + k * A_NEXT), descriptor_offset(b, k * B_NEXT + shift), true);
  }
  wgmma_commit();
}

__device__ __forceinline__ void consume(const ImplicitWork& work, GatherShared& shared, ImplicitSums& acc,
                                        const Warp& at) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  Pipe<STAGES> pipe;
#pragma unroll
  for (int i = 0; i < MT; ++i)
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;
  unsigned long long* read = nullptr;
#pragma unroll 1
  for (int step = work.begin; step < work.end; ++step) {
    const unsigned char* const rows = GRADIENT ? shared.w[pipe.stage] : shared.x[pipe.stage];
    const unsigned char* const columns = GRADIENT ? shared.x[pipe.stage] : shared.w[pipe.stage];
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    fence_async();  // copies of 16 bytes are not of the proxy that wgmma reads by
    multiply(acc, matrix_descriptor(rows + group * (MT * 64 * ROW_BYTES), 16, 1024, Swizzle::B128),
             matrix_descriptor(columns, W_BY_DEPTH ? PLANE : 16, 1024, Swizzle::B128));
    wgmma_wait<1>();
    if (read && at.lane == 0) barrier_arrive(read);
    read = &shared.empty[pipe.stage];
    pipe.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < MT; ++i) wgmma_pin(*reinterpret_cast<float(*)[BLOCK_COLUMNS / 2]>(&acc[i]));
}

// Sums of a gradient that do not lie side by side, in dw or in the segment's bucket: a warp leaves its rows in the stages' memory, then
// has a column a lane. The code is short: unrolled over all columns it took longer than the products.
__device__ __forceinline__ void store_by_columns(const ImplicitParams& p, const ImplicitWork& work,
                                                 GatherShared& shared, const ImplicitSums& acc,
                                                 const Warp& at) {
  constexpr int PITCH = BLOCK_COLUMNS + 8;  // four rows of pairs lie in different banks
  static_assert(CONSUMERS / 32 * 16 * PITCH * 4 <= sizeof(shared.x) + sizeof(shared.w), "they fit");
  const int g = at.lane / 4, q = at.lane % 4;
  const Bucket bucket(p, work);
  float* const own = reinterpret_cast<float*>(&shared) + threadIdx.x / 32 * (16 * PITCH);
  consumers_sync<CONSUMERS>();  // nobody multiplies any more
#pragma unroll
  for (int i = 0; i < MT; ++i) {
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(own + (r * 8 + g) * PITCH + j * 8 + q * 2) =
            make_float2(acc[i][j][2 * r], acc[i][j][2 * r + 1]);
    __syncwarp();
    const int first = work.row + at.m + i * 64;
#pragma unroll 1
    for (int c = at.lane; c < BLOCK_COLUMNS; c += 32) {
      PatchColumn column;
      column.set(p, work, work.column + c);
      column.find(p, work);
      const long long tap = column.number(work) * p.channels;
#pragma unroll 4
      for (int r = 0; r < 16; ++r) {
        const int m = first + r;
        const int channel =
            MERGED ? column.channel - (m >> p.out_log << p.channels_log) : column.channel;
        if (!column.there || m >= work.columns || (unsigned)channel >= (unsigned)p.channels) continue;
        const long long out = (long long)work.group * p.out_channels + m;
        const float sum = own[r * PITCH + c];
        if (p.buckets)
          bucket.sums[out * bucket.each + tap + channel] = sum;
        else
          store_sum(p.y + out * p.m_stride + column.filter + channel * p.c_stride, sum);
      }
    }
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    winolab_implicit_gemm_wgmma(const __grid_constant__ ImplicitParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  GatherShared& shared = *reinterpret_cast<GatherShared*>(memory);
  const ImplicitWork work(p);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], CONSUMERS / 32);
    }
    barriers_ready();
  }
  if constexpr (!GRADIENT)
    for (int i = threadIdx.x; i < BLOCK_ROWS; i += THREADS)
      shared.places[i] = work.place_of(p, work.row + i);
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    registers_shrink<PRODUCER_REGISTERS>();
    if (p.x_vectors && p.w_vectors)
      produce<true>(p, work, shared);
    else
      produce<false>(p, work, shared);
  } else {
    registers_grow<CONSUMER_REGISTERS>();
    const Warp at;
    ImplicitSums acc;
    consume(work, shared, acc, at);
    if (GRADIENT && p.buckets) next_launch_may_begin();
    if constexpr (!GRADIENT)
      store(p, work, shared.places, acc, at);
    else if (p.y_vector > 1)
      store_side_by_side(p, work, acc, at);
    else
      store_by_columns(p, work, shared, acc, at);
  }
}
