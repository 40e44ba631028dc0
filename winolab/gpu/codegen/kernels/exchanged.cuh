// Accumulators of wgmma as vectors of 16 bytes.
#pragma once

// Four lanes have two channels each of four times eight: lane q gets all eight of the q-th.
__device__ __forceinline__ uint4 exchanged(unsigned (&v)[4], int lane) {
  const auto swap = [&](unsigned& low, unsigned& high, int by) {
    const bool upper = lane & by;
    const unsigned got = __shfl_xor_sync(0xffffffffu, upper ? low : high, by);
    low = upper ? got : low, high = upper ? high : got;
  };
  swap(v[0], v[1], 1), swap(v[2], v[3], 1);
  swap(v[0], v[2], 2), swap(v[1], v[3], 2);
  return make_uint4(v[0], v[1], v[2], v[3]);
}
