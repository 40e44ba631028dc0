// V channels of a pixel, read at once: 16 bytes, or one element.
#pragma once

#include "elements.cuh"

constexpr int WORDS = V * sizeof(Element) / 4;  // of a vector of 16 bytes

// V channels as they lie.
struct Channels {
  unsigned word[WORDS > 0 ? WORDS : 1];
};

__device__ __forceinline__ float channel(const Channels& raw, int v) {
  if constexpr (INPUT == 0) return __uint_as_float(raw.word[v]);
  float low, high;
  unpack<INPUT == 2>(raw.word[v / 2], low, high);
  return v % 2 ? high : low;
}

__device__ __forceinline__ Channels read(const Element* from, bool there, bool vector) {
  Channels raw;
#pragma unroll
  for (int i = 0; i < (WORDS > 0 ? WORDS : 1); ++i) raw.word[i] = 0;
  if constexpr (V > 1) {
    if (there && vector) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
      raw.word[0] = four.x, raw.word[1] = four.y, raw.word[2] = four.z, raw.word[3] = four.w;
    }
  }
  if (there && (V == 1 || !vector)) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if constexpr (INPUT == 0)
        raw.word[v] = __float_as_uint(__ldg(from + v));
      else
        raw.word[v / 2] |= (unsigned)__ldg(from + v) << v % 2 * 16;
    }
  }
  return raw;
}
