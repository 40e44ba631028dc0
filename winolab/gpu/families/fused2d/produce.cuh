// The producers of the fused kernel: input tiles through BT into V, and U, by bulk copies or, FUSED, by
// transforming the filter.
#pragma once

#include "filter.cuh"

// The pixels of a tile, CPT channels each: of those ``inside``, which ``left`` channels have.
__device__ __forceinline__ void load_pixels(float (&d)[STATES][CPT], const Fused2dParams& p,
                                            const float* x, unsigned inside, int left) {
  if (left <= 0) inside = 0;
#pragma unroll
  for (int i = 0; i < ALPHA; ++i)
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
      const float* at = x + i * p.x_row + j * p.x_pixel;
      const bool there = inside >> (i * ALPHA + j) & 1;
      float(&pixel)[CPT] = d[i * ALPHA + j];
      if constexpr (XVEC == 2) {
        float2 v = make_float2(0.0f, 0.0f);
        if (there) v = __ldg(reinterpret_cast<const float2*>(at));
        pixel[0] = v.x, pixel[1] = v.y;
      } else {
#pragma unroll
        for (int c = 0; c < CPT; ++c)
          pixel[c] = there && (c == 0 || c < left) ? __ldg(at + c * p.x_channel) : 0.0f;
      }
    }
}

// One channel of a tile, transformed, to a stage of V.
__device__ __forceinline__ void store_states(float* v, const float (&d)[STATES][CPT], int c) {
  float half[ALPHA][ALPHA];  // [column][state], transformed along the height
#pragma unroll
  for (int j = 0; j < ALPHA; ++j) {
    float column[ALPHA];
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) column[i] = d[i * ALPHA + j][c];
    transform_input(column, half[j]);
  }
#pragma unroll
  for (int i = 0; i < ALPHA; ++i) {
    float row[ALPHA], states[ALPHA];
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) row[j] = half[j][i];
    transform_input(row, states);
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) v[((i * ALPHA + j) * KC + c) * V_STRIDE] = states[j];
  }
}

// A stage's filters, transformed by a team.
__device__ __forceinline__ void make_filters(float* to, const Fused2dParams& p, int m0, int c0,
                                             int thread) {
  const bool along_m = p.m_stride == 1;
#pragma unroll 2
  for (int at = thread; at < BM * KC; at += TEAM) {
    const int m = along_m ? at % BM : at / KC, c = along_m ? at / BM : at % KC;
    const bool inside = m0 + m < p.out_channels && c0 + c < p.channels;
    const float* w = p.u + (m0 + m) * p.m_stride + (c0 + c) * p.c_stride;
    float tap[R * R], state[STATES];
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j)
        tap[i * R + j] = inside ? __ldg(w + i * p.row_stride + j * p.width_stride) : 0.0f;
    transform_taps(tap, state);
#pragma unroll
    for (int s = 0; s < STATES; ++s) to[(s * KC + c) * U_STRIDE + m] = state[s];
  }
}

__device__ __forceinline__ void produce(const Fused2dParams& p, Fused2dShared& shared) {
  const int thread = (threadIdx.x - CONSUMERS) % TEAM, team = (threadIdx.x - CONSUMERS) / TEAM;
  // A warp's lanes are along whichever is contiguous: channels, or tiles.
  const int tile = ALONG_TILES ? thread % BT : thread / (KC / CPT);
  const int first = (ALONG_TILES ? thread / BT : thread % (KC / CPT)) * CPT;
  Pipe<V_STAGES> pipe;
  Pipe<U_STAGES> u_pipe;
  bool filtered = false;  // whether U is there, which the launch before this one makes
  int turn = 0;           // the team whose stage is next
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const FusedWorkTile work(p, index);
    const FusedTile at(p, work.tiles, tile);
    const int h = at.row * N - p.pad_height, w = at.column * N - p.pad_width;
    unsigned inside = 0;
#pragma unroll
    for (int i = 0; i < ALPHA; ++i)
#pragma unroll
      for (int j = 0; j < ALPHA; ++j)
        inside |= (unsigned)(at.there && (unsigned)(h + i) < (unsigned)p.height &&
                             (unsigned)(w + j) < (unsigned)p.width)
                  << (i * ALPHA + j);
    const float* x = p.x + at.image * p.x_batch + h * p.x_row + w * p.x_pixel + first * p.x_channel;
    [[maybe_unused]] const float* u = p.u + (long long)work.block_m * p.chunks * (STATES * KC * BM);
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      // Copied before V is made: consumers are done with a stage of U before they are with one of V.
      if (!FUSED && team == 0) {
        if (thread == ISSUER) {
          if (!filtered) launch_before_done();
          filtered = true;
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          barrier_arrive_expect(&shared.u_full[u_pipe.stage], U_SIZE * 4);
          bulk_copy(shared.u[u_pipe.stage], u, U_SIZE * 4, &shared.u_full[u_pipe.stage]);
          u += U_SIZE;
        }
        __syncwarp();
      }
      if (TEAMS == 1 || team == turn) {
        float d[STATES][CPT];
        load_pixels(d, p, x, inside, p.channels - chunk * KC - first);
        if constexpr (FUSED) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          make_filters(shared.u[u_pipe.stage], p, work.block_m * BM, chunk * KC, thread);
          barrier_arrive(&shared.u_full[u_pipe.stage]);
        }
        barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
        float* v = shared.v[pipe.stage] + first * V_STRIDE + tile;
#pragma unroll
        for (int c = 0; c < CPT; ++c) store_states(v, d, c);
        barrier_arrive(&shared.v_full[pipe.stage]);
      }
      if constexpr (TEAMS > 1) turn = turn + 1 == TEAMS ? 0 : turn + 1;
      x += KC * p.x_channel;
      u_pipe.advance();
      pipe.advance();
    }
  }
}
