// What both kernels of thin layers are told, where a thread's outputs lie, and the filter in shared memory.
#pragma once

#include "axes.cuh"
#include "elements.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "value.cuh"

// In a correlation's terms: backward data has dy in x's place and dx in y's. Strides are in elements.
struct ThinParams {
  const Element* x;
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  Out* y;
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int x_pixel, y_pixel;
  int batch, depth, height, width, out_depth, out_height, out_width;
  int channels, out_channels;
  int blocks_m;              // blocks of output channels
  int blocks_n, work_tiles;  // blocks' worths of positions of a phase, and of all phases
  int pad_depth, pad_height, pad_width, taps_depth, taps_height, taps_width;
  int phases;
  int next_batch, next_depth, next_height, next_width;  // digits of SLOTS among a phase's positions
  int vectors;  // whether x, or y, is read or written V channels at once
  int dense;    // whether taps of w lie at equal distances
  int flat;     // whether positions of x, and of y, do, all in one row
  DirectAxis along_depth, along_height, along_width;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int SLOTS = THREADS / LANES;     // positions that a block has at once
constexpr int WIDTH = LANES * V;           // channels that the lanes of a position have at once
constexpr int PART = V % 4 == 0 ? 4 : 1;   // channels of a lane that lie together in shared memory
constexpr int TOGETHER = POSITIONS * SLOTS;  // positions of a work tile

// The taps that meet a work tile's phase, and its first position: phases follow each other, so that
// blocks that run together read the same places of x.
struct ThinTile {
  Taps depth, height, width;
  int first;
  __device__ __forceinline__ ThinTile(const ThinParams& p, unsigned index) {
    unsigned phase_width = 0, phase_height = 0, phase_depth = 0;
    if (ROTATED && p.phases > 1) {
      phase_width = index % p.along_width.phases, index /= p.along_width.phases;
      phase_height = index % p.along_height.phases, index /= p.along_height.phases;
      phase_depth = index % p.along_depth.phases, index /= p.along_depth.phases;
    }
    first = index * TOGETHER;
    width = Taps(p.along_width, phase_width, p.taps_width, p.pad_width);
    height = Taps(p.along_height, phase_height, p.taps_height, p.pad_height);
    depth = Taps(p.along_depth, phase_depth, p.taps_depth, p.pad_depth);
  }
};

// A position of a phase.
struct Place {
  int n, d, h, w;
  __device__ __forceinline__ Place(const ThinParams& p, unsigned at) {
    unsigned whole = at / p.along_width.outputs;
    w = at - whole * p.along_width.outputs, at = whole;
    whole = at / p.along_height.outputs;
    h = at - whole * p.along_height.outputs, at = whole;
    n = at / p.along_depth.outputs;
    d = at - n * p.along_depth.outputs;
  }
  // Goes on by SLOTS, whose digits p has: no division.
  __device__ __forceinline__ void next(const ThinParams& p) {
    w += p.next_width, h += p.next_height, d += p.next_depth, n += p.next_batch;
    if (w >= p.along_width.outputs) w -= p.along_width.outputs, ++h;
    if (h >= p.along_height.outputs) h -= p.along_height.outputs, ++d;
    if (d >= p.along_depth.outputs) d -= p.along_depth.outputs, ++n;
  }
  // Where in y it is, or null.
  __device__ __forceinline__ Out* output(const ThinParams& p, const ThinTile& tile) const {
    const int column = tile.width.output + w * (ROTATED ? p.along_width.stride : 1);
    const int row = tile.height.output + h * (ROTATED ? p.along_height.stride : 1);
    const int level = tile.depth.output + d * (ROTATED ? p.along_depth.stride : 1);
    const bool is = n < p.batch && column < p.out_width && row < p.out_height && level < p.out_depth;
    return is ? p.y + n * p.y_batch + level * p.y_depth + row * p.y_row + (long long)column * p.y_pixel
              : nullptr;
  }
};

// Where in x a position's taps are: its image, or null, and what the first tap meets.
struct Window {
  const Element* image;
  int level, line, column;
  __device__ __forceinline__ Window() {}
  __device__ __forceinline__ Window(const ThinParams& p, const ThinTile& tile, const Place& at)
      : image(at.n < p.batch ? p.x + at.n * p.x_batch : nullptr),
        level(meets(p.along_depth, tile.depth, at.d, 0)),
        line(meets(p.along_height, tile.height, at.h, 0)),
        column(meets(p.along_width, tile.width, at.w, 0)) {}
  // The row of x that a filter row meets, or null.
  __device__ __forceinline__ const Element* row(const ThinParams& p, int kd, int kh) const {
    const int deep = level + kd * p.along_depth.step, down = line + kh * p.along_height.step;
    const bool is = image && deep >= 0 && deep < p.depth && down >= 0 && down < p.height;
    return is ? image + deep * p.x_depth + down * p.x_row : nullptr;
  }
  // The pixel of a row that the ``beyond``-th column behind the first is, or null.
  __device__ __forceinline__ const Element* pixel(const ThinParams& p, const Element* row,
                                                  int beyond) const {
    const int at = column + beyond;
    return row && at >= 0 && at < p.width ? row + (long long)at * p.x_pixel : nullptr;
  }
};

// Where in y a position of a phase is, or null.
__device__ __forceinline__ Out* output_at(const ThinParams& p, const ThinTile& tile, unsigned at) {
  if (SINGLE && p.flat) return at < p.out_width ? p.y + (long long)at * p.y_pixel : nullptr;
  return Place(p, at).output(p, tile);
}

// Calls ``add`` for each tap with the pixels of x that a thread's POSITIONS meet, ``at`` being the
// first, and with the tap's number among all of the filter's. SINGLE: there is one, and p.flat says
// whether all positions follow each other in x and in y.
template <class Add>
__device__ __forceinline__ void for_taps(const ThinParams& p, const ThinTile& tile, unsigned at,
                                         Add add) {
  const Element* pixel[POSITIONS];
  if constexpr (SINGLE) {
    if (p.flat) {
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i) {
        const unsigned index = at + i * SLOTS;
        pixel[i] = index < p.width ? p.x + (long long)index * p.x_pixel : nullptr;
      }
    } else {
      const bool met = tile.depth.count && tile.height.count && tile.width.count;
      Place place(p, at);
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i, place.next(p)) {
        const Window window(p, tile, place);
        pixel[i] = met ? window.pixel(p, window.row(p, 0, 0), 0) : nullptr;
      }
    }
    add(pixel, 0);
    return;
  }
  Place place(p, at);
  Window window[POSITIONS];
#pragma unroll
  for (int i = 0; i < POSITIONS; ++i, place.next(p)) window[i] = Window(p, tile, place);
  for (int kd = 0; kd < tile.depth.count; ++kd)
    for (int kh = 0; kh < tile.height.count; ++kh) {
      const Element* row[POSITIONS];
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i) row[i] = window[i].row(p, kd, kh);
      const int d = tile.depth.first + kd * p.along_depth.apart;
      const int h = tile.height.first + kh * p.along_height.apart;
      const int first = (d * p.taps_height + h) * p.taps_width + tile.width.first;
      for (int kw = 0; kw < tile.width.count; ++kw) {
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i)
          pixel[i] = window[i].pixel(p, row[i], kw * p.along_width.step);
        add(pixel, first + kw * p.along_width.apart);
      }
    }
}

// The filter in shared memory, FP32, zeros where it has no channels:
// [tap][chunk of WIDTH channels][others][V / PART][lane][PART], so that a lane's PART lie together and
// lanes beside each other. The side of WIDTH begins with channel ``first``.
template <bool OUTPUT_SIDE>
__device__ __forceinline__ void fill(const ThinParams& p, float* to, int first, int chunks,
                                     int others) {
  const int taps = p.taps_depth * p.taps_height * p.taps_width, size = chunks * others * WIDTH;
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < taps * size; i += THREADS) {
    const unsigned tap = i / size, within = i - tap * size, place = within % WIDTH;
    const unsigned other = OUTPUT_SIDE ? within / WIDTH : within / WIDTH % others;
    const unsigned chunk = OUTPUT_SIDE ? 0 : within / WIDTH / others;
    const unsigned lane = place % (LANES * PART) / PART;
    const int own = first + chunk * WIDTH + lane * V + place / (LANES * PART) * PART + place % PART;
    const int m = OUTPUT_SIDE ? own : other, c = OUTPUT_SIDE ? other : own;
    const Element* from = p.w + m * p.m_stride + c * p.c_stride;
    if (p.dense) {
      from += (int)tap * p.width_stride;
    } else {
      const unsigned rows = tap / p.taps_width, kw = tap - rows * p.taps_width;
      const unsigned kd = rows / p.taps_height, kh = rows - kd * p.taps_height;
      from += (int)kd * p.depth_stride + (int)kh * p.row_stride + (int)kw * p.width_stride;
    }
    to[i] = m < p.out_channels && c < p.channels ? value(from) : 0.0f;
  }
  __syncthreads();
}

// A lane's V numbers of one of the others, of what begins at ``from``.
__device__ __forceinline__ void taken(const float* from, int lane, float (&to)[V]) {
#pragma unroll
  for (int v = 0; v < V; v += PART) {
    const float* part = from + v * LANES + lane * PART;
    if constexpr (PART == 4) {
      const float4 four = *reinterpret_cast<const float4*>(part);
      to[v] = four.x, to[v + 1] = four.y, to[v + 2] = four.z, to[v + 3] = four.w;
    } else {
      to[v] = *part;
    }
  }
}
