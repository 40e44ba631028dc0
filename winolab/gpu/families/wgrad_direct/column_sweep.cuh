// How direct filter gradients sum, by columns.
//
// Positions are the rows of dy, of all images, that meet an input row for the item's taps; where
// these are few, ``chunks`` parts of them, ``pitch`` columns each. Products take one column of KS
// positions: what TAPS neighbouring taps meet there are as many columns of x, of which the next
// column needs all but the first. Rows are not laid end to end, so none needs zeros behind it. Where
// whole rows are positions, columns that meet no x for any of an item's taps are left out.
#pragma once

#include "gradient_scheduler.cuh"

constexpr int TAPS = N, KS = KC;
constexpr int RING = STAGES + TAPS - 1;  // a stage brings a column of both; taps keep x's

// Where a block begins with the items that blocks share, and how many of their stages it has.
struct Start {
  int item, at, left;
};

struct ColumnParams {
  OmegaParams sum;    // its buckets are parts of sums, as the kernel has them in registers
  int* ends;          // [item that blocks share][first, last block with a part of it]; null: none has
  long long chunks;   // of a row
  long long alone;    // items that blocks compute alone, before they share the others
  long long sharing;  // blocks that do, a stage each at least
  long long parts;    // of an item that is shared, as long; 0: ``starts`` has the blocks' shares
  long long turns;    // of blocks in ``order``; 0: items alone are dealt in turn
  unsigned short order[ORDERED];  // [turn][block]: the item, or NONE
  Start starts[STARTS];
};

// Where a stage's columns lie in the rings.
struct ColumnPipe {
  int stage = 0, column = 0;  // of dy and the barriers; of x
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
    if (++column == RING) column = 0;
  }
  // Which column of x a tap of dy's meets.
  __device__ __forceinline__ int met(int tap) const {
    const int found = column - (TAPS - 1) + tap;
    return found < 0 ? found + RING : found;
  }
};

// Items are rows of the filter, tiles of a row's taps, channels, which change first: so those that run
// at the same time are as long.
__device__ __forceinline__ int channels_of(const OmegaParams& p) {
  return p.blocks_in * p.blocks_out * p.groups;
}
__device__ __forceinline__ int tile_of(const OmegaParams& p, int index) {
  return index / channels_of(p) % p.tiles_width;
}
__device__ __forceinline__ int row_of(const OmegaParams& p, int index) {
  return index / (channels_of(p) * p.tiles_width);
}

// Which output channels, input channels and taps an item is.
__device__ __forceinline__ Item item_of(const OmegaParams& p, int index) {
  const int taps = p.tiles_width * p.taps_height * p.taps_depth, channels = channels_of(p);
  return Item(p, index / channels + taps * (index % channels));
}

// The columns of dy that a tile of taps meets, of a chunk: [first, last), one at least.
struct Useful {
  int first, last;
  __device__ __forceinline__ Useful(const ColumnParams& params, int tile) {
    const OmegaParams& p = params.sum;
    const int low = p.pad_width - tile * TAPS;  // where its first tap meets x's first column
    first = 0, last = p.pitch;
    if (params.chunks > 1) return;
    first = min(max(0, low - (TAPS - 1)), last - 1), last = max(min(last, low + p.width), first + 1);
  }
  __device__ __forceinline__ int count() const { return last - first; }
};

// A block's share of the sum: items alone, then parts of those that blocks share. It is kept in
// shared memory: registers are for sums.
struct Work {
  int item;                // none, where negative
  int begin, end, stages;  // of the item; all of its
  int first, last;         // Useful's of the item
  int turn;                // of items alone
  int shared, at, left;    // of items that it shares: the next, from which stage on, stages in all
  // Blocks of positions of an item's row; of nothing but zeros where no row meets an input.
  static __device__ __forceinline__ int blocks_of(const ColumnParams& params, int index) {
    const OmegaParams& p = params.sum;
    const int row = row_of(p, index), height = row % p.taps_height, depth = row / p.taps_height;
    const int positions = p.batch * met(p.pad_height - height, p.height, p.out_height) *
                          met(p.pad_depth - depth, p.depth, p.out_depth) * (int)params.chunks;
    return max(1, (positions + KS - 1) / KS);
  }
  static __device__ __forceinline__ int stages_of(const ColumnParams& params, int index) {
    return blocks_of(params, index) * Useful(params, tile_of(params.sum, index)).count();
  }
  // Outputs along a dimension that meet an input, for a tap that lies ``before`` the first one.
  static __device__ __forceinline__ int met(int before, int inputs, int outputs) {
    return max(0, min(outputs, inputs + before) - max(0, before));
  }
  // Before the first part.
  __device__ __forceinline__ void start(const ColumnParams& params) {
    turn = 0, shared = (int)params.alone, at = 0, left = 0;
    if (blockIdx.x >= params.sharing) return;
    if (params.parts) {
      const long long part = blockIdx.x % params.parts;
      shared += (int)(blockIdx.x / params.parts);
      const long long all = stages_of(params, shared);
      at = (int)(all * part / params.parts), left = (int)(all * (part + 1) / params.parts) - at;
    } else {
      const Start& from = params.starts[blockIdx.x];
      shared = from.item, at = from.at, left = from.left;
    }
  }
  // Of the block's next turn; negative: none.
  __device__ __forceinline__ int alone(const ColumnParams& params) {
    const int index = turn++ * gridDim.x + blockIdx.x;
    if (!params.turns) return index < params.alone ? index : -1;
    const int found = turn <= params.turns ? params.order[index] : NONE;
    return found == NONE ? -1 : found;
  }
  // Goes on to the next part, if there is one.
  __device__ __forceinline__ void next(const ColumnParams& params) {
    item = alone(params), begin = 0;
    const bool sharing = item < 0;
    if (sharing && left > 0) item = shared++, begin = at, at = 0;
    if (item < 0) return;
    const Useful useful(params, tile_of(params.sum, item));
    first = useful.first, last = useful.last;
    end = stages = blocks_of(params, item) * useful.count();
    if (sharing) end = min(stages, begin + left), left -= end - begin;
  }
  __device__ __forceinline__ bool whole() const { return begin == 0 && end == stages; }
  // Where its part of a sum is kept.
  __device__ __forceinline__ long long slot(const ColumnParams& params) const {
    return item - params.alone + blockIdx.x;
  }
  // Who has the item's first and last part.
  __device__ __forceinline__ void tell(const ColumnParams& params) const {
    if (item < params.alone || !params.ends) return;
    int* const ends = params.ends + 2 * (item - params.alone);
    if (begin == 0) ends[0] = blockIdx.x;
    if (end == stages) ends[1] = blockIdx.x;
  }
};

// Calls visit() for every part, by all threads of a role; one of them, ``first``, finds it.
template <class Sync, class Visit>
__device__ __forceinline__ void for_parts(const ColumnParams& params, Work& work, bool first,
                                          const Sync& sync, const Visit& visit) {
#pragma unroll 1
  while (true) {
    if (first) work.next(params);
    sync();
    if (work.item < 0) return;
    visit();
    sync();
  }
}

// A part's stages in turn: of a block of KS positions, the columns of dy; before the first of them,
// stages that only bring x.
struct Sweep {
  const Work& work;
  int left;                        // stages with products, of this block on
  int block, column, first, last;  // of dy: a stage's column, those of the block
  __device__ __forceinline__ explicit Sweep(const Work& work) : work(work) {
    const int at = lane_0(work.begin), count = lane_0(work.last) - lane_0(work.first);
    left = lane_0(work.end) - at, block = at / count;
    begin(at % count);
  }
  // So: the same in all lanes.
  static __device__ __forceinline__ int lane_0(int v) { return __shfl_sync(0xffffffffu, v, 0); }
  __device__ __forceinline__ void begin(int at) {
    first = lane_0(work.first) + at, last = min(lane_0(work.last), first + left);
    column = first - (TAPS - 1);
  }
  __device__ __forceinline__ bool more() const { return left > 0; }
  // Whether another block follows, or nothing.
  __device__ __forceinline__ bool advance() {
    if (++column < last) return false;
    left -= last - first, ++block;
    begin(0);
    return true;
  }
};

// Where an item's positions lie; in shared memory, too.
template <class Element>
struct Source {
  const Element* x;  // of the first row and the first tap's column
  const Element* dy;
  int rows, depths, positions;
  int shift;      // from a column of dy to the first tap's of x
  int ins, outs;  // channels from the item's first on
  __device__ __forceinline__ void find(const ColumnParams& params, const Item& item) {
    const OmegaParams& p = params.sum;
    shift = item.tap_width - p.pad_width;
    x = p.x + item.group * p.channels + item.in +
        (item.depth0 + item.tap_depth - p.pad_depth) * p.x_depth +
        (item.row0 + item.tap_height - p.pad_height) * p.x_row + shift * (long long)p.x_pixel;
    dy = p.dy + item.group * p.out_channels + item.out + item.depth0 * p.dy_depth +
         item.row0 * p.dy_row;
    rows = max(1, item.rows), depths = max(1, item.depths);
    positions = p.batch * item.depths * item.rows * (int)params.chunks;
    ins = p.channels - item.in, outs = p.out_channels - item.out;
  }
};

// One position of a block, as those need it that copy its columns.
template <class Element>
struct Position {
  const Element* x;  // of the first tap's column in a chunk's column 0
  const Element* dy;
  int column;  // of dy, at the same place; far outside where there is no such position
  __device__ __forceinline__ Position(const ColumnParams& params, const Source<Element>& source,
                                      int at) {
    const OmegaParams& p = params.sum;
    const unsigned chunks = (unsigned)params.chunks, rows = source.rows, depths = source.depths;
    const unsigned line = at / chunks, slice = line / rows;
    const int row = line % rows, depth = slice % depths, image = slice / depths;
    const int inside = at % chunks * p.pitch;
    column = at < source.positions ? inside : -(1 << 30);
    x = source.x + image * p.x_batch + depth * p.x_depth + row * p.x_row +
        inside * (long long)p.x_pixel;
    dy = source.dy + image * p.dy_batch + depth * p.dy_depth + row * p.dy_row +
         inside * (long long)p.dy_pixel;
  }
};

// What a lane has, in all lanes.
template <class T>
__device__ __forceinline__ T* of_lane(T* pointer, int lane) {
  return reinterpret_cast<T*>(
      __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(pointer), lane));
}
