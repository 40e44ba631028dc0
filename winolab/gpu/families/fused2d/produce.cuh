// The producers of the fused kernel: input tiles through BT into V, and U, by bulk copies or, FUSED, by
// transforming the filter.
#pragma once

#include "filter.cuh"

// The pixels of a tile that are ``inside``, two channels or tiles each, of which ``left`` channels are.
__device__ __forceinline__ void load_pixels(float (&d)[STATES][2], const Fused2dParams& p,
                                            const float* x, unsigned inside, int left) {
  if (left <= 0) inside = 0;
#pragma unroll
  for (int i = 0; i < ALPHA; ++i)
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
      const float* at = x + i * p.x_row + j * p.x_pixel;
      const bool there = inside >> (i * ALPHA + j) & 1;
      float(&pixel)[2] = d[i * ALPHA + j];
      if constexpr (XVEC == 2) {
        float2 v = make_float2(0.0f, 0.0f);
        if (there) v = __ldg(reinterpret_cast<const float2*>(at));
        pixel[0] = v.x, pixel[1] = v.y;
      } else {
        pixel[0] = there ? __ldg(at) : 0.0f;
        pixel[1] = there && left > 1 ? __ldg(at + p.x_channel) : 0.0f;
      }
    }
}

// The states of one channel and tile, of a producer's two.
__device__ __forceinline__ void transform_pixels(const float (&d)[STATES][2], int which,
                                                 float (&state)[STATES]) {
  float half[ALPHA][ALPHA];  // [column][state], transformed along the height
#pragma unroll
  for (int j = 0; j < ALPHA; ++j) {
    float column[ALPHA];
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) column[i] = d[i * ALPHA + j][which];
    transform_input(column, half[j]);
  }
#pragma unroll
  for (int i = 0; i < ALPHA; ++i) {
    float row[ALPHA], states[ALPHA];
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) row[j] = half[j][i];
    transform_input(row, states);
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) state[i * ALPHA + j] = states[j];
  }
}

// A producer's two, transformed, to a stage of V.
__device__ __forceinline__ void store_states(float* v, const float (&d)[STATES][2]) {
  float state[2][STATES];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    transform_pixels(d, c, state[c]);
    if constexpr (!PAIRED) {
#pragma unroll
      for (int s = 0; s < STATES; ++s) v[(s * KC + c) * V_STRIDE] = state[c][s];
    }
  }
  if constexpr (PAIRED) {
#pragma unroll
    for (int s = 0; s < STATES; ++s)
      *reinterpret_cast<float2*>(v + s * KC * V_STRIDE) = make_float2(state[0][s], state[1][s]);
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

// Says where a tile's outputs lie, to those who store them.
__device__ __forceinline__ void locate(const Fused2dParams& p, FusedPlace& place,
                                       const FusedWorkTile& work, const FusedTile& at, int tile) {
  place.first = work.block_m * BM;
  place.offset[tile] = at.image * p.y_batch + at.row * N * p.y_row + at.column * N * p.y_pixel;
  unsigned found = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
      found |= (unsigned)(at.there && at.row * N + i < p.out_height && at.column * N + j < p.out_width)
               << (i * N + j);
  place.outputs[tile] = (int)found;
}

__device__ __forceinline__ void produce(const Fused2dParams& p, Fused2dShared& shared) {
  const int thread = (threadIdx.x - CONSUMERS) % TEAM, team = (threadIdx.x - CONSUMERS) / TEAM;
  // A warp's lanes are along whichever is contiguous: channels, or tiles.
  const int tile = PAIRED ? thread % (BT / 2) * 2 : ALONG_TILES ? thread % BT : thread / (KC / 2);
  const int first = PAIRED ? thread / (BT / 2) : (ALONG_TILES ? thread / BT : thread % (KC / 2)) * 2;
  Pipe<V_STAGES> pipe;
  Pipe<U_STAGES> u_pipe;
  Pipe<PLACES> place;
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
    // U is copied before V is made: consumers are done with a stage of U before they are with one of V.
    const auto copy_filters = [&] {
      if (thread == ISSUER) {
        if (!filtered) launch_before_done();
        filtered = true;
        barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
        barrier_arrive_expect(&shared.u_full[u_pipe.stage], U_SIZE * 4);
        bulk_copy(shared.u[u_pipe.stage], u, U_SIZE * 4, &shared.u_full[u_pipe.stage]);
        u += U_SIZE;
      }
      __syncwarp();
    };
    int left = p.channels - first;
    const auto load = [&](float(&d)[STATES][2]) {
      load_pixels(d, p, x, inside, left);
      x += KC * p.x_channel, left -= KC;
    };
    const auto make = [&](int chunk, const float(&d)[STATES][2]) {
      if constexpr (FUSED) {
        barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
        make_filters(shared.u[u_pipe.stage], p, work.block_m * BM, chunk * KC, thread);
        barrier_arrive(&shared.u_full[u_pipe.stage]);
      }
      barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
      if (chunk == 0 && first == 0) {
        locate(p, shared.place[place.stage], work, at, tile);
        if constexpr (PAIRED) locate(p, shared.place[place.stage], work, at.next_image(), tile + 1);
      }
      store_states(shared.v[pipe.stage] + first * V_STRIDE + tile, d);
      barrier_arrive(&shared.v_full[pipe.stage]);
    };
    const auto advance = [&] { pipe.advance(), u_pipe.advance(); };
    if constexpr (AHEAD) {
      float d[2][STATES][2];
      const auto step = [&](int chunk, const float(&now)[STATES][2], float(&next)[STATES][2]) {
        if constexpr (!FUSED) copy_filters();
        load(next);
        make(chunk, now);
        advance();
      };
      load(d[0]);
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; chunk += 2) {
        step(chunk, d[0], d[1]);
        if (chunk + 1 < p.chunks) step(chunk + 1, d[1], d[0]);
      }
    } else {
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        if (!FUSED && team == 0) copy_filters();
        if (TEAMS == 1 || team == turn) {
          float d[STATES][2];
          load(d);
          make(chunk, d);
        } else {
          x += KC * p.x_channel, left -= KC;
        }
        if constexpr (TEAMS > 1) turn = turn + 1 == TEAMS ? 0 : turn + 1;
        advance();
      }
    }
    place.advance();
  }
}
