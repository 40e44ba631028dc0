// dW by direct products on wgmma, in 16 bits: x and dy are read as they lie in memory, and the only
// workspace is partial sums that several blocks share. column_sweep.cuh says in which order.
//
// Roles: producers copy 16 bytes at a time, exchanged as wgmma reads them with the 128-byte
// swizzle; two consumer warpgroups multiply. One instruction multiplies a column of dy by up to
// four times 64 columns of a matrix whose channels are those of neighbouring columns of x.
//
// Pipeline: a stage is a column of dy and one of x; columns of x stay in a ring for TAPS stages.
//
// Barriers: who arrives → who waits
//   full[stage]    every producer, when its copies are there → consumers
//   empty[stage]   a lane of each consumer warp → producers
//   named 1, 2     consumers; producers: one of them has found the next share
#pragma once

#include "pipeline.cuh"
#include "column_stages.cuh"
#include "column_sums.cuh"
#include "gather.cuh"

__device__ __forceinline__ void produce(const ColumnParams& params, ColumnsShared& shared,
                                        ColumnPipe& pipe) {
  const GradientParams& p = params.sum;
  const ColumnScheduler& scheduler = shared.produced;
  const RowSource<Element>& source = shared.source;
  const int thread = threadIdx.x - 128 * GROUPS, unit = thread % 8, row = thread / 8;
  if (thread == 0) shared.source.find(params, work_of(p, scheduler.tile));
  producers_sync<PRODUCERS>();
  const int ins = (source.ins + 7) / 8 - unit, outs = (source.outs + 7) / 8 - unit;
  const int to = row * 64 + (unit ^ row % 8) * 8;
  const int warp = thread / 32, lane = thread % 32;
  Sweep sweep(scheduler);
#pragma unroll 1
  while (sweep.more()) {
    // A warp copies 4 neighbouring positions of each COPIED; a lane finds one, for all.
    Position<Element> found(params, source,
                            sweep.block * KS + warp * 4 + lane % 4 + COPIED * (lane / 4));
    found.x += (sweep.column + TAPS - 1) * (long long)p.x_pixel * STRIDE_WIDTH;
    found.dy += sweep.column * (long long)p.dy_pixel;
    found.column += sweep.column;
    const Element* from_x[COPIES];
    const Element* from_dy[COPIES];
    int column[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int finder = lane / 8 + 4 * i;
      from_x[i] = of_lane(found.x, finder) + unit * 8;
      from_dy[i] = of_lane(found.dy, finder) + unit * 8;
      column[i] = __shfl_sync(0xffffffffu, found.column, finder);
    }
    const int shift = TAPS - 1 + source.shift;
    bool same = true;
#pragma unroll 1
    while (same) {
      barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
      unsigned short* const slot = shared.x[pipe.column][0] + to;
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const bool inside = meets_x(p, column[i], shift);
#pragma unroll
        for (int b = 0; b < PLANES; ++b)
          copy_async<16>(slot + (b * KS + COPIED * i) * 64, from_x[i] + b * 64,
                         inside && b * 8 < ins);
        if (TAPS > 1 && pipe.column < TAPS - 1)
#pragma unroll
          for (int b = 0; b < PLANES; ++b)
            copy_async<16>(slot + ((RING * PLANES + b) * KS + COPIED * i) * 64, from_x[i] + b * 64,
                           inside && b * 8 < ins);
        from_x[i] += (long long)p.x_pixel * STRIDE_WIDTH;
      }
      if (sweep.column >= sweep.first)
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
          const bool inside = (unsigned)column[i] < p.out_width;
#pragma unroll
          for (int b = 0; b < GROUPS_M; ++b)
            copy_async<16>(shared.dy[pipe.stage][b] + to + COPIED * 64 * i, from_dy[i] + b * 64,
                           inside && b * 8 < outs);
        }
#pragma unroll
      for (int i = 0; i < COPIES; ++i) from_dy[i] += p.dy_pixel, ++column[i];
      copy_async_arrive(&shared.full[pipe.stage]);
      pipe.advance();
      same = !sweep.advance();
    }
  }
}

// A row of sums from FIRST on, by instructions of up to 256 columns.
template <int FIRST = 0>
__device__ __forceinline__ void multiply(float (&acc)[WIDTH / 2], unsigned long long a,
                                         unsigned long long b) {
  constexpr int REST = WIDTH - FIRST, WN = REST <= 256 ? REST : 192;
  if constexpr (REST > 0) {
    wgmma<WN, BF16, true, true>(reinterpret_cast<float(&)[WN / 2]>(acc[FIRST / 2]), a,
                                descriptor_offset(b, FIRST / 64 * KS * 128), true);
    multiply<FIRST + WN>(acc, a, b);
  }
}

__device__ __forceinline__ void consume(const ColumnParams& params, ColumnsShared& shared,
                                        ColumnPipe& pipe) {
  const ColumnScheduler& scheduler = shared.consumed;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);  // so: the same in all lanes
  const int group_m = group % GROUPS_M, tap0 = group / GROUPS_M * GROUP_TAPS;
  const int lane = threadIdx.x % 32;
  float acc[WIDTH / 2] = {};
  const unsigned long long dy =
      matrix_descriptor(shared.dy[0][group_m], 1024, 1024, Swizzle::B128);
  const unsigned long long x = matrix_descriptor(shared.x[0][0], KS * 128, 1024, Swizzle::B128);
  int held = -1;  // the stage of products that are on their way
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
  Sweep sweep(scheduler);
#pragma unroll 1
  while (sweep.more()) {
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    if (sweep.column < sweep.first) {
      if constexpr (STAGES <= TAPS) {  // or its stage would be waited for
        wgmma_wait<0>();
        wgmma_pin(acc);
        if (held >= 0) release(held);
        held = -1;
      }
      release(pipe.stage);
    } else {
      const unsigned long long a = descriptor_offset(dy, pipe.stage * (int)sizeof shared.dy[0]);
      const unsigned long long b =
          descriptor_offset(x, (pipe.met(0) + tap0) * (int)sizeof shared.x[0]);
      fence_async();  // copies of 16 bytes are not of the proxy that wgmma reads by
      wgmma_pin(acc);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < KS / 16; ++k)
        multiply(acc, descriptor_offset(a, k * 2048), descriptor_offset(b, k * 2048));
      wgmma_commit();
      wgmma_wait<1>();
      if (held >= 0) release(held);
      held = pipe.stage;
    }
    pipe.advance();
    sweep.advance();
  }
  wgmma_wait<0>();
  wgmma_pin(acc);
  if (held >= 0) release(held);
  finish(params, scheduler, acc);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_wgrad_direct_columns(const __grid_constant__ ColumnParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  ColumnsShared& shared = *reinterpret_cast<ColumnsShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barriers_ready();
    shared.consumed.start(p);
    shared.produced = shared.consumed;
  }
  __syncthreads();
  next_launch_may_begin();  // its blocks have no room beside these
  ColumnPipe pipe;
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    for_shares(p, shared.consumed, threadIdx.x == 0, consumers_sync<128 * GROUPS>,
               [&] { consume(p, shared, pipe); });
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    for_shares(p, shared.produced, threadIdx.x == 128 * GROUPS, producers_sync<PRODUCERS>,
               [&] { produce(p, shared, pipe); });
  }
}
