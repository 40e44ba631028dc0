// Copies an array into another memory order: elements of SIZE bytes as they are, whatever they mean.
//
// Two axes are walked in tiles: f, along which elements of the source are neighbours, and g, along
// which those of the target are. A block brings TILE_F × TILE_G elements into shared memory, LOADED
// neighbours along f at once, and stores STORED neighbours along g at once. The other axes, a to c,
// are the blocks'. Strides are in elements, and may be negative or, of the source, 0.
//
// UNALIGNED_F, UNALIGNED_G: rows along f of the source, along g of the target, begin anywhere. Their
// accesses are aligned all the same: a row is read from before its first element on, staged as many
// columns to the right, and stored by the vectors of the target that begin in the tile; so a tile
// owns fewer columns or rows than it reads. Vectors across an end of a row go element by element.
//
// MERGED_F, MERGED_G: a tile has all of the axis, and its rows follow each other without a gap; they
// are read, or stored, as one.
//
// PLAIN: both arrays' neighbours are along f, and a thread stores what it loaded.
//
// EPILOGUE: elements are y's, and what follows its sums is applied on the way, where kernels that
// sum could not; bias and residual have strides of their own, 0 where they are the same along an
// axis. Source and target may then be the same array.
#pragma once

#include "either.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"

struct LayoutFinishParams {
  const unsigned char* bias;
  const unsigned char* residual;
  long long bias_f, bias_g, bias_a, bias_b, bias_c;
  long long residual_f, residual_g, residual_a, residual_b, residual_c;
  float slope;
};
#endif

struct LayoutCopyParams {
  const unsigned char* source;
  unsigned char* target;
  long long source_f, source_g, source_a, source_b, source_c;
  long long target_f, target_g, target_a, target_b, target_c;
  int size_f, size_g, size_a, size_b;
  int tiles_f, tiles_g;
  int f_first;                   // whether neighbouring blocks are neighbours along f
  unsigned inverse_f, inverse_g;  // 2^31 over the sizes, rounded up, where axes are merged
#ifdef EPILOGUE
  LayoutFinishParams finish;
#endif
};

constexpr int COPY_THREADS = 256;
constexpr int LOADS = TILE_F * TILE_G / LOADED / COPY_THREADS + MERGED_F;
constexpr int STORES = TILE_F * TILE_G / STORED / COPY_THREADS + MERGED_G;
constexpr bool LATE_F = UNALIGNED_F && !MERGED_F, LATE_G = UNALIGNED_G && !MERGED_G;
constexpr int OWN_F = TILE_F - (LATE_F ? LOADED : 0), OWN_G = TILE_G - (LATE_G ? STORED : 0);
constexpr int BEFORE = TILE_G - OWN_G;  // rows that a tile reads before its own
// of a row in shared memory: an odd number of words, so that neighbours along g are in other banks
constexpr int PITCH = TILE_F + 4 / SIZE;
static_assert(LOADS > MERGED_F && STORES > MERGED_G, "tile shape");
static_assert(!PLAIN || LOADED == STORED, "what is loaded is stored");
static_assert((MERGED_F || TILE_F % LOADED == 0) && (PLAIN || MERGED_G || TILE_G % STORED == 0),
              "tile shape");

using Element = Either<SIZE == 2, unsigned short, unsigned>::type;

// By way of the cache of what nobody writes, but where that may be the target.
template <class T>
__device__ __forceinline__ T read(const T* from) {
  if constexpr (PLAIN)
    return *from;
  else
    return __ldg(from);
}

// COUNT neighbouring elements as they lie.
template <int COUNT>
struct Neighbours {
  static constexpr int BYTES = COUNT * SIZE, WORDS = BYTES < 4 ? 1 : BYTES / 4;
  unsigned word[WORDS];

  __device__ __forceinline__ void load(const Element* from) {
    if constexpr (BYTES == 16) {
      const uint4 v = read(reinterpret_cast<const uint4*>(from));
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else if constexpr (BYTES == 8) {
      const uint2 v = read(reinterpret_cast<const uint2*>(from));
      word[0] = v.x, word[1] = v.y;
    } else if constexpr (BYTES == 4) {
      word[0] = read(reinterpret_cast<const unsigned*>(from));
    } else {
      word[0] = read(from);
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

  // Those whose numbers, from ``first`` on, are at least 0 and less than ``size``.
  __device__ __forceinline__ void load(const Element* from, long long first, long long size) {
    if (first >= 0 && first + COUNT <= size) {
      load(from);
    } else {
#pragma unroll
      for (int n = 0; n < COUNT; ++n)
        set(n, first + n >= 0 && first + n < size ? read(from + n) : 0);
    }
  }
  __device__ __forceinline__ void store(Element* to, long long first, long long size) const {
    if (first >= 0 && first + COUNT <= size) {
      store(to);
    } else {
#pragma unroll
      for (int n = 0; n < COUNT; ++n)
        if (first + n >= 0 && first + n < size) to[n] = (Element)get(n);
    }
  }

  // To shared memory, which is aligned to words alone.
  __device__ __forceinline__ void stage(Element* to) const {
    if constexpr (BYTES < 4) {
      store(to);
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

// Elements from the last one before an address that is aligned to COUNT of them.
template <int COUNT>
__device__ __forceinline__ unsigned beyond(const Element* address) {
  return (unsigned)(reinterpret_cast<unsigned long long>(address) / SIZE) & (COUNT - 1);
}

__device__ __forceinline__ int quotient(int value, unsigned inverse) {
  return (int)((unsigned long long)value * inverse >> 31);
}

// A block's tile: where it begins along f and g, and which image it is of.
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
    f *= OWN_F, g *= OWN_G;
    a = rest % p.size_a, rest /= p.size_a;
    b = rest % p.size_b, c = rest / p.size_b;
  }
};

#ifdef EPILOGUE
// An element of y behind its epilogue; f and g from the tile's beginning on.
__device__ __forceinline__ unsigned behind(const LayoutCopyParams& p, const Tile& tile, int f, int g,
                                           unsigned raw) {
  f += tile.f, g += tile.g;
  if (f >= p.size_f || g < 0 || g >= p.size_g) return raw;
  const LayoutFinishParams& e = p.finish;
  float bias = 0.0f, residual = 0.0f;
  if constexpr (BIAS)
    bias = widened(__ldg(reinterpret_cast<const EpilogueElement*>(e.bias) + f * e.bias_f + g * e.bias_g +
                         tile.a * e.bias_a + tile.b * e.bias_b + tile.c * e.bias_c));
  if constexpr (RESIDUAL)
    residual = widened(reinterpret_cast<const EpilogueElement*>(
        e.residual)[f * e.residual_f + g * e.residual_g + tile.a * e.residual_a +
                    tile.b * e.residual_b + tile.c * e.residual_c]);
  if constexpr (FINISHED == 0)
    return __float_as_uint(finished(__uint_as_float(raw), bias, residual, e.slope));
  else
    return pack<FINISHED == 2>(
               finished(widened((unsigned short)raw), bias, residual, e.slope), 0.0f) & 0xffffu;
}
#else
__device__ __forceinline__ unsigned behind(const LayoutCopyParams&, const Tile&, int, int,
                                           unsigned raw) {
  return raw;
}
#endif

// The tile in shared memory.
struct Staged {
  Element* elements;
  unsigned begin, step;  // LATE_F: beyond() of the first row, and what each next one adds

  __device__ __forceinline__ Element* at(int row, int column) const {
    return elements + row * PITCH + column;
  }

  // Element (f, g) of those that it owns.
  __device__ __forceinline__ unsigned get(int f, int g) const {
    const int row = g + BEFORE;
    return *at(row, f + (LATE_F ? (begin + row * step) % LOADED : 0));
  }
};

__device__ __forceinline__ void bring(const LayoutCopyParams& p, const Tile& tile,
                                      const Element* source, const Staged& staged) {
  Neighbours<LOADED> held[LOADS];
  const int first = tile.g - BEFORE;  // row
  if constexpr (MERGED_F) {
    const long long begin = (long long)first * p.size_f, all = (long long)p.size_g * p.size_f;
    const Element* run = source + begin;
    const int late = beyond<LOADED>(run), count = TILE_G * p.size_f;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = (i * COPY_THREADS + threadIdx.x) * LOADED - late;
      if (at < count) held[i].load(run + at, begin + at, all);
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = (i * COPY_THREADS + threadIdx.x) * LOADED - late;
#pragma unroll
      for (int n = 0; n < LOADED; ++n) {
        if (at + n < 0 || at + n >= count) continue;
        const int row = quotient(at + n, p.inverse_f);
        *staged.at(row, at + n - row * p.size_f) = (Element)held[i].get(n);
      }
    }
  } else {
    constexpr int SLOTS = TILE_F / LOADED;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = i * COPY_THREADS + threadIdx.x, row = at / SLOTS, g = first + row;
      if (g < 0 || g >= p.size_g) continue;
      const Element* from = source + g * p.source_g + tile.f * p.source_f;
      const int f = at % SLOTS * LOADED - (LATE_F ? beyond<LOADED>(from) : 0);
      if (LATE_F)
        held[i].load(from + f, tile.f + f, p.size_f);
      else if (tile.f + f < p.size_f)
        held[i].load(from + (LOADED > 1 ? f : f * p.source_f));
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = i * COPY_THREADS + threadIdx.x;
      held[i].stage(staged.at(at / SLOTS, at % SLOTS * LOADED));
    }
  }
}

__device__ __forceinline__ void put(const LayoutCopyParams& p, const Tile& tile, Element* target,
                                    const Staged& staged) {
  Neighbours<STORED> out;
  if constexpr (MERGED_G) {
    Element* run = target + (long long)tile.f * p.size_g;
    const int late = beyond<STORED>(run), count = min(OWN_F, p.size_f - tile.f) * p.size_g;
#pragma unroll
    for (int i = 0; i < STORES; ++i) {
      const int at = (i * COPY_THREADS + threadIdx.x) * STORED - late;
      if (at >= count) continue;
#pragma unroll
      for (int n = 0; n < STORED; ++n) {
        const int one = max(0, min(at + n, count - 1)), f = quotient(one, p.inverse_g);
        const int g = one - f * p.size_g;
        out.set(n, behind(p, tile, f, g, staged.get(f, g)));
      }
      out.store(run + at, at, count);
    }
  } else {
    constexpr int SLOTS = TILE_G / STORED;
#pragma unroll
    for (int i = 0; i < STORES; ++i) {
      const int at = i * COPY_THREADS + threadIdx.x, f = at / SLOTS, slot = at % SLOTS * STORED;
      if (f >= OWN_F || tile.f + f >= p.size_f || slot >= OWN_G) continue;
      Element* to = target + (tile.f + f) * p.target_f + tile.g * p.target_g;
      const int g = slot - (LATE_G ? beyond<STORED>(to) : 0);
      if (tile.g + g >= p.size_g) continue;
#pragma unroll
      for (int n = 0; n < STORED; ++n)
        out.set(n, behind(p, tile, f, g + n, staged.get(f, g + n)));
      if (LATE_G)
        out.store(to + g, tile.g + g, p.size_g);
      else
        out.store(to + (STORED > 1 ? g : g * p.target_g));
    }
  }
}

extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    winolab_layout_copy(const __grid_constant__ LayoutCopyParams p) {
  const Tile tile(p);
  const Element* source = reinterpret_cast<const Element*>(p.source) + tile.a * p.source_a +
                          tile.b * p.source_b + tile.c * p.source_c;
  Element* target = reinterpret_cast<Element*>(p.target) + tile.a * p.target_a +
                    tile.b * p.target_b + tile.c * p.target_c;
  if constexpr (PLAIN) {
    constexpr int SLOTS = TILE_F / LOADED;
    Neighbours<LOADED> held[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = i * COPY_THREADS + threadIdx.x;
      const int f = tile.f + at % SLOTS * LOADED, g = tile.g + at / SLOTS;
      if (f < p.size_f && g < p.size_g) held[i].load(source + f * p.source_f + g * p.source_g);
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int at = i * COPY_THREADS + threadIdx.x;
      const int f = at % SLOTS * LOADED, g = at / SLOTS;
      if (tile.f + f >= p.size_f || tile.g + g >= p.size_g) continue;
      Neighbours<LOADED> out;
#pragma unroll
      for (int n = 0; n < LOADED; ++n) out.set(n, behind(p, tile, f + n, g, held[i].get(n)));
      out.store(target + (tile.f + f) * p.target_f + (tile.g + g) * p.target_g);
    }
  } else {
    __shared__ __align__(16) Element elements[TILE_G * PITCH];
    const Element* first = source + tile.f * p.source_f + (tile.g - BEFORE) * p.source_g;
    const Staged staged{elements, beyond<LOADED>(first), (unsigned)p.source_g};
    bring(p, tile, source, staged);
    __syncthreads();
    put(p, tile, target, staged);
  }
}
