// The entry of Γ on FFMA units: mainloop.cuh by itself.
#pragma once

#include "mainloop.cuh"

extern "C" __global__ void
#if __CUDA_ARCH__ >= 900  // before, there are no clusters, and SPLIT_K is 1
    __cluster_dims__(SPLIT_K, 1, 1)
#endif
        __launch_bounds__(THREADS, 1)
    winolab_gamma_ffma(const __grid_constant__ GammaFfmaParams p) {
  // Never taken: a way out that depends on memory kept kernels of three roles from spilling. Without
  // it none of 157 units of two roles spills more (ptxas 12.9); it goes when rows are measured anew.
  if (p.work_tiles == 0 && *reinterpret_cast<const volatile float*>(p.u) == 0.0f) return;
  gamma(p);
}
