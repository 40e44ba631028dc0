// Producers of kernel.cuh that copy columns into shared memory, AHEAD steps before they transform
// them.
//
// A warp copies what its own lanes read, 16 bytes a lane and four columns at once, so that no
// barrier is between: a lane waits for its own copies, and the warp for its lanes.
#pragma once

#include "columns.cuh"

constexpr int LANES_I = PAIRS_I < 32 ? PAIRS_I : 32, LANES_O = PAIRS_O < 32 ? PAIRS_O : 32;
constexpr int VECTOR_CHANNELS = 8;  // of a copy
static_assert(AHEAD <= TABLE && LANES_I >= 4 && LANES_O >= 4, "copies");

// Columns as they lie, behind WgradMmaShared. Two units of half a warp each lie in different banks.
struct Ring {
  unsigned short x[AHEAD][KC][ALPHA * BI + (LANES_I < 32 ? BI : 0)];
  unsigned short dy[AHEAD][KC][R * BO + (LANES_O < 32 ? BO : 0)];
};

// Starts copies of a unit's columns, of which a warp takes the channels of its LANES.
template <int COLUMNS, int ROW, int LANES>
__device__ __forceinline__ void copy_columns(unsigned short* to, const Element* from, int pixel,
                                             int jump, unsigned mask, int left, int channels) {
  constexpr int VECTORS = LANES * 2 / VECTOR_CHANNELS, AT_ONCE = LANES / VECTORS;
  const int lane = threadIdx.x % LANES, channel = lane % VECTORS * VECTOR_CHANNELS;
#pragma unroll
  for (int first = 0; first < COLUMNS; first += AT_ONCE) {
    const int i = first + lane / VECTORS;
    if (COLUMNS % AT_ONCE && i >= COLUMNS) break;
    const Element* at = from + i * pixel + channel;
    if (WRAP && i >= left) at += jump;
    copy_async<16>(to + i * ROW + channel, at, (mask >> i & 1) && channel < channels);
  }
}

template <int COLUMNS, int ROW>
__device__ __forceinline__ void read_columns(unsigned (&d)[COLUMNS], const unsigned short* from) {
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) d[i] = *reinterpret_cast<const unsigned*>(from + i * ROW);
}

__device__ __forceinline__ void produce(const Params& p, WgradMmaShared& shared) {
  constexpr int PENDING = AHEAD * (GROUPS_I + GROUPS_O) - 1;  // copies behind those waited for
  Ring& ring = *reinterpret_cast<Ring*>(&shared + 1);
  const int thread = threadIdx.x - CONSUMERS;
  const int in = thread % PAIRS_I * 2, out = thread % PAIRS_O * 2;
  const int unit_i = thread / PAIRS_I, unit_o = thread / PAIRS_O;
  const int part_i = in / (2 * LANES_I) * (2 * LANES_I), part_o = out / (2 * LANES_O) * (2 * LANES_O);
  int table = 0;
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const WorkTile work(p, index);
    const Units units(p, work);
    const int ins = p.channels - work.in - part_i, outs = p.out_channels - work.out - part_o;
    const int steps = work.steps();
    // As in produce.cuh; a step is described when its copies start.
    const auto describe = [&](int step) {
      table ^= PRODUCERS;
      shared.units[table + thread] = units.unit(work.begin + step * KC + thread);
      producers_sync<PRODUCERS>();
    };
    // For a step that is none nothing is copied, and yet a group is committed: they are counted.
    const auto copy_dy = [&](int g, int step, int slot) {
      if (step < steps) {
        const int unit = unit_o + g * APART_O;
        const Unit& u = shared.units[table + step % TABLE * KC + unit];
        copy_columns<R, BO, LANES_O>(ring.dy[slot][unit] + part_o, u.dy + part_o, u.dy_pixel,
                                     u.dy_jump, u.dy_mask, u.left, outs);
      }
      copy_async_commit();
    };
    const auto copy_x = [&](int g, int step, int slot) {
      if (step < steps) {
        const int unit = unit_i + g * APART_I;
        const Unit& u = shared.units[table + step % TABLE * KC + unit];
        copy_columns<ALPHA, BI, LANES_I>(ring.x[slot][unit] + part_i, u.x + part_i, u.x_pixel,
                                         u.x_jump, u.x_mask, u.left, ins);
      }
      copy_async_commit();
    };
    describe(0);
#pragma unroll 1
    for (int step = 0; step < AHEAD; ++step) {
#pragma unroll
      for (int g = 0; g < GROUPS_O; ++g) copy_dy(g, step, step);
#pragma unroll
      for (int g = 0; g < GROUPS_I; ++g) copy_x(g, step, step);
    }
    int slot = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int next = step + AHEAD;
      if (next % TABLE == 0 && next < steps) describe(next);
      barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
      unsigned short* v = shared.v[pipe.stage] + unit_o * ROW_O + out;
#pragma unroll
      for (int g = 0; g < GROUPS_O; ++g) {
        unsigned dy[R];
        copy_async_wait<PENDING>();
        __syncwarp();
        read_columns<R, BO>(dy, ring.dy[slot][unit_o + g * APART_O] + out);
        __syncwarp();  // every lane has read what the copies overwrite
        copy_dy(g, next, slot);
        store_states<false>(v + g * APART_O * ROW_O, dy);
      }
      unsigned short* u = shared.u[pipe.stage] + unit_i * ROW_I + in;
#pragma unroll
      for (int g = 0; g < GROUPS_I; ++g) {
        unsigned x[ALPHA];
        copy_async_wait<PENDING>();
        __syncwarp();
        read_columns<ALPHA, BI>(x, ring.x[slot][unit_i + g * APART_I] + in);
        __syncwarp();
        copy_x(g, next, slot);
        store_states<true>(u + g * APART_I * ROW_I, x);
      }
      barrier_arrive(&shared.full[pipe.stage]);
      pipe.advance();
      if (++slot == AHEAD) slot = 0;
    }
  }
}
