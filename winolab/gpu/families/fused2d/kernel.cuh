// Fused F(N×N, R×R) on FFMA units: y = AT [Σ (G w GT) ⊙ (BT x B)] A over channels, as Lavin & Gray and
// openCNN have it; U from filter.cuh, or made in the block (FUSED).
//
// GRADIENT: dw = Σ AT [(G dy GT) ⊙ (BT x B)] A over tiles of dy, F(R×R, N×N) turned around: a block's
// columns are input channels, and dy is transformed in the block.
//
// A block computes BM filters × BT tiles, a work tile: 16 products BM × BT × KC a stage, two states a
// consumer warp. Blocks are persistent: producers run ahead into the next work tile.
//
// Roles, by warp:
//   consumers   outer products out of shared memory, then the output transform (finish.cuh)
//   producers   load input tiles, apply BT and write V; one of them starts the bulk copies of U, or,
//               FUSED, all make it. TEAMS of 128 take turns at the stages
//
// Barriers: who arrives → who waits
//   u_full[stage]    the issuer once, with the copy's bytes (FUSED: a team) → consumers
//   u_empty[stage]   every consumer, behind reads_done() → the issuer (FUSED: a team)
//   v_full[stage]    a team → consumers, to whom it says too where a work tile's results lie
//   v_empty[stage]   every consumer → a team
//   named barrier 1  consumers, when a round's sums are there, and when they have been read
#pragma once

#include "ffma.cuh"
#include "finish.cuh"
#include "produce.cuh"

// A lane's operands of one product, by fours.
__device__ __forceinline__ void load_fragments(float (&a)[TM], float (&b)[TT], const float* u,
                                               const float* v) {
#pragma unroll
  for (int i = 0; i < TM; i += 4)
    *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(u + layout_filter_of(0, i));
#pragma unroll
  for (int j = 0; j < TT; j += 4)
    *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(v + layout_tile_of(0, j));
}

__device__ __forceinline__ void consume(const Fused2dParams& p, Fused2dShared& shared) {
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int u0 = layout_state_of(warp, lane, 0) * KC * U_STRIDE + layout_filter_of(lane, 0);
  const int v0 = layout_state_of(warp, lane, 0) * KC * V_STRIDE + layout_tile_of(lane, 0);
  Pipe<U_STAGES> u_pipe;
  Pipe<V_STAGES> v_pipe;
  Pipe<PLACES> place;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    FusedSums acc;
#pragma unroll
    for (int s = 0; s < HELD; ++s)
#pragma unroll
      for (int j = 0; j < TT; ++j)
#pragma unroll
        for (int i = 0; i < TM; ++i) acc[s][j][i] = 0.0f;
    const FusedPart part(p, index);
#pragma unroll 1
    for (int chunk = part.begin; chunk < part.end; ++chunk) {
      barrier_wait(&shared.v_full[v_pipe.stage], v_pipe.phase);
      barrier_wait(&shared.u_full[u_pipe.stage], u_pipe.phase);
      const float* u = shared.u[u_pipe.stage] + u0;
      const float* v = shared.v[v_pipe.stage] + v0;
      float a[2][TM], b[2][TT];
      load_fragments(a[0], b[0], u, v);
#pragma unroll
      for (int q = 0; q < KC * HELD; ++q) {
        const int next = q + 1, at = next % HELD * KC + next / HELD;
        if (next < KC * HELD)
          load_fragments(a[next % 2], b[next % 2], u + at * U_STRIDE, v + at * V_STRIDE);
        add_outer_product(acc[q % HELD], a[q % 2], b[q % 2]);
      }
      // Every lane for itself: nothing says that a warp's lanes leave a wait together.
      reads_done();
      barrier_arrive(&shared.u_empty[u_pipe.stage]);
      u_pipe.advance();
      barrier_arrive(&shared.v_empty[v_pipe.stage]);
      v_pipe.advance();
    }
    finish(p, shared, acc, shared.place[place.stage], thread);
    place.advance();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_fused2d(const __grid_constant__ Fused2dParams p) {
  // Never taken. Without a way out that depends on memory half of the configs spill (ptxas 12.9), as
  // gamma_ffma's do: parameters are read, and kept, before threads take their parts.
  if (p.work_tiles == 0 && *static_cast<const volatile float*>(p.u) == 0.0f) return;
  extern __shared__ __align__(128) unsigned char memory[];
  Fused2dShared& shared = *reinterpret_cast<Fused2dShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < U_STAGES; ++s) {
      barrier_init(&shared.u_full[s], FUSED ? TEAM : 1);
      barrier_init(&shared.u_empty[s], CONSUMERS);
    }
    for (int s = 0; s < V_STAGES; ++s) {
      barrier_init(&shared.v_full[s], TEAM);
      barrier_init(&shared.v_empty[s], CONSUMERS);
    }
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared);
  }
}
