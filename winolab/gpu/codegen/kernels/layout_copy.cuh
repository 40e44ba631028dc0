// Copies an array into another memory order: elements of SIZE bytes as they are, whatever they mean.
//
// Two axes are walked in tiles: f, along which elements of the source are neighbours, and g, along
// which those of the target are. A block brings one tile of TILE_F × TILE_G elements into shared
// memory, LOADED neighbours along f at once, and stores it STORED neighbours along g at once. PLAIN:
// both are neighbours along f, and a thread stores what it loaded. The other axes, a to c, are the
// blocks'. Strides are in elements, and may be negative or, of the source, 0.
#pragma once

#include "either.cuh"

struct LayoutCopyParams {
  const unsigned char* source;
  unsigned char* target;
  long long source_f, source_g, source_a, source_b, source_c;
  long long target_f, target_g, target_a, target_b, target_c;
  int size_f, size_g, size_a, size_b;
  int tiles_f, tiles_g;
  int f_first;  // whether neighbouring blocks are neighbours along f
};

constexpr int COPY_THREADS = 256;
constexpr int LOADS = TILE_F * TILE_G / LOADED / COPY_THREADS;
constexpr int STORES = TILE_F * TILE_G / STORED / COPY_THREADS;
// of a row in shared memory: an odd number of words, so that neighbours along g are in other banks
constexpr int PITCH = TILE_F + 4 / SIZE;
static_assert(LOADS > 0 && STORES > 0 && TILE_F % LOADED == 0, "tile shape");
static_assert(PLAIN ? LOADED == STORED : TILE_G % STORED == 0, "tile shape");

using Element = Either<SIZE == 2, unsigned short, unsigned>::type;

// COUNT neighbouring elements as they lie.
template <int COUNT>
struct Neighbours {
  static constexpr int BYTES = COUNT * SIZE, WORDS = BYTES < 4 ? 1 : BYTES / 4;
  unsigned word[WORDS];

  __device__ __forceinline__ void load(const Element* from) {
    if constexpr (BYTES == 16) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(from));
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else if constexpr (BYTES == 8) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(from));
      word[0] = v.x, word[1] = v.y;
    } else if constexpr (BYTES == 4) {
      word[0] = __ldg(reinterpret_cast<const unsigned*>(from));
    } else {
      word[0] = __ldg(from);
    }
  }

  __device__ __forceinline__ void store(Element* to) const {
    if constexpr (BYTES == 16)
      *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    else if constexpr (BYTES == 8)
      *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    else if constexpr (BYTES == 4)
      *reinterpret_cast<unsigned*>(to) = word[0];
    else
      *to = (Element)word[0];
  }

  // To shared memory, which is aligned to words alone.
  __device__ __forceinline__ void stage(Element* to) const {
    if constexpr (BYTES < 4) {
      *to = (Element)word[0];
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; ++i) reinterpret_cast<unsigned*>(to)[i] = word[i];
    }
  }

  __device__ __forceinline__ unsigned get(int i) const {
    return SIZE == 4 ? word[i] : word[i / 2] >> i % 2 * 16 & 0xffffu;
  }

  __device__ __forceinline__ void set(int i, unsigned value) {
    if (SIZE == 4 || COUNT == 1)
      word[i] = value;
    else
      word[i / 2] = i % 2 ? word[i / 2] | value << 16 : value;
  }
};

// Where one of a thread's loads or stores is in a tile.
struct InTile {
  int f, g;

  static __device__ __forceinline__ InTile of_load(int i) {
    const int at = i * COPY_THREADS + threadIdx.x;
    return {at % (TILE_F / LOADED) * LOADED, at / (TILE_F / LOADED)};
  }
  static __device__ __forceinline__ InTile of_store(int i) {
    if (PLAIN) return of_load(i);
    const int at = i * COPY_THREADS + threadIdx.x;
    return {at / (TILE_G / STORED), at % (TILE_G / STORED) * STORED};
  }
};

// A block's tile.
struct Tile {
  int f, g, a, b, c;

  __device__ __forceinline__ explicit Tile(const LayoutCopyParams& p) {
    int rest = blockIdx.x;
    if (p.f_first) {
      f = rest % p.tiles_f, rest /= p.tiles_f;
      g = rest % p.tiles_g, rest /= p.tiles_g;
    } else {
      g = rest % p.tiles_g, rest /= p.tiles_g;
      f = rest % p.tiles_f, rest /= p.tiles_f;
    }
    f *= TILE_F, g *= TILE_G;
    a = rest % p.size_a, rest /= p.size_a;
    b = rest % p.size_b, c = rest / p.size_b;
  }

  __device__ __forceinline__ bool has(const LayoutCopyParams& p, const InTile& at) const {
    return f + at.f < p.size_f && g + at.g < p.size_g;
  }
};

extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    winolab_layout_copy(const __grid_constant__ LayoutCopyParams p) {
  const Tile tile(p);
  const Element* source = reinterpret_cast<const Element*>(p.source) + tile.f * p.source_f +
                          tile.g * p.source_g + tile.a * p.source_a + tile.b * p.source_b +
                          tile.c * p.source_c;
  Element* target = reinterpret_cast<Element*>(p.target) + tile.f * p.target_f +
                    tile.g * p.target_g + tile.a * p.target_a + tile.b * p.target_b +
                    tile.c * p.target_c;
  Neighbours<LOADED> held[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const InTile at = InTile::of_load(i);
    if (tile.has(p, at)) held[i].load(source + at.f * p.source_f + at.g * p.source_g);
  }
  if constexpr (PLAIN) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const InTile at = InTile::of_store(i);
      if (tile.has(p, at)) held[i].store(target + at.f * p.target_f + at.g * p.target_g);
    }
  } else {
    __shared__ __align__(16) Element staged[TILE_G][PITCH];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const InTile at = InTile::of_load(i);
      held[i].stage(&staged[at.g][at.f]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STORES; ++i) {
      const InTile at = InTile::of_store(i);
      if (!tile.has(p, at)) continue;
      Neighbours<STORED> out;
#pragma unroll
      for (int n = 0; n < STORED; ++n) out.set(n, staged[at.g + n][at.f]);
      out.store(target + at.f * p.target_f + at.g * p.target_g);
    }
  }
}
