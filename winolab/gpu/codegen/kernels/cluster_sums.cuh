// Sums of a block of products in shared memory, and those of the blocks of a cluster, which have a part
// of the steps each: each block adds up an equal share of the rows of all parts, which the others copy
// to it, in the order of the parts.
#pragma once

#include "cluster_copy.cuh"

// ROWS × COLUMNS sums of PARTS blocks.
template <int ROWS, int COLUMNS, int PARTS>
struct ClusterSums {
  static constexpr int PITCH = COLUMNS + 8;  // floats: four rows of pairs lie in different banks
  static constexpr int SHARE = (ROWS + PARTS - 1) / PARTS;  // rows that a block adds up, at most
  float others[PARTS > 1 ? PARTS - 1 : 1][PARTS > 1 ? SHARE * PITCH : 4];  // those of other parts

  // Rows that the block of that part adds up.
  static __device__ __forceinline__ int rows(int part) { return min(SHARE, ROWS - part * SHARE); }
  // Bytes that others copy to it.
  static __device__ __forceinline__ int brought(int part) { return 4 * PITCH * (PARTS - 1) * rows(part); }

  // Copies rows of this block's ``sums`` to the blocks that add them up, a thread each, and counts them
  // off on their barriers.
  __device__ __forceinline__ void bring(int part, const float* sums, unsigned long long* barrier) {
    if ((int)threadIdx.x >= PARTS - 1) return;
    const int to = (part + 1 + (int)threadIdx.x) % PARTS;
    bulk_copy_to(others[part - (part > to)], sums + to * SHARE * PITCH, 4 * PITCH * rows(to), barrier, to);
  }

  // Four neighbouring sums of all parts, of a row of this block's share.
  __device__ __forceinline__ float4 added(int part, const float* sums, int row, int column) const {
    const int at = row * PITCH + column;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int of = 0; of < PARTS; ++of) {
      const float* const from = of == part ? sums + part * SHARE * PITCH : others[of - (of > part)];
      const float4 more = *reinterpret_cast<const float4*>(from + at);
      sum.x = __fadd_rn(sum.x, more.x), sum.y = __fadd_rn(sum.y, more.y);
      sum.z = __fadd_rn(sum.z, more.z), sum.w = __fadd_rn(sum.w, more.w);
    }
    return sum;
  }

  // A thread's sums of HELD times 64 rows, as wgmma leaves them, to shared memory, where ``own`` is its
  // first row and column; or to what a warpgroup of other steps has there.
  template <bool ADDED, int HELD>
  static __device__ __forceinline__ void leave(const float (&acc)[HELD][COLUMNS / 2], float* own) {
#pragma unroll
    for (int i = 0; i < HELD; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS / 2; j += 2) {
        float2* const to =
            reinterpret_cast<float2*>(own + (i * 64 + j / 2 % 2 * 8) * PITCH + j / 4 * 8);
        const float2 before = ADDED ? *to : make_float2(0.0f, 0.0f);
        *to = make_float2(__fadd_rn(acc[i][j], before.x), __fadd_rn(acc[i][j + 1], before.y));
      }
  }
};
