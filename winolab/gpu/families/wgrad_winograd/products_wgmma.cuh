// The products of Ωα(n, r) on wgmma: M[state] = Σ U ⊗ V over the positions of a segment
// (scheduler.cuh).
//
// Roles: a producer thread orders bulk copies of U and V, a stage of KS positions; GROUPS consumer
// warpgroups multiply. FP32 data (PARTS = 2): low·high + high·low + high·high, and every KS
// positions the partial sum is added to the FP32 accumulators outside the Tensor Core, which
// truncates, times the two scales.
//
// Barriers: who arrives → who waits
//   full[stage]    the producer thread, with the copies' bytes → consumers
//   empty[stage]   a lane of each consumer warp → the producer thread
#pragma once

#include "mma.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"
#include "transform.cuh"
#include "scheduler.cuh"

constexpr int STRIP_N = WN < 128 || PARTS == 1 ? WN : 128;  // columns of a partial sum
constexpr int THREADS = 128 * (GROUPS + 1);
// One warpgroup only starts copies: its registers go to those that multiply.
// A block has what it was launched with; more would wait for ever.
constexpr int PRODUCER_REGISTERS = 24, LAUNCHED = 512 / RESIDENT / (GROUPS + 1) / 8 * 8;
constexpr int SPARED = (LAUNCHED * (GROUPS + 1) - PRODUCER_REGISTERS) / GROUPS / 8 * 8;
constexpr int CONSUMER_REGISTERS = SPARED < 240 ? SPARED : 240;

struct GemmShared {
  unsigned short u[STAGES][PARTS][BM / 64][BLOCK];
  unsigned short v[STAGES][PARTS][BN / 64][BLOCK];
  unsigned long long full[STAGES], empty[STAGES];
};

__device__ __forceinline__ void bring(unsigned short* shared, const unsigned short* global,
                                      int bytes, unsigned long long* barrier) {
  bulk_copy(reinterpret_cast<float*>(shared), reinterpret_cast<const float*>(global), bytes,
            barrier);
}

// One thread starts the bulk copies.
__device__ __forceinline__ void produce(const GemmParams& p, GemmShared& shared,
                                        const GemmWorkTile& work) {
  const long long u_stride = p.u_positions * 64, v_stride = p.v_positions * 64;  // of a block
  const unsigned short* u =
      p.u + ((long long)work.state * p.u_blocks + work.tile_m * (BM / 64)) * u_stride;
  const unsigned short* v =
      p.v + (((long long)work.piece * PARTS * ALPHA + work.state) * p.v_blocks +
             work.tile_n * (BN / 64)) * v_stride;
  Pipe<STAGES> pipe;
  Cursor at(work, work.begin);
  for (int step = work.begin; step < work.end; ++step) {
    const int bytes = at.count(work) * 128;
    const unsigned short* u_from = u + at.u * 64;
    const unsigned short* v_from = v + at.v * 64;
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
    barrier_arrive_expect(&shared.full[pipe.stage], bytes * PARTS * (BM + BN) / 64);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int b = 0; b < BM / 64; ++b)
        bring(shared.u[pipe.stage][part][b], u_from + (part * ALPHA * p.u_blocks + b) * u_stride,
              bytes, &shared.full[pipe.stage]);
#pragma unroll
      for (int b = 0; b < BN / 64; ++b)
        bring(shared.v[pipe.stage][part][b], v_from + (part * ALPHA * p.v_blocks + b) * v_stride,
              bytes, &shared.full[pipe.stage]);
    }
    pipe.advance(), at.advance(work);
  }
}

__device__ __forceinline__ void release(unsigned long long* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

__device__ __forceinline__ void consume(const GemmParams& p, GemmShared& shared,
                                        const GemmWorkTile& work) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int group_m = group % GROUPS_M, group_n = group / GROUPS_M;
  const int row = work.tile_m * BM + group_m * 64 + warp * 16 + lane / 4;
  const int column = work.tile_n * BN + group_n * WN + lane % 4 * 2;
  const int padded = p.tiles_n * BN;
  float* m = p.m + (((long long)work.segment * ALPHA + work.state) * p.taps + work.tap) *
                       ((long long)p.tiles_m * BM * padded) +
             (long long)row * padded + column;
  float acc[WN / 2];
#pragma unroll
  for (int i = 0; i < WN / 2; i += 2) {
    float2 pair = make_float2(0.0f, 0.0f);
    if (p.accumulate)
      pair = *reinterpret_cast<const float2*>(m + i / 2 % 2 * 8 * padded + i / 4 * 8);
    acc[i] = pair.x, acc[i + 1] = pair.y;
  }
  Pipe<STAGES> pipe;
  Cursor at(work, work.begin);
  if constexpr (PARTS == 1) {
    int last = -1;
    for (int step = work.begin; step < work.end; ++step) {
      const unsigned long long a =
          matrix_descriptor(shared.u[pipe.stage][0][group_m], 1024, 1024, Swizzle::B128);
      const unsigned long long b = matrix_descriptor(
          shared.v[pipe.stage][0][group_n * (WN / 64)], BLOCK * 2, 1024, Swizzle::B128);
      const int count = at.count(work);
      barrier_wait(&shared.full[pipe.stage], pipe.phase);
      wgmma_pin(acc);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < KS; k += 16)
        if (k < count)
          wgmma<WN, BF16, true, true>(acc, descriptor_offset(a, k * 128),
                                      descriptor_offset(b, k * 128), true);
      wgmma_commit();
      wgmma_wait<1>();
      if (last >= 0) release(&shared.empty[last]);
      last = pipe.stage;
      pipe.advance(), at.advance(work);
    }
    wgmma_wait<0>();
    wgmma_pin(acc);
  } else {
    const long long u_blocks_k = p.u_positions / KS, v_blocks_k = p.v_positions / KS;
    const float* u_scale = p.u_scale + (work.tile_m * (BM / 64) + group_m) * u_blocks_k;
    const float* v_scale = p.v_scale + ((long long)work.piece * p.v_blocks +
                                        work.tile_n * (BN / 64) + group_n * (WN / 64)) * v_blocks_k;
    for (int step = work.begin; step < work.end; ++step) {
      float scale[WN / 64];
#pragma unroll
      for (int b = 0; b < WN / 64; ++b)
        scale[b] = __fmul_rn(fabsf(__ldg(u_scale + at.u / KS)),
                             fabsf(__ldg(v_scale + b * v_blocks_k + at.v / KS)));
      const unsigned long long high_a =
          matrix_descriptor(shared.u[pipe.stage][0][group_m], 1024, 1024, Swizzle::B128);
      const unsigned long long low_a =
          descriptor_offset(high_a, BM / 64 * BLOCK * 2);
      barrier_wait(&shared.full[pipe.stage], pipe.phase);
#pragma unroll
      for (int strip = 0; strip < WN / STRIP_N; ++strip) {
        const unsigned long long high_b = matrix_descriptor(
            shared.v[pipe.stage][0][group_n * (WN / 64) + strip * (STRIP_N / 64)], BLOCK * 2, 1024,
            Swizzle::B128);
        const unsigned long long low_b = descriptor_offset(high_b, BN / 64 * BLOCK * 2);
        float sum[STRIP_N / 2];
        wgmma_pin(sum);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < KS; k += 16) {
          const int at = k * 128;
          wgmma<STRIP_N, BF16, true, true>(sum, descriptor_offset(low_a, at),
                                           descriptor_offset(high_b, at), k > 0);
          wgmma<STRIP_N, BF16, true, true>(sum, descriptor_offset(high_a, at),
                                           descriptor_offset(low_b, at), true);
          wgmma<STRIP_N, BF16, true, true>(sum, descriptor_offset(high_a, at),
                                           descriptor_offset(high_b, at), true);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(sum);
        if (strip == WN / STRIP_N - 1) release(&shared.empty[pipe.stage]);
#pragma unroll
        for (int i = 0; i < STRIP_N / 2; ++i)
          acc[strip * (STRIP_N / 2) + i] =
              __fmaf_rn(sum[i], scale[strip * (STRIP_N / 64) + i / 32], acc[strip * (STRIP_N / 2) + i]);
      }
      pipe.advance(), at.advance(work);
    }
  }
  next_launch_may_begin();  // not before: its blocks would take issue slots from these
#pragma unroll
  for (int i = 0; i < WN / 2; i += 2)
    *reinterpret_cast<float2*>(m + i / 2 % 2 * 8 * padded + i / 4 * 8) =
        make_float2(acc[i], acc[i + 1]);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    winolab_wgrad_winograd_products_wgmma(const __grid_constant__ GemmParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  GemmShared& shared = *reinterpret_cast<GemmShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barriers_ready();
  }
  __syncthreads();
  const GemmWorkTile work(p, blockIdx.x);
  launch_before_done();
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared, work);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (threadIdx.x == 128 * GROUPS) produce(p, shared, work);
  }
}
