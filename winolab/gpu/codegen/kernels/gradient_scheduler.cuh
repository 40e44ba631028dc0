// What of a filter gradient a block computes, and over which units it sums: shared by the Ω
// kernels. ``Element`` is the type of x and dy, ``Out`` that of dw, and INPUTS, a macro, the columns
// of x that a unit has.
//
// The summation runs over rows (image, depth, height) that meet an input row for the work tile's taps,
// one after another, PITCH positions each: a whole number of units, or, with WRAP, so many more than
// dy is wide that a unit may run from one row into the next and the zeros between them keep their
// products apart.
#pragma once

#include "fallback.cuh"

struct GradientParams {
  const Element* x;
  const Element* dy;
  Out* dw;
  float* buckets;  // of the segments after the first: [segment][dw, dense]
  long long x_batch, x_depth, x_row, dy_batch, dy_depth, dy_row;  // strides in elements
  long long dw_out, dw_depth, dw_row, dw_tap, dw_in;
  int x_pixel, dy_pixel;
  int batch, depth, height, width;
  int out_depth, out_height, out_width;
  int pad_depth, pad_height, pad_width;
  int taps_depth, taps_height, taps_width;
  int channels, out_channels, groups;  // channels of one group
  int blocks_in, blocks_out;           // of BI input, BO output channels
  int tiles_width;                     // of N taps in a filter row
  int segments, pitch;
  int fold;   // steps after which a sum is transformed and added to what was stored before
  int work_tiles;  // all of the above multiplied
  const int* wanted;
};

// Division of n < 2³¹ by a number that many divisions share (Granlund & Montgomery 1994).
struct Divisor {
  unsigned divisor, magic;
  int shift;
  __device__ __forceinline__ explicit Divisor(int d) {
    divisor = d;
    shift = 31 + (32 - __clz(d - 1));
    magic = (unsigned)(((1ull << shift) + d - 1) / d);
  }
  __device__ __forceinline__ int divide(int n, int& rest) const {
    const unsigned q = (unsigned)(((unsigned long long)(unsigned)n * magic) >> shift);
    rest = n - (int)(q * divisor);
    return (int)q;
  }
};

// What a block works on. Units [begin, end) are its segment's share of its rows' units.
struct GradientWorkTile {
  int tap_width, tap_height, tap_depth, in, out, group, segment;
  int depth0, depths, row0, rows;  // of dy: those that meet an input for these taps
  int begin, end;
  GradientWorkTile() = default;  // in shared memory
  __device__ __forceinline__ GradientWorkTile(const GradientParams& p, int index) {
    tap_width = index % p.tiles_width * N;
    index /= p.tiles_width;
    tap_height = index % p.taps_height;
    index /= p.taps_height;
    tap_depth = index % p.taps_depth;
    index /= p.taps_depth;
    in = index % p.blocks_in * BI;
    index /= p.blocks_in;
    out = index % p.blocks_out * BO;
    index /= p.blocks_out;
    group = index % p.groups;
    segment = index / p.groups;
    depth0 = max(0, p.pad_depth - tap_depth);
    depths = max(0, min(p.out_depth, p.depth + p.pad_depth - tap_depth) - depth0);
    row0 = max(0, p.pad_height - tap_height);
    rows = max(0, min(p.out_height, p.height + p.pad_height - tap_height) - row0);
    const int units = (p.batch * depths * rows * p.pitch + R - 1) / R;
    begin = (int)((long long)units * segment / p.segments);
    end = (int)((long long)units * (segment + 1) / p.segments);
  }
  __device__ __forceinline__ int steps() const { return (end - begin + KC - 1) / KC; }
};

// Where the columns of a unit lie, of x and of dy: addresses are those of the block's first channel.
struct __align__(16) Unit {
  const Element* x;  // of the first column
  const Element* dy;
  int x_jump, dy_jump;       // what columns in the next row are further away
  unsigned x_mask, dy_mask;  // which columns exist
  int left;                  // columns before the next row
  int x_pixel, dy_pixel;     // read anew for every unit: their multiples would fill registers
};

// How a work tile's units lie in memory.
struct Map {
  const GradientParams& p;
  const GradientWorkTile& work;
  Divisor pitch, rows, depths;
  int all;  // rows of all images
  const Element* x;
  const Element* dy;
  __device__ __forceinline__ Map(const GradientParams& p, const GradientWorkTile& work)
      : p(p), work(work), pitch(p.pitch), rows(max(1, work.rows)), depths(max(1, work.depths)) {
    all = p.batch * work.depths * work.rows;
    x = p.x + work.group * p.channels + work.in +
        (work.depth0 + work.tap_depth - p.pad_depth) * p.x_depth +
        (work.row0 + work.tap_height - p.pad_height) * p.x_row +
        (long long)(work.tap_width - p.pad_width) * p.x_pixel;
    dy = p.dy + work.group * p.out_channels + work.out + work.depth0 * p.dy_depth +
         work.row0 * p.dy_row;
  }
  // Bits [first, last) of those below ``most``.
  static __device__ __forceinline__ unsigned bits(int first, int last, int most) {
    first = max(first, 0), last = min(last, most);
    return first < last ? (1u << last) - (1u << first) : 0;
  }
  __device__ __forceinline__ void row(int index, long long& x_offset, long long& dy_offset) const {
    int h, d;
    const int batch = depths.divide(rows.divide(index, h), d);
    x_offset = batch * p.x_batch + d * p.x_depth + h * p.x_row;
    dy_offset = batch * p.dy_batch + d * p.dy_depth + h * p.dy_row;
  }
  __device__ __forceinline__ Unit unit(int index) const {
    int column;
    const int line = pitch.divide(index * R, column);
    const int first = column + work.tap_width - p.pad_width;  // of x
    const bool inside = index < work.end;
    long long x_row, dy_row;
    row(line, x_row, dy_row);
    Unit u;
    u.x = x + x_row + (long long)column * p.x_pixel;
    u.dy = dy + dy_row + (long long)column * p.dy_pixel;
    u.x_pixel = p.x_pixel, u.dy_pixel = p.dy_pixel;
    u.left = WRAP ? p.pitch - column : INPUTS;
    u.x_mask = inside ? bits(-first, p.width - first, min(u.left, INPUTS)) : 0;
    u.dy_mask = inside ? bits(0, p.out_width - column, min(u.left, R)) : 0;
    if constexpr (WRAP) {
      long long x_next, dy_next;
      row(line + 1, x_next, dy_next);
      u.x_jump = (int)(x_next - x_row - (long long)p.pitch * p.x_pixel);
      u.dy_jump = (int)(dy_next - dy_row - (long long)p.pitch * p.dy_pixel);
      if (inside && line + 1 < all) {
        const int next = p.pitch - first;
        u.x_mask |= bits(max(u.left, next), next + p.width, INPUTS);
        u.dy_mask |= bits(u.left, u.left + p.out_width, R);
      }
    }
    return u;
  }
};
