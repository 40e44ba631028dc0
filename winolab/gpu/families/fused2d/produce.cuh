// The producers of the fused kernel: input tiles through BT into V, and U, by bulk copies or, FUSED, by
// transforming the filter.
#pragma once

#include "filter.cuh"

// The pixels of a tile that are ``inside``, two channels or tiles each, of which ``left`` channels are.
__device__ __forceinline__ void load_pixels(float (&d)[STATES][2], const Fused2dParams& p,
                                            const Element* x, unsigned inside, int left) {
#ifdef LEFT_OUT
  if constexpr ((LEFT_OUT & LOADS) != 0) {  // what is no number that a compiler knows
#pragma unroll
    for (int s = 0; s < STATES; ++s) d[s][0] = d[s][1] = __int_as_float(left + s);
    return;
  }
#endif
  if (left <= 0) inside = 0;
#pragma unroll
  for (int i = 0; i < ALPHA; ++i)
#pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
      const Element* at = x + i * p.x_row + j * p.x_pixel;
      const bool there = inside >> (i * ALPHA + j) & 1;
      float(&pixel)[2] = d[i * ALPHA + j];
      if constexpr (XVEC == 2) {
        pixel[0] = pixel[1] = 0.0f;
        if (there) load_two(at, pixel);
      } else {
        pixel[0] = there ? load_one(at) : 0.0f;
        pixel[1] = there && left > 1 ? load_one(at + p.x_channel) : 0.0f;
      }
    }
}

// The states of one channel and tile, of a producer's two.
__device__ __forceinline__ void transform_pixels(const float (&d)[STATES][2], int which,
                                                 float (&state)[STATES]) {
#ifdef LEFT_OUT
  if constexpr ((LEFT_OUT & INPUT_TRANSFORM) != 0) {
#pragma unroll
    for (int s = 0; s < STATES; ++s) state[s] = d[s][which];
    return;
  }
#endif
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

// GRADIENT: an element of the sum, a tile of dy: its image, and its first row and column there.
struct FusedTerm {
  int image, row, column;
  bool there;
  __device__ __forceinline__ FusedTerm(const Fused2dParams& p, int index) {
    there = index < p.channels;
    column = index % p.tiles_width * R, index /= p.tiles_width;
    row = index % p.tiles_height * R, image = index / p.tiles_height;
  }
};

// A stage's filters, transformed by a team; GRADIENT: its tiles of dy.
__device__ __forceinline__ void make_filters(float* to, const Fused2dParams& p, int m0, int c0,
                                             int thread) {
  const bool along_m = p.m_stride == 1;
#pragma unroll 2
  for (int at = thread; at < BM * KC; at += TEAM) {
    const int m = along_m ? at % BM : at / KC, c = along_m ? at / BM : at % KC;
    const bool inside = m0 + m < p.out_channels && c0 + c < p.channels;
    const Element* w = static_cast<const Element*>(p.u) + (m0 + m) * p.m_stride;
    int rows = R, columns = R;
    if constexpr (GRADIENT) {
      const FusedTerm term(p, c0 + c);
      w += term.image * p.c_stride + term.row * p.row_stride + term.column * p.width_stride;
      rows = p.out_height - term.row, columns = p.out_width - term.column;
    } else {
      w += (c0 + c) * p.c_stride;
    }
    float tap[R * R], state[STATES];
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j)
        tap[i * R + j] = inside && i < rows && j < columns
                             ? load_one(w + i * p.row_stride + j * p.width_stride)
                             : 0.0f;
    transform_taps(tap, state);
#pragma unroll
    for (int s = 0; s < STATES; ++s) to[(s * KC + c) * U_STRIDE + m] = state[s];
  }
}

// Says where a tile's outputs lie, to those who store them.
__device__ __forceinline__ void locate(const Fused2dParams& p, FusedPlace& place,
                                       const FusedWorkTile& work, const FusedTile& at, int tile,
                                       int part) {
  place.first = work.block_m * BM;
  if constexpr (GRADIENT) {
    const int column = work.tiles * BT + tile;
    place.offset[tile] = part * p.part + column * p.y_batch;
    place.outputs[tile] = column < p.columns ? (1 << OUTPUTS) - 1 : 0;
    return;
  }
  place.offset[tile] =
      part * p.part + at.image * p.y_batch + at.row * N * p.y_row + at.column * N * p.y_pixel;
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
    const FusedPart part(p, index);
    const FusedTile at(p, work.tiles, tile);
    const Element* x = p.x;
    unsigned inside = 0;
    int left, term = part.begin * KC + first;  // GRADIENT: an element of the sum
    // The pixels of x that a tile has from ``h`` and ``w`` on.
    const auto pixels = [&](int image, int h, int w, bool there) {
      inside = 0;
#pragma unroll
      for (int i = 0; i < ALPHA; ++i)
#pragma unroll
        for (int j = 0; j < ALPHA; ++j)
          inside |= (unsigned)(there && (unsigned)(h + i) < (unsigned)p.height &&
                               (unsigned)(w + j) < (unsigned)p.width)
                    << (i * ALPHA + j);
      return p.x + image * p.x_batch + h * p.x_row + w * p.x_pixel;
    };
    if constexpr (GRADIENT) {
      left = p.columns - work.tiles * BT - tile;
    } else {
      left = p.channels - term;
      x = pixels(at.image, at.row * N - p.pad_height, at.column * N - p.pad_width, at.there) +
          term * p.x_channel;
    }
    [[maybe_unused]] const float* u =
        static_cast<const float*>(p.u) +
        ((long long)work.block_m * p.chunks + part.begin) * (STATES * KC * BM);
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
    const auto skip = [&] {
      if constexpr (GRADIENT)
        term += KC;
      else
        x += KC * p.x_channel, left -= KC;
    };
    const auto load = [&](float(&d)[STATES][2]) {
      if constexpr (GRADIENT) {
        const FusedTerm of(p, term);
        x = pixels(of.image, of.row - p.pad_height, of.column - p.pad_width, of.there) +
            (work.tiles * BT + tile) * p.x_channel;
      }
      load_pixels(d, p, x, inside, left);
      skip();
    };
    const auto make = [&](int chunk, const float(&d)[STATES][2]) {
      if constexpr (FUSED) {
        barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
        make_filters(shared.u[u_pipe.stage], p, work.block_m * BM, chunk * KC, thread);
        barrier_arrive(&shared.u_full[u_pipe.stage]);
      }
      barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);
      if (chunk == part.begin && first == 0) {
        FusedPlace& to = shared.place[place.stage];
        locate(p, to, work, at, tile, part.part);
        if constexpr (PAIRED) locate(p, to, work, at.next_image(), tile + 1, part.part);
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
      for (int chunk = part.begin; chunk < part.end; chunk += 2) {
        step(chunk, d[0], d[1]);
        if (chunk + 1 < part.end) step(chunk + 1, d[1], d[0]);
      }
    } else {
#pragma unroll 1
      for (int chunk = part.begin; chunk < part.end; ++chunk) {
        if (!FUSED && team == 0) copy_filters();
        if (TEAMS == 1 || team == turn) {
          float d[STATES][2];
          load(d);
          make(chunk, d);
        } else {
          skip();
        }
        if constexpr (TEAMS > 1) turn = turn + 1 == TEAMS ? 0 : turn + 1;
        advance();
      }
    }
    place.advance();
  }
}
