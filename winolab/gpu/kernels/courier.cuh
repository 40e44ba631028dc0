// The copies of U of a Γ kernel by a warp of their own, behind the producers that make V: where these
// have several tiles a stage, one that copies too does so late (produce.cuh).

static_assert(BULK, "a courier's copies are bulk copies");

__device__ __forceinline__ void courier(const Params& p, Shared& shared) {
  const bool issues = threadIdx.x % 32 == 0;
  Pipe<U_STAGES> u_pipe;
  launch_before_done();  // it makes U
  for (Work work(p); work.left(p); work.next(p)) {
    const Steps steps(p, work.parts);
    const Sums sums(steps, work.parts);
#ifdef COMPACT
    const int outputs = Item(p, work.index).block_m * BN;
    int u = steps.begin * (SHARE * ALPHA * KC);  // row of the tensor map
#else
    const float* u = p.u + ((long long)Item(p, work.index).block_m * steps.all + steps.begin) *
                               (SHARE * U_SIZE);
#endif
    for (int sum = 0; sum < sums.count; ++sum) {
      if (issues) {
        for (int stage = SHARE * sums.at(sum); stage < SHARE * sums.at(sum + 1); ++stage) {
          barrier_wait(&shared.u_empty[u_pipe.stage], u_pipe.phase ^ 1);
          barrier_arrive_expect(&shared.u_full[u_pipe.stage], U_SIZE * 4);
#ifdef COMPACT
          box_copy(shared.u[u_pipe.stage], p.u_map, outputs, u, 0, 0, 0,
                   &shared.u_full[u_pipe.stage]);
          u += ALPHA * KC;
#else
          bulk_copy(shared.u[u_pipe.stage], u, U_SIZE * 4, &shared.u_full[u_pipe.stage]);
          u += U_SIZE;
#endif
          u_pipe.advance();
        }
      }
      __syncwarp();
      for (int pass = 0; pass < PASSES; ++pass) meet(work.parts);
    }
  }
}
