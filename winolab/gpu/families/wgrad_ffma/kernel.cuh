// Fused Ωα(n, r) on FFMA units, the filter gradient: dw = AT Σ (BT x ⊙ G dy) over units.
//
// A unit is R columns of one row of dy and the columns of x that N taps meet there, INPUTS. A block
// computes BI input × BO output channels of N taps of one filter row, over one segment's units, a
// work tile. Blocks are persistent: producers run ahead into the next work tile while consumers
// finish the last.
//
// Roles, by warp:
//   consumers   outer products out of shared memory, each warp some of the states, then AT;
//               CONSUMER_THREADS of them: 256, or a warp a state with moduli beyond points
//   producers   load columns of x and dy, apply BT and G and write U and V
//
// With STATE_BLOCKS = 2 a cluster of two blocks does the work of one: each transforms and
// multiplies half of the states, so that a block has room for twice the channels, and applies AT to
// half of the results, reading the other's states.
//
// Barriers: who arrives → who waits
//   full[stage]    every producer → consumers
//   empty[stage]   every consumer → producers
//   met            every consumer of both blocks (STATE_BLOCKS = 2) → the same
//   named 1, 2     consumers, twice a pass of the epilogue; producers, when units are described
#pragma once

#include "elements.cuh"
#include "ffma.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"
#include SEGMENTS_FILE
#include "split_k.cuh"

constexpr int CONSUMERS = CONSUMER_THREADS, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS;
constexpr int WARPS = CONSUMERS / 32;
constexpr int HELD = ALPHA / STATE_BLOCKS;                        // states of a block
constexpr int STATES = HELD > WARPS ? HELD / WARPS : 1;    // states of a warp
constexpr int SHARERS = HELD < WARPS ? WARPS / HELD : 1;   // warps of a state
constexpr int TI = BI / 8, TO = BO / SHARERS / 4;           // input × output channels of a lane
constexpr int LANES_I = BI / CI, LANES_O = BO / CO;         // producer threads of a unit
constexpr int GROUPS_I = KC * LANES_I / PRODUCERS, GROUPS_O = KC * LANES_O / PRODUCERS;
constexpr int TABLE = PRODUCERS / KC;  // steps whose units are described at once
constexpr int ROW = BI / PASSES;       // input channels staged in a pass
static_assert(KC * LANES_I % PRODUCERS == 0 && KC * LANES_O % PRODUCERS == 0, "producer shape");
static_assert(PRODUCERS % LANES_I == 0 && PRODUCERS % LANES_O == 0, "producer shape");
static_assert(TI % (4 * PASSES) == 0 && TO % 4 == 0, "tile shape");

struct WgradFfmaShared {
  float u[STAGES][HELD * KC * BI];  // [state][unit][input channel]
  float v[STAGES][HELD * KC * BO];  // [state][unit][output channel]
  float out[HELD * BO * ROW];       // [state][output channel][input channel, permuted]
  Unit units[2 * PRODUCERS];
  unsigned long long full[STAGES], empty[STAGES], met;
};

// C channels of one column.
template <int C>
__device__ __forceinline__ void load(float (&d)[C], const float* from) {
  if constexpr (VECTOR && C == 4) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(from));
    d[0] = v.x, d[1] = v.y, d[2] = v.z, d[3] = v.w;
  } else if constexpr (VECTOR && C == 2) {
    const float2 v = __ldg(reinterpret_cast<const float2*>(from));
    d[0] = v.x, d[1] = v.y;
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c) d[c] = __ldg(from + c);
  }
}

// C channels of one column, of which ``channels`` exist; zeros elsewhere.
template <int C>
__device__ __forceinline__ void load_some(float (&d)[C], const float* from, int channels) {
#pragma unroll
  for (int c = 0; c < C; ++c) d[c] = 0.0f;
  if constexpr (VECTOR) {
    if (channels > 0) load<C>(d, from);
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (c < channels) d[c] = __ldg(from + c);
  }
}

template <int C>
__device__ __forceinline__ void store(float* to, const float (&d)[C]) {
  if constexpr (C == 4)
    *reinterpret_cast<float4*>(to) = make_float4(d[0], d[1], d[2], d[3]);
  else if constexpr (C == 2)
    *reinterpret_cast<float2*>(to) = make_float2(d[0], d[1]);
  else
    *to = d[0];
}

// The columns of a unit, of x or of dy. Most units lie inside their rows and need no masks; a warp
// takes one of the two ways as a whole.
template <int COLUMNS, int C>
__device__ __forceinline__ void load_tile(float (&d)[COLUMNS][C], const float* from, int pixel,
                                          int jump, unsigned mask, int left, int channels) {
  const bool whole = mask == (1u << COLUMNS) - 1 && (!WRAP || COLUMNS <= left) && channels >= C;
  if (__all_sync(~0u, whole)) {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) load<C>(d[i], from + i * pixel);
    return;
  }
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) {
    load_some<C>(d[i], from, mask >> i & 1 ? channels : 0);
    from += pixel + (WRAP && i + 1 == left ? jump : 0);
  }
}

template <int PART, bool X, int COLUMNS>
__device__ __forceinline__ void transform(const float (&column)[COLUMNS], float (&state)[HELD]) {
  if constexpr (X && PART == 0)
    transform_input(column, state);
  else if constexpr (X)
    transform_input_1(column, state);
  else if constexpr (PART == 0)
    transform_filter(column, state);
  else
    transform_filter_1(column, state);
}

template <int PART, bool X, int COLUMNS, int C>
__device__ __forceinline__ void store_tile(float* to, const float (&d)[COLUMNS][C]) {
  float states[HELD][C];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    float column[COLUMNS], state[HELD];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) column[i] = d[i][c];
    transform<PART, X>(column, state);
#pragma unroll
    for (int s = 0; s < HELD; ++s) states[s][c] = state[s];
  }
#pragma unroll
  for (int s = 0; s < HELD; ++s) store<C>(to + s * KC * (X ? BI : BO), states[s]);
}

// Loads of the next step are in flight while this one's columns are transformed.
template <int PART>
__device__ __forceinline__ void produce(const Params& p, WgradFfmaShared& shared) {
  const int thread = threadIdx.x - CONSUMERS;
  const int in = thread % LANES_I * CI, out = thread % LANES_O * CO;
  const int unit_i = thread / LANES_I, unit_o = thread / LANES_O;
  constexpr int APART_I = PRODUCERS / LANES_I, APART_O = PRODUCERS / LANES_O;
  int table = 0;
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x / STATE_BLOCKS; index < p.work_tiles; index += gridDim.x / STATE_BLOCKS) {
    const WorkTile work(p, index);
    const Units units(p, work);
    const int channels = p.channels - work.in - in, outs = p.out_channels - work.out - out;
    const int steps = work.steps();
    float x[GROUPS_I][INPUTS][CI], dy[GROUPS_O][R][CO];
    // The units of TABLE steps are described at once, one by each thread; threads that are behind
    // still read the table before.
    const auto describe = [&](int step) {
      table ^= PRODUCERS;
      shared.units[table + thread] = units.unit(work.begin + step * KC + thread);
      producers_sync<PRODUCERS>();
    };
    const auto load_dy = [&](int g, int step) {
      const Unit& u = shared.units[table + step % TABLE * KC + unit_o + g * APART_O];
      load_tile(dy[g], u.dy + out, u.dy_pixel, u.dy_jump, u.dy_mask, u.left, outs);
    };
    const auto load_x = [&](int g, int step) {
      const Unit& u = shared.units[table + step % TABLE * KC + unit_i + g * APART_I];
      load_tile(x[g], u.x + in, u.x_pixel, u.x_jump, u.x_mask, u.left, channels);
    };
    describe(0);
#pragma unroll
    for (int g = 0; g < GROUPS_O; ++g) load_dy(g, 0);
#pragma unroll
    for (int g = 0; g < GROUPS_I; ++g) load_x(g, 0);
#pragma unroll 1
    for (int step = 1; step <= steps; ++step) {
      if (step % TABLE == 0) describe(step);
      barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
      float* v = shared.v[pipe.stage] + out;
#pragma unroll
      for (int g = 0; g < GROUPS_O; ++g) {
        store_tile<PART, false>(v + (unit_o + g * APART_O) * BO, dy[g]);
        load_dy(g, step);
      }
      float* u = shared.u[pipe.stage] + in;
#pragma unroll
      for (int g = 0; g < GROUPS_I; ++g) {
        store_tile<PART, true>(u + (unit_i + g * APART_I) * BI, x[g]);
        if (g == GROUPS_I - 1) barrier_arrive(&shared.full[pipe.stage]);
        load_x(g, step);
      }
      pipe.advance();
    }
  }
}

// All consumers of a cluster.
__device__ __forceinline__ void meet(WgradFfmaShared& shared, unsigned& phase) {
  if constexpr (STATE_BLOCKS == 1) {
    consumers_sync<CONSUMERS>();
  } else {
    for (int block = 0; block < STATE_BLOCKS; ++block)
      barrier_release_cluster(cluster_pointer(&shared.met, block));
    barrier_acquire_cluster(&shared.met, phase);
    phase ^= 1;
  }
}

// The output transform: staged by output channel, so that a warp stores rows of input channels.
// Accumulators are staged one float at a time and rotated, for the reasons in mainloop.cuh.
__device__ __forceinline__ void finish(const Params& p, WgradFfmaShared& shared,
                                       const float (&acc)[STATES][TO][TI], const WorkTile& work,
                                       int state0, int out0, bool add, unsigned& phase) {
  const int rank = STATE_BLOCKS > 1 ? cluster_rank() : 0;
  const int li = threadIdx.x % 8, lo = threadIdx.x / 8 % 4;
  const bool first = work.segment == 0;
  const int row_size = p.taps_width * p.channels, outer = p.taps_depth * p.taps_height;
  const long long size = (long long)outer * row_size;  // of an output channel
  const long long by_out = first ? p.dw_out : size, by_tap = first ? p.dw_tap : p.channels;
  const long long by_in = first ? p.dw_in : 1;
  float* dw = first ? p.dw + work.tap_depth * p.dw_depth + work.tap_height * p.dw_row
                    : p.buckets + (work.segment - 1) * (size * p.out_channels * p.groups) +
                          (work.tap_depth * p.taps_height + work.tap_height) * row_size;
  dw += (work.group * p.out_channels + work.out) * by_out + work.in * by_in +
        work.tap_width * by_tap;
  const int taps = min(N, p.taps_width - work.tap_width);
  const int ins = p.channels - work.in, outs = p.out_channels - work.out;
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    meet(shared, phase);
#pragma unroll
    for (int s = 0; s < STATES; ++s)
#pragma unroll
      for (int j = 0; j < TO; ++j) {
        float* row = shared.out +
                     ((state0 + s) * BO + out0 + j / 4 * 16 + lo * 4 + j % 4) * ROW + li;
#pragma unroll
        for (int i = 0; i < TI / PASSES; ++i)
          row[i / 4 * 32 + ((i + LANE_TURN) % 4) * 8] = acc[s][j][pass * (TI / PASSES) + i];
      }
    meet(shared, phase);
#pragma unroll 1
    for (int e = rank * CONSUMERS + threadIdx.x; e < BO * ROW / 2; e += CONSUMERS * STATE_BLOCKS) {
      const int pair = e % (ROW / 2), out = e / (ROW / 2);
      const int half = pair / 8 % 2 * 2;  // of the four floats that a lane staged
      const int in = pass * ROW + pair / 16 * 32 + pair % 8 * 4 + half;
      const float* staged[STATE_BLOCKS];  // of each block
#pragma unroll
      for (int b = 0; b < STATE_BLOCKS; ++b) {
        staged[b] = shared.out + out * ROW + pair / 16 * 32 + pair % 8;
        if constexpr (STATE_BLOCKS > 1) staged[b] = cluster_pointer(staged[b], b);
      }
      const int at_even = (half + ROW_TURN) % 4 * 8, at_odd = (half + 1 + ROW_TURN) % 4 * 8;
      float even[ALPHA], odd[ALPHA], y_even[N], y_odd[N];
#pragma unroll
      for (int s = 0; s < ALPHA; ++s) {
        even[s] = staged[s / HELD][s % HELD * BO * ROW + at_even];
        odd[s] = staged[s / HELD][s % HELD * BO * ROW + at_odd];
      }
      transform_output(even, y_even);
      transform_output(odd, y_odd);
      float* to = dw + out * by_out + in * by_in;
      const int written = out < outs && in < ins ? taps : 0;
#pragma unroll
      for (int o = 0; o < N; ++o) {
        if (o < written) {
          float* at = to + o * by_tap;
          if constexpr (DWVEC == 2) {
            float2 y = make_float2(y_even[o], y_odd[o]);
            if (add) {
              const float2 old = *reinterpret_cast<const float2*>(at);
              y = make_float2(__fadd_rn(y.x, old.x), __fadd_rn(y.y, old.y));
            }
            *reinterpret_cast<float2*>(at) = y;
          } else {
            *at = add ? __fadd_rn(*at, y_even[o]) : y_even[o];
            if (in + 1 < ins) at[by_in] = add ? __fadd_rn(at[by_in], y_odd[o]) : y_odd[o];
          }
        }
      }
    }
  }
}

__device__ __forceinline__ void load_fragments(float (&a)[TI], float (&b)[TO], const float* u,
                                               const float* v) {
#pragma unroll
  for (int i = 0; i < TI; i += 4)
    *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(u + i * 8);
#pragma unroll
  for (int j = 0; j < TO; j += 4)
    *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(v + j * 4);
}

__device__ __forceinline__ void consume(const Params& p, WgradFfmaShared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, li = lane % 8, lo = lane / 8;
  const int state0 = warp / SHARERS * STATES, out0 = warp % SHARERS * (BO / SHARERS);
  Pipe<STAGES> pipe;
  unsigned met = 0;
  for (int index = blockIdx.x / STATE_BLOCKS; index < p.work_tiles; index += gridDim.x / STATE_BLOCKS) {
    const WorkTile work(p, index);
    int step = 0;
    const int steps = work.steps();
    do {
      const int first = step, last = min(steps, step + p.fold);
      float acc[STATES][TO][TI];
#pragma unroll
      for (int s = 0; s < STATES; ++s)
#pragma unroll
        for (int j = 0; j < TO; ++j)
#pragma unroll
          for (int i = 0; i < TI; ++i) acc[s][j][i] = 0.0f;
#pragma unroll 1
      for (; step < last; ++step) {
        barrier_wait(&shared.full[pipe.stage], pipe.phase);
        const float* u = shared.u[pipe.stage] + state0 * KC * BI + li * 4;
        const float* v = shared.v[pipe.stage] + state0 * KC * BO + out0 + lo * 4;
        float a[2][TI], b[2][TO];
        load_fragments(a[0], b[0], u, v);
#pragma unroll
        for (int q = 0; q < KC * STATES; ++q) {
          const int next = q + 1, s = q % STATES, at = next % STATES * KC + next / STATES;
          if (next < KC * STATES)
            load_fragments(a[next % 2], b[next % 2], u + at * BI, v + at * BO);
          add_outer_product(acc[s], a[q % 2], b[q % 2]);
        }
        barrier_arrive(&shared.empty[pipe.stage]);
        pipe.advance();
      }
      finish(p, shared, acc, work, state0, out0, first > 0, met);
    } while (step < steps);
  }
}

extern "C" __global__ void
#if __CUDA_ARCH__ >= 900  // before, there are no clusters, and STATE_BLOCKS is 1
    __cluster_dims__(STATE_BLOCKS, 1, 1)
#endif
        __launch_bounds__(THREADS, 1)
    winolab_wgrad_ffma(const __grid_constant__ Params p) {
  if (!wanted(p.wanted)) return;
  extern __shared__ __align__(128) unsigned char memory[];
  WgradFfmaShared& shared = *reinterpret_cast<WgradFfmaShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], CONSUMERS);
    }
    barrier_init(&shared.met, CONSUMERS * STATE_BLOCKS);
    if constexpr (STATE_BLOCKS > 1) barriers_ready();
  }
  if constexpr (STATE_BLOCKS > 1) cluster_sync();
  __syncthreads();
  if (threadIdx.x < CONSUMERS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    if (STATE_BLOCKS == 1 || cluster_rank() == 0)
      produce<0>(p, shared);
    else
      produce<STATE_BLOCKS - 1>(p, shared);
  }
  if constexpr (STATE_BLOCKS > 1) cluster_sync();  // the other block may still read this one's states
}
