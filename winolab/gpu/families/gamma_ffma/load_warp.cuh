// The load warp of a Γ kernel, behind the producers that make V: it starts the copies of U. Where
// producers have several tiles a stage, one that starts copies too does so late (produce.cuh).
#pragma once

#include "produce.cuh"

static_assert(BULK || !LOAD_WARP, "a load warp's copies are bulk copies");

__device__ __forceinline__ void load_filters(const GammaFfmaParams& p, GammaFfmaShared& shared) {
  const bool issues = threadIdx.x % 32 == 0;
  Pipe<U_STAGES> u_pipe;
  launch_before_done();  // it makes U
  for (TileScheduler scheduler(p); scheduler.left(p); scheduler.next(p)) {
    const Steps steps(p, scheduler.sharers);
    const PartialSums sums(steps, scheduler.sharers);
    const int block_m = GammaWorkTile(p, scheduler.index).block_m;
    const float* u = p.u + ((long long)block_m * steps.all + steps.begin) * (SHARE * U_SIZE);
    for (int sum = 0; sum < sums.count; ++sum) {
      if (issues) {
        for (int stage = SHARE * sums.at(sum); stage < SHARE * sums.at(sum + 1); ++stage) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          copy_stage(shared.u[u_pipe.stage], u, &shared.u_full[u_pipe.stage]);
          u_pipe.advance();
        }
      }
      __syncwarp();
      for (int pass = 0; pass < PASSES; ++pass) meet(scheduler.sharers);
    }
  }
}
