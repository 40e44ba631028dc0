// Fused Γα(n, r) on FFMA units: y = AT Σ (U ⊙ BT x) over outer taps and channels, U from filter.cuh.
//
// A block computes BM output channels × (ROWS × COLUMNS) tiles, a work tile. Blocks are persistent:
// producers run ahead into the next work tile while consumers finish the last.
//
// Roles, by warp:
//   consumers   outer products out of shared memory, each warp some of the states, in registers; then
//               AT of staged sums, and y
//   producers   load input tiles, apply BT and write V
//   load warp   (LOAD_WARP) starts the bulk copies of U; without it the last producer, the issuer, does,
//               and before compute capability 9.0 (BULK 0) all producers copy
//
// Pipeline: a ring of V_STAGES and one of U_STAGES. A V stage holds the ROWS + SHARE − 1 input rows
// that SHARE filter rows need: it is transformed once and serves SHARE U stages.
//
// Barriers: who arrives → who waits
//   u_full[stage]    the issuer once, with the copy's bytes (BULK 0: every producer) → consumers
//   u_empty[stage]   every consumer, behind reads_done() → the issuer (BULK 0: producers)
//   v_full[stage]    every thread that makes V → consumers
//   v_empty[stage]   every consumer → threads that make V
//   named barrier 3  consumers, before a pass is staged and behind it → the same
//   cluster          all threads, twice a pass, where blocks share a work tile (SPLIT_K)
#pragma once

#include "ffma.cuh"
#include "produce.cuh"
#include "finish.cuh"
#include "load_warp.cuh"

// A lane's operands of one product: outputs by fours, of which ``u`` is the lane's first, and what is
// left one by one; tiles by fours.
__device__ __forceinline__ void load_fragments(float (&a)[GROUPS_M * LANES_T], float (&b)[TT],
                                               const float* u, const float* v, int ln) {
#pragma unroll
  for (int i = 0; i < VECTORS; i += 4)
    *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(u + i * LANES_M);
#pragma unroll
  for (int i = VECTORS; i < TM; ++i) a[i] = (u - 4 * ln)[i * LANES_M + ln];
#pragma unroll
  for (int j = 0; j < TT; j += 4)
    *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(v + j * LANES_T);
}

// Adds a sum to the second level's, and begins anew.
__device__ __forceinline__ void fold(float (&total)[STATES][TT][TM], float (&acc)[STATES][TT][TM]) {
#pragma unroll
  for (int s = 0; s < STATES; ++s)
#pragma unroll
    for (int j = 0; j < TT; ++j)
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        total[s][j][i] = __fadd_rn(total[s][j][i], acc[s][j][i]);
        acc[s][j][i] = 0.0f;
      }
}

__device__ __forceinline__ void consume(const GammaFfmaParams& p, GammaFfmaShared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int ln = lane % LANES_M, lt = lane / LANES_M;
  const int state0 = warp / SHARERS * STATES, sharer = warp % SHARERS;
  const int tile0 = sharer * (BT / SHARERS);
  Pipe<U_STAGES> u_pipe;
  Pipe<V_STAGES> v_pipe;
  for (TileScheduler scheduler(p); scheduler.left(p); scheduler.next(p)) {
    const Steps steps(p, scheduler.sharers);
    const PartialSums sums(steps, scheduler.sharers);
    for (int sum = 0; sum < sums.count; ++sum) {
      float acc[STATES][TT][TM];
#pragma unroll
      for (int s = 0; s < STATES; ++s)
#pragma unroll
        for (int j = 0; j < TT; ++j)
#pragma unroll
          for (int i = 0; i < TM; ++i) acc[s][j][i] = 0.0f;
      [[maybe_unused]] float total[STATES][TT][TM] = {};  // of folded sums
      [[maybe_unused]] int folded = 0;
      for (int step = sums.at(sum), end = sums.at(sum + 1); step < end; ++step) {
        barrier_wait(&shared.v_full[v_pipe.stage], v_pipe.phase);
#pragma unroll 1
        for (int f = 0; f < SHARE; ++f) {
          barrier_wait(&shared.u_full[u_pipe.stage], u_pipe.phase);
          const float* u = shared.u[u_pipe.stage] + state0 * KC * BM + ln * 4;
          const float* v =
              shared.v[v_pipe.stage] + state0 * KC * V_STRIDE + tile0 + f * COLUMNS + lt * 4;
          float a[2][GROUPS_M * LANES_T], b[2][TT];
          load_fragments(a[0], b[0], u, v, ln);
#pragma unroll
          for (int q = 0; q < KC * STATES; ++q) {
            const int next = q + 1, s = q % STATES, at = next % STATES * KC + next / STATES;
            if (next < KC * STATES)
              load_fragments(a[next % 2], b[next % 2], u + at * BM, v + at * V_STRIDE, ln);
            add_outer_product(acc[s], a[q % 2], b[q % 2]);
          }
          // Every lane for itself: nothing says that a warp's lanes leave a wait together.
          reads_done();
          barrier_arrive(&shared.u_empty[u_pipe.stage]);
          u_pipe.advance();
          if constexpr (FOLD > 0) {
            if (++folded == FOLD) {
              folded = 0;
              fold(total, acc);
            }
          }
        }
        barrier_arrive(&shared.v_empty[v_pipe.stage]);
        v_pipe.advance();
      }
      if constexpr (FOLD > 0) {
        fold(total, acc);
        fold(acc, total);  // acc is 0
      }
      const GammaWorkTile work(p, scheduler.index);
#pragma unroll
      for (int pass = 0; pass < PASSES; ++pass) {
        storers_sync<CONSUMERS>();
        if (pass == 0) locate(p, shared, work);
        stage(shared, acc, pass, state0, sharer);
        storers_sync<CONSUMERS>();
        store(p, shared, work, pass, sum > 0, scheduler.sharers);
      }
    }
  }
}

__device__ __forceinline__ void gamma(const GammaFfmaParams& p) {
  extern __shared__ __align__(128) unsigned char memory[];
  GammaFfmaShared& shared = *reinterpret_cast<GammaFfmaShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < U_STAGES; ++s) {
      barrier_init(&shared.u_full[s], BULK ? 1 : PRODUCERS);  // the threads that start copies
      barrier_init(&shared.u_empty[s], CONSUMERS);
    }
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], MAKERS);
      barrier_init(&shared.v_empty[s], CONSUMERS);
    }
    if constexpr (BULK) barriers_ready();
  }
  if constexpr (SPLIT_K > 1)
    cluster_sync();
  else
    __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else if (LOAD_WARP && threadIdx.x / 32 == (CONSUMERS + ISSUER) / 32) {
    registers_shrink<PRODUCER_REGISTERS>();
    load_filters(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  }
}
