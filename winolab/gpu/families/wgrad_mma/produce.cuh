// Producers of kernel.cuh that load columns into registers, a step before they transform them.
#pragma once

#include "columns.cuh"

// Loads of the next step are in flight while this one's columns are transformed.
__device__ __forceinline__ void produce(const Params& p, WgradMmaShared& shared) {
  const int thread = threadIdx.x - CONSUMERS;
  const int in = thread % PAIRS_I * 2, out = thread % PAIRS_O * 2;
  const int unit_i = thread / PAIRS_I, unit_o = thread / PAIRS_O;
  int table = 0;
  Pipe<STAGES> pipe;
  for (int index = blockIdx.x; index < p.work_tiles; index += gridDim.x) {
    const WorkTile work(p, index);
    const Units units(p, work);
    const int ins = p.channels - work.in - in, outs = p.out_channels - work.out - out;
    const int steps = work.steps();
    unsigned x[GROUPS_I][ALPHA], dy[GROUPS_O][R];
    // The units of TABLE steps are described at once, one by each thread; threads that are behind
    // still read the table before.
    const auto describe = [&](int step) {
      table ^= PRODUCERS;
      shared.units[table + thread] = units.unit(work.begin + step * KC + thread);
      producers_sync<PRODUCERS>();
    };
    const auto load_dy = [&](int g, int step) {
      const Unit& u = shared.units[table + step % TABLE * KC + unit_o + g * APART_O];
      load_columns(dy[g], u.dy + out, u.dy_pixel, u.dy_jump, u.dy_mask, u.left, outs);
    };
    const auto load_x = [&](int g, int step) {
      const Unit& u = shared.units[table + step % TABLE * KC + unit_i + g * APART_I];
      load_columns(x[g], u.x + in, u.x_pixel, u.x_jump, u.x_mask, u.left, ins);
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
      unsigned short* v = shared.v[pipe.stage] + unit_o * ROW_O + out;
#pragma unroll
      for (int g = 0; g < GROUPS_O; ++g) {
        store_states<false>(v + g * APART_O * ROW_O, dy[g]);
        load_dy(g, step);
      }
      unsigned short* u = shared.u[pipe.stage] + unit_i * ROW_I + in;
#pragma unroll
      for (int g = 0; g < GROUPS_I; ++g) {
        store_states<true>(u + g * APART_I * ROW_I, x[g]);
        if (g == GROUPS_I - 1) barrier_arrive(&shared.full[pipe.stage]);
        load_x(g, step);
      }
      pipe.advance();
    }
  }
}
