// gamma_filter_scaled.cuh's transform by clusters, of compute capability 9.0.
#pragma once

#include "gamma_filter_scaled.cuh"

extern "C" __global__ void __cluster_dims__(FILTER_CLUSTER, 1, 1) __launch_bounds__(FILTER_MOST)
    winolab_gamma_filter_cluster(const __grid_constant__ ScaledParams params) {
  filter_rows<true>(params);
}
