// What the kernel of grouped layers' filter gradients is told, and what a work tile has in shared memory:
// its outputs' dy, patches of x.
//
// A UNIT is 16 output channels, whose groups have up to 8 · PIECES · NT channels of x. A block has UNITS, its
// slice, beside each other.
#pragma once

#include "elements.cuh"
#include "fallback.cuh"
#include "pipeline.cuh"
#include "quotient.cuh"

// A dimension: of x, of dy and of the filter; tap t meets output o at o · stride − pad + t · dilation.
struct __align__(8) WgradGroupedAxis {
  int size, outputs, taps, stride, dilation, pad;
};

// Rows of pixels that are copied: of a level of the patch, or of an image's outputs.
struct __align__(8) WgradGroupedRows {
  int count, pitch, together;  // rows, bytes from one to the next, rows that a block copies at once
  Quotient by_vectors;         // vectors of a row
};

// Strides are in elements.
struct WgradGroupedParams {
  const Element* x;
  const Element* dy;
  Out* dw;
  float* buckets;  // of shares: [share][output channel][taps][channel]; or null
  long long x_batch, x_depth, x_row, dy_batch, dy_depth, dy_row;
  long long dw_out, dw_depth, dw_row, dw_tap, dw_in;
  int x_pixel, dy_pixel;
  int batch, channels, out_channels;           // of all groups
  int slices, tap_blocks, shares, work_tiles;  // shares: blocks that have every so many-th work tile
  int images, rows;                            // of a work tile
  int outputs, positions;                      // of a work tile; positions of products, those that fill up too
  int level_pitch, patch, stage;               // bytes: of a level of a patch, of all patches, of a stage
  int dense;                                   // whether dw lies as a bucket does
  Quotient by_columns;                         // outputs of a row of a work tile
  Quotient by_own;                             // pixels of a row of the patch that are a stride apart
  Quotient by_across, by_down, by_deep;        // work tiles along width, height and depth
  WgradGroupedRows of_x, of_dy;
  WgradGroupedAxis depth, height, width;
};

constexpr int THREADS = 32 * WARP_ROWS * UNITS * PIECES;
constexpr int SIZE = sizeof(Element), VECTOR = 16 / SIZE;  // channels of 16 bytes
// Vectors from a pixel to the next: those that products read at once are in all banks, which are eight pixels
// of 16 bytes, and in FP32 four of eight channels (a test counts).
__device__ constexpr int apart(int vectors) {
  return SIZE == 2 ? vectors | 1 : vectors % 4 == 2 ? vectors : vectors + 2;
}
constexpr int X_VECTORS = X_EIGHTS * 8 / VECTOR, DY_VECTORS = UNITS * 16 / VECTOR;
constexpr int X_PIXEL = apart(X_VECTORS) * 16, DY_PIXEL = apart(DY_VECTORS) * 16;

// The first channel of x that a unit's groups have, in whole eights.
__device__ __forceinline__ int first_channel(int out) { return out / GROUP_OUT * GROUP_IN / 8 * 8; }

// A work tile: rows × columns outputs of a level of some images, and how many of them there are.
struct WgradGroupedTile {
  int n, level, row, column, images, rows, columns;
  __device__ __forceinline__ WgradGroupedTile(const WgradGroupedParams& p, int index) {
    index = divide(p.by_across, index, column);
    index = divide(p.by_down, index, row);
    n = divide(p.by_deep, index, level);
    n *= p.images, row *= p.rows, column *= p.by_columns.divisor;
    images = min(p.images, p.batch - n), rows = min(p.rows, p.height.outputs - row);
    columns = min(p.by_columns.divisor, p.width.outputs - column);
  }
  __device__ __forceinline__ bool whole(const WgradGroupedParams& p) const {
    return images == p.images && rows == p.rows && columns == p.by_columns.divisor;
  }
};

// Where each output of a work tile has its first pixel, in bytes of the patches, and its row and column in one
// number: what a block finds once. Those that fill products up have the last one's.
struct WgradGroupedPlaces {
  int2* outputs;
  __device__ __forceinline__ explicit WgradGroupedPlaces(unsigned char* memory)
      : outputs(reinterpret_cast<int2*>(memory)) {}
  __device__ __forceinline__ unsigned char* end(const WgradGroupedParams& p) const {
    return reinterpret_cast<unsigned char*>(outputs + p.positions);
  }
  __device__ __forceinline__ static int first(const WgradGroupedParams& p, int image, int h, int w) {
    return image * p.depth.taps * p.level_pitch + h * p.height.stride * p.of_x.pitch + w * X_PIXEL;
  }
  __device__ __forceinline__ void fill(const WgradGroupedParams& p) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < p.positions; i += THREADS) {
      int w;
      const int rows = divide(p.by_columns, min(i, p.outputs - 1), w), image = rows / p.rows, h = rows % p.rows;
      outputs[i] = make_int2(first(p, image, h, w), h << 16 | w);
    }
  }
  // An output that a tile at the end does not have gets another's, which the same taps meet.
  __device__ __forceinline__ int at(const WgradGroupedParams& p, const WgradGroupedTile& tile, int i) const {
    const int2 found = outputs[i];
    if (tile.whole(p)) return found.x;
    const int image = min(i, p.outputs - 1) / (p.rows * p.by_columns.divisor);
    return first(p, min(image, tile.images - 1), min(found.y >> 16, tile.rows - 1),
                 min(found.y & 0xffff, tile.columns - 1));
  }
};

// Starts copies of a work tile's rows of pixels to shared memory, zeros where there are none. A thread has a vector
// of a pixel of each row, its row every so many-th, whose place it finds once. ``first``: the first image's row
// ``h`` of level ``d``, at ``w``, with the first channel.
template <int VECTORS, int PIXEL, bool PATCH>
__device__ __forceinline__ void copy_rows(const WgradGroupedParams& p, const WgradGroupedRows& rows,
                                          unsigned char* to, const Element* first, int images, int d, int h, int w,
                                          int channels) {
  int vector;
  const int begin = divide(rows.by_vectors, threadIdx.x, vector), step = rows.together;
  if (begin >= step) return;
  const long long row = PATCH ? p.x_row : p.dy_row, image = PATCH ? p.x_batch : p.dy_batch;
  const int high = PATCH ? p.height.size : p.height.outputs, wide = PATCH ? p.width.size : p.width.outputs;
  const int levels = PATCH ? p.depth.taps : 1;
#pragma unroll 1
  for (int i = vector; i < rows.by_vectors.divisor; i += THREADS) {  // once, but of long rows
    const int across = i / VECTORS, channel = i % VECTORS * VECTOR;
    int place = across;
    if (PATCH && p.width.stride > 1) {  // pixels a stride apart lie side by side
      const int kind = divide(p.by_own, across, place);
      place = place * p.width.stride + kind;
    }
    const bool there = (channel < channels) & ((unsigned)(w + place) < (unsigned)wide);
    const Element* from = first + begin * row + (long long)place * (PATCH ? p.x_pixel : p.dy_pixel) + channel;
    unsigned char* target = to + begin * rows.pitch + across * PIXEL + i % VECTORS * 16;
#pragma unroll 1
    for (int n = 0; n < p.images; ++n, from += image) {
      const Element* level = from;
#pragma unroll 1
      for (int kd = 0; kd < levels; ++kd) {
        const bool deep = !PATCH || (unsigned)(d + kd * p.depth.dilation) < (unsigned)p.depth.size;
        const unsigned limit = there & deep & (n < images) ? high : 0;
        const Element* at = level;
        unsigned char* put = target;
#pragma unroll 4
        for (int j = begin; j < rows.count; j += step) {
          copy_async<16>(put, at, (unsigned)(h + j) < limit);
          at += step * row, put += step * rows.pitch;
        }
        target += PATCH ? p.level_pitch : rows.count * rows.pitch;
        level += p.depth.dilation * p.x_depth;
      }
    }
  }
}

// The same of both arrays. ``out``: the slice's first output channel.
__device__ __forceinline__ void copy_tile(const WgradGroupedParams& p, const WgradGroupedTile& tile, int out,
                                          unsigned char* stage) {
  const int w = tile.column * p.width.stride - p.width.pad, h = tile.row * p.height.stride - p.height.pad;
  const int d = tile.level * p.depth.stride - p.depth.pad, channel = first_channel(out);
  const Element* x = p.x + tile.n * p.x_batch + d * p.x_depth + h * p.x_row + (long long)w * p.x_pixel + channel;
  const Element* dy = p.dy + tile.n * p.dy_batch + tile.level * p.dy_depth + tile.row * p.dy_row +
                      (long long)tile.column * p.dy_pixel + out;
  copy_rows<X_VECTORS, X_PIXEL, true>(p, p.of_x, stage, x, tile.images, d, h, w, p.channels - channel);
  copy_rows<DY_VECTORS, DY_PIXEL, false>(p, p.of_dy, stage + p.patch, dy, tile.images, 0, tile.row, tile.column,
                                         p.out_channels - out);
}
