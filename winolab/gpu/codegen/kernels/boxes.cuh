// Segments that are boxes of dy, as WinRS's Algorithm 2 cuts them: some depths, some rows, whole
// units of columns, of all images. A launch has those of one kernel of the pair; buckets are of both.
#pragma once

#include "gradient_scheduler.cuh"

struct BoxParams : GradientParams {
  int cuts_depth, cuts_row, cuts_column;  // segments of this kernel along each dimension
  int column;                             // of dy, where they begin; each is PITCH columns wide
  int bucket, buckets_box;  // of the first segment; of all segments of the same depths and rows
};

struct BoxWorkTile : GradientWorkTile {
  int column;  // of dy, the first
  static __device__ __forceinline__ void meet(int& first, int& count, int size, int cut, int cuts) {
    const int low = (int)((long long)size * cut / cuts);
    const int last = min(first + count, (int)((long long)size * (cut + 1) / cuts));
    first = max(first, low);
    count = max(0, last - first);
  }
  __device__ __forceinline__ BoxWorkTile(const BoxParams& p, int index)
      : GradientWorkTile(p, index) {
    const int across = segment % p.cuts_column, box = segment / p.cuts_column;
    column = p.column + across * p.pitch;
    meet(depth0, depths, p.out_depth, box / p.cuts_row, p.cuts_depth);
    meet(row0, rows, p.out_height, box % p.cuts_row, p.cuts_row);
    segment = box * p.buckets_box + p.bucket + across;
    begin = 0;
    end = p.batch * depths * rows * (p.pitch / R);
  }
};

// Columns of x move with those of dy, as if the taps lay further on. The last of dy's may not be there.
struct BoxUnits {
  GradientWorkTile moved;
  Map map;
  int width;  // of dy from the first column on
  __device__ __forceinline__ BoxUnits(const BoxParams& p, const BoxWorkTile& work)
      : moved(shifted(work)), map(p, moved), width(p.out_width - work.column) {
    map.dy += (long long)work.column * p.dy_pixel;
  }
  static __device__ __forceinline__ GradientWorkTile shifted(const BoxWorkTile& work) {
    GradientWorkTile moved = work;
    moved.tap_width += work.column;
    return moved;
  }
  __device__ __forceinline__ Unit unit(int index) const {
    Unit unit = map.unit(index);
    int column;
    map.pitch.divide(index * R, column);
    unit.dy_mask &= Map::bits(0, width - column, R);
    return unit;
  }
};

using Params = BoxParams;
using WorkTile = BoxWorkTile;
using Units = BoxUnits;
