// What the kernel of grouped layers is told, which outputs a work tile has, and its patch of x in shared
// memory.
//
// A BUNDLE is as many groups as fill products of eight channels on both sides: 8 · IN channels that are
// summed, 8 · OUT of the result. A warp has BUNDLES of them, a block, in WARP_COLUMNS columns of warps, a slice.
#pragma once

#include "axes.cuh"
#include "elements.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "pipeline.cuh"
#include "quotient.cuh"

// In a correlation's terms: backward data has dy in x's place and dx in y's. Strides are in elements.
struct GroupedParams {
  const Element* x;
  const Element* w;  // element (m = 0, taps 0, c = 0) of the first group as the convolution runs over it
  Out* y;
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride, group_stride;
  int x_pixel, y_pixel;
  int depth, height, width, out_depth, out_height, out_width;
  int channels, out_channels;  // of all groups
  int slices, workers, work_tiles;  // blocks that share the work tiles of a slice and phase
  int pad_depth, pad_height, pad_width, taps_depth, taps_height, taps_width;
  int rows, positions, outputs;  // of a work tile; positions of all its warps' products
  int levels, pixels;            // of its patch of x
  int own_rows;                  // of a level of the patch that are a stride apart
  int row_pitch, level_pitch, stage;  // bytes, in shared memory
  int pairs;  // whether channels of the filter that are summed can be read two at once
  Quotient by_columns;                // outputs of a row of a work tile
  Quotient by_wide, by_high;          // pixels of a row of the patch, rows of a level
  Quotient by_own;                    // pixels of a row that are a stride apart
  Quotient by_across, by_down, by_deep;  // work tiles along width and height; levels of a phase
  DirectAxis along_depth, along_height, along_width;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int THREADS = 32 * WARP_ROWS * WARP_COLUMNS;
constexpr int BLOCKS = 512 / THREADS;               // of a multiprocessor: 128 registers a thread
constexpr int VECTORS = WARP_COLUMNS * BUNDLES * IN;     // of 16 bytes, of a pixel of the patch
constexpr int PIXEL = (VECTORS | 1) * 16;           // bytes: an odd number of vectors
constexpr int NT = BUNDLES * OUT;                   // eights of output channels of a warp
constexpr int STEPS = (CHUNKS + 1) / 2;             // CHUNKS: eights of channels of all taps
constexpr int TOGETHER = THREADS / VECTORS;         // pixels that a block copies at once
// Bytes of shared memory before the tables: zeros, what chunks meet.
constexpr int ZEROS = BUNDLES * IN * 16, AT = 2 * STEPS * 4, FILTER_AT = 2 * STEPS * 8;
constexpr int KNOWN = (ZEROS + FILTER_AT + AT + 15) / 16 * 16;
constexpr int FILTER = WARP_COLUMNS * STEPS * NT * 256;

// The taps that meet a phase's outputs.
struct GroupedPhase {
  Taps depth, height, width;
  __device__ __forceinline__ GroupedPhase(const GroupedParams& p, unsigned phase) {
    unsigned phase_width = 0, phase_height = 0, phase_depth = 0;
    if (ROTATED) {
      phase_width = phase % p.along_width.phases, phase /= p.along_width.phases;
      phase_height = phase % p.along_height.phases, phase_depth = phase / p.along_height.phases;
    }
    width = Taps(p.along_width, phase_width, p.taps_width, p.pad_width);
    height = Taps(p.along_height, phase_height, p.taps_height, p.pad_height);
    depth = Taps(p.along_depth, phase_depth, p.taps_depth, p.pad_depth);
  }
};

__device__ __forceinline__ int step_of(const DirectAxis& axis) { return ROTATED ? 1 : axis.stride; }

// Where a work tile's outputs begin, among a phase's.
struct GroupedTile {
  int n, level, row, column;
  __device__ __forceinline__ GroupedTile(const GroupedParams& p, int index) {
    index = divide(p.by_across, index, column);
    index = divide(p.by_down, index, row);
    n = divide(p.by_deep, index, level);
    column *= p.by_columns.divisor, row *= p.rows;
  }
};

// Where the pixel that lies ``far`` behind another is: those a stride apart lie side by side, ``own`` each.
__device__ __forceinline__ int behind(int far, int stride, int own) {
  return far % stride * own + far / stride;
}

// A pixel of the patch, or an output: bytes behind the first one in x or y; where it is in shared memory,
// of a pixel in vectors, with its level in the upper half; row and column in one number, -1 of none.
struct __align__(16) GroupedPlace {
  long long apart;
  int at, place;
};

// All of them, which a block finds once.
struct GroupedPlaces {
  int4* pixels;
  int4* outputs;
  __device__ __forceinline__ GroupedPlaces(const GroupedParams& p, unsigned char* memory)
      : pixels(reinterpret_cast<int4*>(memory)), outputs(pixels + p.pixels) {}
  __device__ __forceinline__ void fill(const GroupedParams& p) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < p.pixels; i += THREADS) {
      int across, down;
      const int level = divide(p.by_high, divide(p.by_wide, i, across), down);
      int w = across;
      if (!ROTATED && p.along_width.stride > 1) {
        const int kind = divide(p.by_own, across, w);
        w = w * p.along_width.stride + kind;
      }
      const long long from = level * p.along_depth.step * p.x_depth + down * p.x_row + (long long)w * p.x_pixel;
      const int row = behind(down, step_of(p.along_height), p.own_rows);
      const int to = level * p.level_pitch + row * p.row_pitch + across * PIXEL;
      set(pixels + i, from * (int)sizeof(Element), to / 16 | level << 16, down << 16 | w);
    }
    const int down = ROTATED ? p.along_height.stride : 1, across = ROTATED ? p.along_width.stride : 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < p.outputs; i += THREADS) {
      int w;
      // One that there is not reads what lies in the same banks.
      const int beyond = i < p.positions ? 0 : (i - p.positions) / 8 * 8 + 8;
      const int h = divide(p.by_columns, beyond < i ? i - beyond : 0, w);
      const long long y = h * down * p.y_row + (long long)(w * across) * p.y_pixel;
      set(outputs + i, y * (int)sizeof(Out), h * p.row_pitch + w * PIXEL,
          beyond ? -1 : h * down << 16 | w * across);
    }
  }
  __device__ __forceinline__ static GroupedPlace get(const int4* from) {
    const int4 raw = *from;
    return {(long long)((unsigned long long)(unsigned)raw.y << 32 | (unsigned)raw.x), raw.z, raw.w};
  }

 private:
  __device__ __forceinline__ static void set(int4* to, long long apart, int at, int place) {
    *to = make_int4((int)apart, (int)(apart >> 32), at, place);
  }
};

// Where in y a work tile's outputs are.
struct GroupedOutputs {
  unsigned char* first;
  int rows, columns;  // how far outputs may lie from the first
  __device__ __forceinline__ GroupedOutputs(const GroupedParams& p, const GroupedPhase& phase,
                                            const GroupedTile& tile) {
    const int h = phase.height.output + tile.row * (ROTATED ? p.along_height.stride : 1);
    const int w = phase.width.output + tile.column * (ROTATED ? p.along_width.stride : 1);
    const int d = phase.depth.output + tile.level * (ROTATED ? p.along_depth.stride : 1);
    first = reinterpret_cast<unsigned char*>(
        p.y + tile.n * p.y_batch + d * p.y_depth + h * p.y_row + (long long)w * p.y_pixel);
    rows = d < p.out_depth ? p.out_height - h : 0, columns = p.out_width - w;
  }
  // A position of the work tile, or null.
  __device__ __forceinline__ Out* at(const GroupedPlace& place) const {
    const bool is = (place.place >= 0) & (place.place >> 16 < rows) & ((place.place & 0xffff) < columns);
    return is ? reinterpret_cast<Out*>(first + place.apart) : nullptr;
  }
};

// What chunk i of the sum meets: bytes behind a position's pixel in the patch, or -1 where there is no
// such tap, and elements of the filter behind a group's first.
struct GroupedChunks {
  int* at;
  long long* filter;
  __device__ __forceinline__ GroupedChunks(unsigned char* memory)
      : at(reinterpret_cast<int*>(memory + ZEROS + FILTER_AT)),
        filter(reinterpret_cast<long long*>(memory + ZEROS)) {}
  __device__ __forceinline__ void fill(const GroupedParams& p, const GroupedPhase& phase) const {
    const int count = phase.depth.count * phase.height.count * phase.width.count;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * STEPS; i += THREADS) {
      at[i] = -1, filter[i] = 0;
      if (i / IN >= count) continue;
      const int rows = i / IN / phase.width.count, kw = i / IN % phase.width.count;
      const int kd = rows / phase.height.count, kh = rows % phase.height.count;
      const int column = behind(kw * p.along_width.step, step_of(p.along_width), p.by_own.divisor);
      const int row = behind(kh * p.along_height.step, step_of(p.along_height), p.own_rows);
      at[i] = kd * p.level_pitch + row * p.row_pitch + column * PIXEL + i % IN * 16;
      filter[i] = (phase.depth.first + kd * p.along_depth.apart) * p.depth_stride +
                  (phase.height.first + kh * p.along_height.apart) * p.row_stride +
                  (phase.width.first + kw * p.along_width.apart) * p.width_stride;
    }
  }
};

// Starts copies of a work tile's patch of x, zeros beyond the borders. ``channel``: the
// slice's first.
__device__ __forceinline__ void copy_patch(const GroupedParams& p, const GroupedPhase& phase,
                                           const GroupedTile& tile, const GroupedPlaces& places,
                                           int channel, unsigned char* stage) {
  const int vector = threadIdx.x % VECTORS, slot = threadIdx.x / VECTORS;
  if (slot >= TOGETHER) return;
  channel += vector * 8, stage += vector * 16;
  const int w = tile.column * step_of(p.along_width) + phase.width.x;
  const int h = tile.row * step_of(p.along_height) + phase.height.x;
  const int d = tile.level * step_of(p.along_depth) + phase.depth.x, step = p.along_depth.step;
  const unsigned char* first = reinterpret_cast<const unsigned char*>(
      p.x + tile.n * p.x_batch + d * p.x_depth + h * p.x_row + (long long)w * p.x_pixel + channel);
  const bool own = channel < p.channels;
  const bool within = own & (w >= 0) & (h >= 0) & (d >= 0) & (w + p.by_wide.divisor <= p.width) &
                      (h + p.by_high.divisor <= p.height) & (d + (p.levels - 1) * step < p.depth);
  if (within) {
#pragma unroll 4
    for (int i = slot; i < p.pixels; i += TOGETHER) {
      const GroupedPlace at = GroupedPlaces::get(places.pixels + i);
      copy_async<16>(stage + (at.at & 0xffff) * 16, first + at.apart, true);
    }
  } else {
#pragma unroll 2
    for (int i = slot; i < p.pixels; i += TOGETHER) {
      const GroupedPlace at = GroupedPlaces::get(places.pixels + i);
      const bool inside = own & ((unsigned)(w + (at.place & 0xffff)) < (unsigned)p.width) &
                          ((unsigned)(h + (at.place >> 16)) < (unsigned)p.height) &
                          ((unsigned)(d + (at.at >> 16) * step) < (unsigned)p.depth);
      copy_async<16>(stage + (at.at & 0xffff) * 16, first + at.apart, inside);
    }
  }
}
