// Input tiles for the producers of gamma_wgmma/kernel.cuh by bulk tensor copies: boxes of RUN
// neighbouring tiles of a row, of IMAGES images and of BOX_ROWS rows, 64 bytes of channels a pixel,
// zeros outside x. A slot holds a unit of 8 tiles of every producer warp (UNIT_*,
// boxes.py: such that nothing conflicts); once all of them have read it, a warp of its
// own orders the boxes of the next stage in it. Requests of 64 bytes a pixel, whatever the
// elements: smaller ones bind.
#pragma once

#include "place.cuh"

constexpr int BOX_CHANNELS = 64 / (int)sizeof(Element);
constexpr int REUSE = BOX_CHANNELS / KC;                  // stages that boxes serve
constexpr int BOX_SIZE = IMAGES * BOX_ROWS * BOX_PIXELS * 64;
constexpr int ACROSS = SLOT_COLUMNS / BOX_TILES;  // boxes of a slot's row
// Rows and boxes of a stage's last slot, which has fewer where tiles do not fill it.
constexpr int LAST_ROWS = (V_TILES % 32 ? V_TILES % 32 : 32) / SLOT_COLUMNS;
constexpr int LAST_BOXES = (LAST_ROWS + BOX_ROWS - 1) / BOX_ROWS * ACROSS;
constexpr int OUTSIDE = 1 << 30;  // an image that is none
static_assert(BOXES <= 32, "a lane a box");
static_assert(PACKED == 0 || COLUMNS <= 32, "the same columns in every slot");

struct Raw {
  // [half][box][image][row][pixel][channel], swizzled: from 1024 bytes on
  alignas(128) unsigned char slot[SLOTS][SLOT_SIZE];
  unsigned long long full[SLOTS], empty[SLOTS];
};

__device__ __forceinline__ void fetch_init(Raw& raw) {
#pragma unroll
  for (int g = 0; g < SLOTS; ++g) {
    barrier_init(&raw.full[g], 1);
    barrier_init(&raw.empty[g], PRODUCERS);
  }
}

// Stages that boxes of so many left serve, from that chunk on.
__device__ __forceinline__ int serves(const GammaWgmmaParams& p, int chunk, int more) {
  return REUSE == 1 ? 1 : min(min(REUSE - chunk % REUSE, p.chunks - chunk), more);
}

// Every warp transforms half of a last slot of two units, two channels a lane: which of its four,
// such that lanes hit different banks.
constexpr bool HALVED = V_TILES % 32 == 16;
__device__ __forceinline__ int half_pair(int warp, int lane) {
  return (warp / 2 ^ lane / 16 ^ lane) & 1;
}

// A producer lane's tile of a slot, counted along its rows.
__device__ __forceinline__ int unit_tile(int warp, int lane) {
  const long long low = warp % 2 ? UNIT_1 : UNIT_0, high = warp % 2 ? UNIT_3 : UNIT_2;
  return (int)((warp / 2 ? high : low) >> lane / 2 % 8 * 8) & 0xff;
}

// By one warp: orders boxes ahead of the transforms, over work tiles, outer taps and channels.
struct Loader {
  const Steps& steps;
  int index, more, fw, fh;  // of the boxes that are ordered next; stages of the work tile from them on
  int c, w, h, d, n;        // where a lane's box begins

  __device__ __forceinline__ Loader(const GammaWgmmaParams& p, const Steps& steps)
      : steps(steps), index(blockIdx.x / SPLIT_K) {
    begin(p);
  }

  // The first tile column of a lane's box.
  __device__ __forceinline__ int column(const GammaWgmmaParams& p, int g) const {
    return work_at(p, index).column + g * 32 % COLUMNS + threadIdx.x % ACROSS * BOX_TILES;
  }

  __device__ __forceinline__ void begin(const GammaWgmmaParams& p) {
    const int group = steps.begin / p.chunks, taps = group / p.taps_width;
    more = steps.end - steps.begin;
    fw = group % p.taps_width;
    fh = taps % (p.taps_height / SHARE) * SHARE;
    c = steps.begin % p.chunks * KC;
    TilePlace first(p, column(p, 0));
    const int row = first.down(p, work_at(p, index).row);
    w = first.first + fw * R - p.pad_width;
    h = row + fh - p.pad_height + threadIdx.x % 32 / ACROSS * BOX_ROWS;
    d = first.depth + taps / (p.taps_height / SHARE) - p.pad_depth;
    n = column(p, 0) < p.columns ? first.batch : OUTSIDE;
  }

  __device__ __forceinline__ void next(const GammaWgmmaParams& p) {
    const int stages = serves(p, c / KC, more);
    c += stages * KC;
    if ((more -= stages) == 0) {
      index += gridDim.x / SPLIT_K;
      begin(p);
    } else if (c == p.chunks * KC) {
      c = 0;
      w += R;
      if (++fw == p.taps_width) {
        w -= fw * R;
        fw = 0;
        h += SHARE;
        if ((fh += SHARE) >= p.taps_height) {
          h -= fh;
          fh = 0;
          ++d;
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const GammaWgmmaParams& p, Raw& raw, int g) const {
    const int lane = threadIdx.x % 32, boxes = g < SLOTS - 1 ? BOXES : LAST_BOXES;
    if (lane == 0) barrier_arrive_expect(&raw.full[g], boxes * BOX_SIZE);
    __syncwarp();
    int right = 0, behind = 0, batch = n;
    if (g * 32 % COLUMNS > 0) {
      const int at = column(p, g);
      const TilePlace first(p, column(p, 0)), here(p, at);
      right = here.first - first.first, behind = here.depth - first.depth;
      batch = at < p.columns ? here.batch : OUTSIDE;
    }
    int row = h + g * 32 / COLUMNS;
    if constexpr (PACKED > 0) {  // of an image below: zeros between images serve both
      for (; row + BOX_ROWS > p.pitch; row -= p.pitch) batch += p.abreast;
    }
    if (lane < boxes)
      box_copy(raw.slot[g] + lane * BOX_PITCH, p.x_map, c / BOX_CHANNELS * BOX_CHANNELS, w + right,
               row, d + behind, batch, &raw.full[g]);
  }
};

// Blocks that have a work tile fewer than others begin later, spread over less than a work tile's
// time: else all store outputs at the same moment and wait for the memory (10 % at 96² × 64, on an
// H100).
__device__ __forceinline__ void spread(const GammaWgmmaParams& p, int steps) {
  constexpr int CYCLES = PARTS == 2 ? 4096 : 2048, PHASES = 64;  // less than a stage's; of blocks
  const int block = blockIdx.x / SPLIT_K, longer = p.work_tiles % (int)(gridDim.x / SPLIT_K);
  if (longer == 0 || block < longer) return;
  const int wait = block * 37 % PHASES * (min(steps, 8) * CYCLES / PHASES);
  const long long begin = clock64();
  while (clock64() - begin < wait) {
  }
}

__device__ __forceinline__ void load(const GammaWgmmaParams& p, Raw& raw) {
  const Steps steps(p, SPLIT_K);
  spread(p, steps.end - steps.begin);
  unsigned phase = 1;
  for (Loader loader(p, steps); loader.index < p.work_tiles; loader.next(p)) {
#pragma unroll 1
    for (int g = 0; g < SLOTS; ++g) {
      barrier_wait(&raw.empty[g], phase);
      loader.issue(p, raw, g);
    }
    phase ^= 1;
    // Producers, too, finish a work tile once they have made a stage of the next.
    if (SPLIT_K > 1 && loader.more == steps.end - steps.begin && loader.index >= gridDim.x / SPLIT_K)
      meet();
  }
  if (SPLIT_K > 1 && blockIdx.x / SPLIT_K < p.work_tiles) meet();  // about the last work tile
}

// A producer thread's four channels of a tile's pixels, stage by stage. It keeps where small elements
// are in the present stage: input binds, and registers suffice.
struct Fetch {
  Raw& raw;
  const Steps& steps;
  int left, sub = 0, more;  // stages that the present boxes serve; the first one's place in them
  unsigned phase = 0;
  unsigned offset[REUSE > 1 ? ALPHA : ALPHA / 2];  // of pixels in a slot; else pairs of 16 bits
  unsigned halved[REUSE > 1 ? ALPHA : 1];          // in a halved slot; else of the first, as it lies

  __device__ __forceinline__ Fetch(const GammaWgmmaParams& p, Raw& raw, const Steps& steps)
      : raw(raw), steps(steps), more(0) {
    static_assert(SLOT_SIZE <= 1 << 16 && REUSE <= 2, "offsets of 16 bits; of one stage or the other");
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
    const int channel = (lane / 16 * 2 + lane % 2) * 4;
    const unsigned first = place(unit_tile(warp, lane), channel);
    const unsigned half = place(unit_tile(warp % 2, lane), channel + half_pair(warp, lane) * 2);
    halved[0] = half;
    if constexpr (REUSE > 1) {
#pragma unroll
      for (int i = 0; i < ALPHA; ++i)
        offset[i] = swizzled(first + i * 64), halved[i] = swizzled(half + i * 64);
    } else {
#pragma unroll
      for (int i = 0; i < ALPHA; i += 2)
        offset[i / 2] = swizzled(first + i * 64) | swizzled(first + i * 64 + 64) << 16;
    }
    begin(p);
  }

  // Where a slot has a tile's first pixel, before the swizzle.
  __device__ __forceinline__ unsigned place(int tile, int channel) const {
    const int column = tile % SLOT_COLUMNS, row = tile / SLOT_COLUMNS;
    const int image = column % IMAGES, along = column % BOX_TILES / IMAGES;
    const unsigned box = row / BOX_ROWS * ACROSS + column / BOX_TILES;
    const unsigned pixel = (image * BOX_ROWS + row % BOX_ROWS) * BOX_PIXELS + along * N;
    return box * BOX_PITCH + pixel * 64 + channel * (int)sizeof(Element);
  }

  // The present stage is that one of the boxes'.
  __device__ __forceinline__ void step_to(int to) {
    if constexpr (REUSE > 1) {
#pragma unroll
      for (int i = 0; i < ALPHA; ++i) {
        offset[i] ^= (to ^ sub) * 32;
        if constexpr (HALVED) halved[i] ^= (to ^ sub) * 32;
      }
      sub = to;
    }
  }

  __device__ __forceinline__ void begin(const GammaWgmmaParams& p) {
    left = 1;
    if constexpr (REUSE > 1) {
      if (more == 0) more = steps.end - steps.begin;
      const int chunk = (steps.end - more) % p.chunks;
      left = serves(p, chunk, more);
      step_to(chunk % REUSE);
      more -= left;
    }
  }

  __device__ __forceinline__ void pixels(int g, Loaded (&to)[ALPHA]) const {
    barrier_wait(&raw.full[g], phase);
#pragma unroll
    for (int i = 0; i < ALPHA; ++i)
      to[i] = pixel<Loaded>(g, REUSE > 1 ? offset[REUSE > 1 ? i : 0]
                                         : offset[i / 2] >> i % 2 * 16 & 0xffffu);
  }
  // The pixels of the two channels that are the thread's in a halved slot.
  __device__ __forceinline__ void pixels(int g, Pair (&to)[ALPHA]) const {
    barrier_wait(&raw.full[g], phase);
    unsigned first = halved[0];
    if constexpr (REUSE == 1)
      asm volatile("" : "+r"(first));  // places are found anew every time: they would take registers
#pragma unroll
    for (int i = 0; i < ALPHA; ++i)
      to[i] = pixel<Pair>(g, REUSE > 1 ? halved[REUSE > 1 ? i : 0] : swizzled(first + i * 64));
  }
  template <class Value>
  __device__ __forceinline__ Value pixel(int g, unsigned at) const {
    return *reinterpret_cast<const Value*>(raw.slot[g] + at);
  }

  // After the stores of what the pixels became: they have been read then.
  __device__ __forceinline__ void done(const GammaWgmmaParams&, int g) {
    if (left == 1) barrier_arrive(&raw.empty[g]);
  }

  __device__ __forceinline__ void next(const GammaWgmmaParams& p) {
    if (--left > 0) {
      step_to(sub + 1);
    } else {
      begin(p);
      phase ^= 1;
    }
  }
};
