// Input tiles for the producers of gamma_wgmma/kernel.cuh, element by element: of channels and
// addresses that bulk tensor copies do not serve (fetch_boxes.cuh), where a copy that they do serve
// (pad_channels.cuh) does not pay or finds no room. Every thread copies what it transforms.
#pragma once

#include "place.cuh"
#include "tile_source.cuh"

struct Raw {
  Vector pixels[SLOTS][ALPHA][PRODUCERS];
  TileSource source[SLOTS][PRODUCERS];  // here to save registers
};

__device__ __forceinline__ void fetch_init(Raw&) {}
__device__ __forceinline__ void load(const GammaWgmmaParams&, Raw&) {}
constexpr bool HALVED = false;  // a thread reads what it copied
__device__ __forceinline__ int half_pair(int, int) { return 0; }
__device__ __forceinline__ int unit_tile(int warp, int lane) { return warp * 8 + lane / 2 % 8; }

// Where a producer thread reads: it walks over work tiles, outer taps and chunks ahead of the
// transforms.
struct Fetch {
  const Steps& steps;
  int index, step, chunk, fw, fh, fd;
  TileSource (&source)[SLOTS][PRODUCERS];
  Vector* const raw;  // the thread's, of every PRODUCERS-th
  TileSource coming;      // read early: it is there when the copies need it

  __device__ __forceinline__ Fetch(const GammaWgmmaParams& p, Raw& raw, const Steps& steps)
      : steps(steps), index(blockIdx.x / SPLIT_K), source(raw.source),
        raw(&raw.pixels[0][0][threadIdx.x - CONSUMERS]) {
    begin(p);
#pragma unroll
    for (int g = 0; g < SLOTS; ++g) {
      copy(p, g, from(g));
      copy_async_commit();
    }
    next(p);
  }

  __device__ __forceinline__ void pixels(int g, Loaded (&to)[ALPHA]) {
    copy_async_wait<SLOTS - 1>();
#pragma unroll
    for (int i = 0; i < ALPHA; ++i)
      to[i] = *reinterpret_cast<const Loaded*>(raw + (g * ALPHA + i) * PRODUCERS);
    coming = from(g);
  }
  __device__ __forceinline__ void pixels(int, Pair (&)[ALPHA]) {}

  // A slot has been read: the next stage's pixels may come.
  __device__ __forceinline__ void done(const GammaWgmmaParams& p, int g) const {
    copy(p, g, coming);
    copy_async_commit();
  }

  __device__ __forceinline__ void begin(const GammaWgmmaParams& p) {
    step = steps.begin;
    chunk = step % p.chunks;
    const int group = step / p.chunks, row = group / p.taps_width;
    fw = group % p.taps_width;
    fh = row % (p.taps_height / SHARE) * SHARE;
    fd = row / (p.taps_height / SHARE);
    tap(p);
  }

  __device__ __forceinline__ void tap(const GammaWgmmaParams& p) {
    const GammaWorkTile work(p, index);
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < SLOTS; ++g) {
      const int tile = g * 32 + unit_tile(warp, lane);
      TileSource at = source_of<TilePlace>(p, work, tile, fd, fh, fw, index < p.work_tiles);
      at.x += lane / 16 * 8 + lane % 2 * 4;
      source[g][threadIdx.x - CONSUMERS] = at;
    }
  }

  __device__ __forceinline__ void next(const GammaWgmmaParams& p) {
    if (++step == steps.end) {
      index += gridDim.x / SPLIT_K;
      begin(p);
    } else if (++chunk == p.chunks) {
      chunk = 0;
      if (++fw == p.taps_width) {
        fw = 0;
        if ((fh += SHARE) >= p.taps_height) {
          fh = 0;
          ++fd;
        }
      }
      tap(p);
    }
  }

  __device__ __forceinline__ TileSource from(int g) const {
    return source[g][threadIdx.x - CONSUMERS];
  }

  __device__ __forceinline__ void copy(const GammaWgmmaParams& p, int g, const TileSource& at) const {
    const int lane = threadIdx.x % 32, channel = chunk * KC;
    const int left = p.channels - channel - (lane / 16 * 8 + lane % 2 * 4);  // channels from here
    const unsigned mask = left > 0 ? at.inside : 0;
    const Element* from = at.x + channel;
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
      Vector* to = raw + (g * ALPHA + i) * PRODUCERS;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool element = mask >> i & 1 && c < left;
        const Element* one = element ? from + i * p.x_pixel + c : p.x;
        if constexpr (WIDE)
          copy_async<4>(&to->c[c], one, element);
        else
          to->c[c] = element ? __ldg(one) : Element(0);
      }
    }
  }
};
