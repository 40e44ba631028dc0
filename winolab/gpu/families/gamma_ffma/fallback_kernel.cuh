// What follows the products of split data, in one launch that ends at once where no flag asks for more:
// whether suspects were right and results of 0 hide numbers that vanished (scale.cuh), and if so or if
// accuracy was lost, the fallback's filter and the fallback, behind whose unit this stands. (A launch
// that ends at once takes 1.1 µs; these were three.)
#pragma once

#include "ffma.cuh"
#include "filter.cuh"
#include "mainloop.cuh"

struct FallbackParams {
  split::ScaleParams scan;
  GammaFfmaFilterParams filter;
  GammaFfmaParams gamma;
  int filters_m, filters_c, taps;  // blocks of the filter's transform; 0: it is done
  int before;                      // such launches of the call, of groups
};

// U as bulk copies, which are of another proxy, will read it.
__device__ __forceinline__ void stored_for_copies() {
  __threadfence();
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

struct Room {  // in what becomes a GammaFfmaShared: some have no byte of shared memory besides
  StagedTaps taps;
  int ticket;
};

// All units of work, work(unit) by whichever block takes the unit's ticket; returns when all are done.
// Blocks need not run at the same time: who waits has found no ticket left, so that each unit is of a
// block that runs. ``before``: how often as many blocks have done as many units.
template <class Task>
__device__ __forceinline__ void together(split::Tickets& tickets, int units, int before, Room& room,
                                         Task task) {
  int& ticket = room.ticket;
  while (true) {
    if (threadIdx.x == 0)
      ticket = atomicAdd(&tickets.taken, 1) - before * (units + (int)gridDim.x);
    __syncthreads();
    const int unit = ticket;
    if (unit >= units) break;
    task(unit);
    stored_for_copies();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&tickets.done, 1);
  }
  if (threadIdx.x == 0)
    while (atomicAdd(&tickets.done, 0) < (before + 1) * units) continue;
  __syncthreads();
  stored_for_copies();
}

// Whether suspects are right. Every block decides by itself, and none waits: one that comes so late
// that it reads outputs which the fallback has written over finds the flag, which was set before
// that.
__device__ __forceinline__ bool confirmed(split::Header& header, Room& room) {
  int& found = room.ticket;
  int& flag = header.flags[split::CONFIRMED];
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (split::confirmed(&header, threadIdx.x, THREADS)) atomicMax(&found, 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (found)
      flag = 1;
    else
      found = atomicAdd(&flag, 0);
    __threadfence();
  }
  __syncthreads();
  const bool is = found;
  __syncthreads();  // the room serves others
  return is;
}

extern "C" __global__ void
#if __CUDA_ARCH__ >= 900
    __cluster_dims__(SPLIT_K, 1, 1)
#endif
        __launch_bounds__(THREADS, 1)
    winolab_gamma_ffma_fallback(const __grid_constant__ FallbackParams p) {
  launch_before_done();
  split::Header& header = *p.scan.header;
  // Nothing that this launch writes: all its threads shall read the same.
  bool lost = header.flags[split::LOST];
  const bool zero = header.flags[split::ZERO];
  const int suspects = header.suspects;
  if (!lost && !zero && !suspects) return;
  extern __shared__ __align__(128) unsigned char memory[];
  static_assert(THREADS >= 32 * FILTER_ROWS && sizeof(GammaFfmaShared) >= sizeof(Room), "room");
  Room& room = *reinterpret_cast<Room*>(memory);
  if (!lost && suspects) {
    lost = confirmed(header, room);
    if (!lost && !zero) return;
  }
  if (!lost) {
    if (p.before == 0)
      together(header.scans, gridDim.x, 0, room,
               [&](int unit) { split::scan(p.scan, unit, gridDim.x); });
    if (!atomicAdd(&header.flags[split::TINY], 0)) return;
  }
  if (p.taps)
    together(header.filters, p.filters_m * p.filters_c * p.taps, p.before, room, [&](int unit) {
      const int rest = unit / p.filters_m;
      transform_taps(p.filter, room.taps, unit % p.filters_m * FILTER_M,
                     rest % p.filters_c * FILTER_C, rest / p.filters_c);
    });
  reads_done();  // of what copies will overwrite
  __syncthreads();
  gamma(p.gamma);
}
