// The entry of Γ on FFMA units: mainloop.cuh by itself.
#pragma once

#include "mainloop.cuh"

extern "C" __global__ void
#if __CUDA_ARCH__ >= 900  // before, there are no clusters, and SPLIT_K is 1
    __cluster_dims__(SPLIT_K, 1, 1)
#endif
        __launch_bounds__(THREADS, 1)
    winolab_gamma_ffma(const __grid_constant__ GammaFfmaParams p) {
  // Never taken. Without a way out that depends on memory, 10 of 21 kernels with finishers spill (ptxas
  // 12.9): parameters are read, and kept, before threads take their roles.
  if (p.work_tiles == 0 && *reinterpret_cast<const volatile float*>(p.u) == 0.0f) return;
  gamma(p);
}
