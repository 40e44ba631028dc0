// Sums of which several blocks had a share each: p.shares of them in p.buckets, [share][element].
#pragma once

// Adds up the shares of ELEMENTS of the ``size`` a block: each of ADDERS threads adds up every
// ADDERS-th share of one, and the first of them these sums in order: ``store(element, sum)``.
template <int ELEMENTS, int ADDERS, class Params, class Store>
__device__ __forceinline__ void add_shares(const Params& p, long long size, Store store) {
  __shared__ float slices[ADDERS][ELEMENTS];
  const int mine = threadIdx.x % ELEMENTS, slice = threadIdx.x / ELEMENTS;
  const long long element = (long long)blockIdx.x * ELEMENTS + mine;
  float sum = 0.0f;
  if (element < size)
#pragma unroll 8
    for (int share = slice; share < p.shares; share += ADDERS)
      sum = __fadd_rn(sum, __ldcg(p.buckets + share * size + element));
  slices[slice][mine] = sum;
  __syncthreads();
  if (slice || element >= size) return;
  sum = 0.0f;
  for (int s = 0; s < ADDERS; ++s) sum = __fadd_rn(sum, slices[s][mine]);
  store(element, sum);
}
