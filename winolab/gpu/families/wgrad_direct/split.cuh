// dW of FP32 data by direct products on wgmma: x and dy are read as they lie in memory, and the
// only workspace is two headers (scale.cuh) and partial sums that several blocks share.
// column_sweep.cuh says in which order.
//
// Roles: producers copy FP32 to shared memory a stage ahead, scale it by its tensor's power of two
// and store FP16 parts as wgmma reads them. Consumers keep dy's parts in registers, so that shared
// memory serves x alone: 64 instead of 128 bytes a cycle. The Tensor Core sums, and truncates,
// low·high + high·low of 16 · DEPTH positions and then their high·high; these partial sums, of a
// tap, are added to FP32 accumulators outside. Where all positions of a column of x lie outside the
// image its taps are left out. A tap alone has few products for what is split, and twice the producers.
//
// Barriers: who arrives → who waits
//   full[stage]     every producer, when its parts are stored → consumers
//   empty[stage]    every consumer → producers
//   squares_full    every producer: a share's sums of squares → consumers, before the accuracy check
//   squares_empty   every consumer: the squares are read → producers, before the next share's
#pragma once

#include "split_produce.cuh"
#include "split_check.cuh"
#include "gather.cuh"
#include "split_scan.cuh"

// Adds what a column's positions give to the sums of one tap and 64 channels at most, of dy's parts
// ``a`` and x's from ``high`` on.
__device__ __forceinline__ void multiply(float (&acc)[WIDTH / 2], int piece,
                                         const unsigned (&a)[DEPTH][PARTS][4],
                                         unsigned long long high) {
  constexpr int STEP = 16 * PLANE * 2;  // bytes of 16 positions
  const unsigned long long low = descriptor_offset(high, PLANES * KS * PLANE * 2);
  float sum[PLANE / 2];
  wgmma_pin(sum);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < DEPTH; ++k) {
    wgmma<PLANE, false, true>(sum, a[k][1], descriptor_offset(high, k * STEP), k > 0);
    wgmma<PLANE, false, true>(sum, a[k][0], descriptor_offset(low, k * STEP), true);
  }
#pragma unroll
  for (int k = 0; k < DEPTH; ++k)
    wgmma<PLANE, false, true>(sum, a[k][0], descriptor_offset(high, k * STEP), true);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sum);
#pragma unroll
  for (int i = 0; i < PLANE / 2; ++i) {
    float& to = acc[piece * (PLANE / 2) + i];
    to = __fadd_rn(to, sum[i]);
  }
}

__device__ __forceinline__ void consume(const SplitParams& params, SplitShared& shared,
                                        ColumnPipe& pipe, int& shares) {
  const GradientParams& p = params.sum;
  const ColumnScheduler& scheduler = shared.consumed;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);  // so: the same in all lanes
  const int group_m = group % GROUPS_M, tap0 = group / GROUPS_M * GROUP_TAPS;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  // A lane's row of four matrices, two along the output channels and two along the positions.
  const int row = lane / 16 * 8 + lane % 8, unit = (warp * 2 + lane / 8 % 2) ^ lane % 8;
  float acc[WIDTH / 2] = {};
  // Rows of 128 or of 64 bytes: the swizzle's code is 1 or 2.
  constexpr unsigned long long SWIZZLE = (PLANE == 64 ? 1ull : 2ull) << 62;
  constexpr int ATOM = 8 * PLANE * 2;
  const unsigned long long x = matrix_descriptor(shared.x[0][0][0], ATOM, ATOM) | SWIZZLE;
  const int work = __shfl_sync(0xffffffffu, scheduler.tile, 0);
  const int shift = (tile_of(p, work) * TAPS + tap0) * DILATION_WIDTH - p.pad_width;
  const bool mixed = params.chunks > 1;  // a column's positions may lie in different ones of x
  Sweep sweep(scheduler);
#pragma unroll 1
  while (sweep.more()) {
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    if (sweep.column >= sweep.first) {
#pragma unroll
      for (int k = 0; k < KS / 16; k += DEPTH) {
        unsigned a[DEPTH][PARTS][4];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i)
#pragma unroll
          for (int part = 0; part < PARTS; ++part)
            load_matrices<true>(a[i][part], shared.dy[pipe.stage][part][group_m] +
                                                (row + (k + i) * 16) * 64 + unit * 8);
#pragma unroll
        for (int tap = 0; tap < GROUP_TAPS; ++tap) {
          if (!mixed && (unsigned)(sweep.column * STRIDE_WIDTH + shift + tap) >= p.width) continue;
          const unsigned long long met = descriptor_offset(
              x, pipe.met(tap0 + tap) * (int)sizeof shared.x[0] + k * 16 * PLANE * 2);
#pragma unroll
          for (int plane = 0; plane < PLANES; ++plane)
            multiply(acc, tap * PLANES + plane, a,
                     descriptor_offset(met, plane * (int)sizeof shared.x[0][0][0]));
        }
      }
    }
    // Every lane for itself: nothing says that a warp's lanes have loaded dy together.
    barrier_arrive(&shared.empty[pipe.stage]);
    pipe.advance();
    sweep.advance();
  }
  barrier_wait(&shared.squares_full, shares & 1);
  check_accuracy(params, shared, scheduler, acc, group_m, tap0);
  barrier_arrive(&shared.squares_empty);
  ++shares;
  finish(params, scheduler, acc);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_wgrad_direct_split(const __grid_constant__ SplitParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  SplitShared& shared = *reinterpret_cast<SplitShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], RESULTS);
    }
    barrier_init(&shared.squares_full, PRODUCERS);
    barrier_init(&shared.squares_empty, RESULTS);
    barriers_ready();
    shared.consumed.start(p);
    shared.produced = shared.consumed;
  }
  __syncthreads();
  next_launch_may_begin();  // its blocks have no room beside these
  launch_before_done();
  ColumnPipe pipe;
  int shares = 0;
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    for_shares(p, shared.consumed, threadIdx.x == 0, consumers_sync<128 * GROUPS>,
               [&] { consume(p, shared, pipe, shares); });
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    for_shares(p, shared.produced, threadIdx.x == 128 * GROUPS, producers_sync<PRODUCERS>,
               [&] { produce(p, shared, pipe, shares); });
  }
}
