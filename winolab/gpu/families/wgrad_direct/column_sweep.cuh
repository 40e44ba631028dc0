// How direct filter gradients sum, by columns.
//
// Positions are the rows of dy, of all images, that meet an input row for the work tile's taps; where
// these are few, ``chunks`` pieces of them, ``pitch`` columns each. Products take one column of KS
// positions: what TAPS neighbouring taps meet there are as many columns of x, of which the next
// column needs all but the first. Rows are not laid end to end, so none needs zeros behind it. Where
// whole rows are positions, columns that meet no x for any of a work tile's taps are left out.
//
// A column of dy is STRIDE_WIDTH columns of x behind the one before it, and a tap DILATION_WIDTH behind
// its neighbour: where either is not 1, neighbours share no columns and a work tile has one tap.
#pragma once

#include "gradient_scheduler.cuh"

constexpr int TAPS = N, KS = KC;
constexpr int RING = STAGES + TAPS - 1;  // a stage brings a column of both; taps keep x's
static_assert(TAPS == 1 || (STRIDE_WIDTH == 1 && DILATION_WIDTH == 1), "taps share columns of x");

// Where a block begins with the work tiles that blocks share, and how many of their stages it has.
struct Start {
  int tile, at, left;
};

struct ColumnParams {
  GradientParams sum;    // its buckets are partial sums, as the kernel has them in registers
  long long chunks;   // of a row
  long long alone;    // work tiles that blocks compute alone, before they share the others
  long long sharing;  // blocks that do, a stage each at least
  long long splits;   // of a work tile that is shared, as long; 0: ``starts`` has the blocks' shares
  long long lpt_rounds;    // of blocks in ``lpt_order``; 0: work tiles alone are dealt in order
  unsigned short lpt_order[ORDERED];  // [round][block]: the work tile, or NONE
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
__device__ __forceinline__ int channels_of(const GradientParams& p) {
  return p.blocks_in * p.blocks_out * p.groups;
}
__device__ __forceinline__ int tile_of(const GradientParams& p, int index) {
  return index / channels_of(p) % p.tiles_width;
}
__device__ __forceinline__ int row_of(const GradientParams& p, int index) {
  return index / (channels_of(p) * p.tiles_width);
}

// Outputs along a dimension that meet an input, for a tap that lies ``before`` the first one: the first,
// and how many. Where no place is before 0 both are 0 at least.
template <int STRIDE>
struct Met {
  int first, count;
  __device__ __forceinline__ Met(int before, int inputs, int outputs)
      : first(max(0, up(before))), count(max(0, min(outputs, up(inputs + before)) - first)) {}
  // The least multiple of STRIDE from v on, over STRIDE; of v < 0 something that is not above 0.
  static __device__ __forceinline__ int up(int v) {
    return STRIDE == 1 ? v : (v + STRIDE - 1) / STRIDE;
  }
};

// The same for taps of a depth and of a height.
__device__ __forceinline__ Met<STRIDE_DEPTH> met_depths(const GradientParams& p, int tap) {
  return {p.pad_depth - tap * DILATION_DEPTH, p.depth, p.out_depth};
}
__device__ __forceinline__ Met<STRIDE_HEIGHT> met_rows(const GradientParams& p, int tap) {
  return {p.pad_height - tap * DILATION_HEIGHT, p.height, p.out_height};
}

// Which output channels, input channels and taps a work tile is.
__device__ __forceinline__ GradientWorkTile work_of(const GradientParams& p, int index) {
  const int taps = p.tiles_width * p.taps_height * p.taps_depth, channels = channels_of(p);
  GradientWorkTile found(p, index / channels + taps * (index % channels));
  constexpr int STEPS = STRIDE_DEPTH * STRIDE_HEIGHT * DILATION_DEPTH * DILATION_HEIGHT;
  if constexpr (STEPS > 1) {
    const auto depths = met_depths(p, found.tap_depth);
    const auto rows = met_rows(p, found.tap_height);
    found.depth0 = depths.first, found.depths = depths.count;
    found.row0 = rows.first, found.rows = rows.count;
  }
  return found;
}

// The columns of dy that a tile of taps meets, of a chunk: [first, last), one at least.
struct Useful {
  int first, last;
  __device__ __forceinline__ Useful(const ColumnParams& params, int tile) {
    const GradientParams& p = params.sum;
    const int low = p.pad_width - tile * TAPS * DILATION_WIDTH;  // where its first tap meets x's first
    const auto up = Met<STRIDE_WIDTH>::up;
    first = 0, last = p.pitch;
    if (params.chunks > 1) return;
    first = min(max(0, up(low - (TAPS - 1))), last - 1);
    last = max(min(last, up(low + p.width)), first + 1);
  }
  __device__ __forceinline__ int count() const { return last - first; }
};

// A block's work: work tiles alone, then shares of those that blocks share. It is kept in
// shared memory: registers are for sums.
struct ColumnScheduler {
  int tile;                // none, where negative
  int begin, end, stages;  // of the work tile; all of its
  int first, last;         // Useful's of the work tile
  int round;                // of work tiles alone
  int shared, at, left;    // of work tiles that it shares: the next, from which stage on, stages in all
  // Blocks of positions of a work tile's row; of nothing but zeros where no row meets an input.
  static __device__ __forceinline__ int blocks_of(const ColumnParams& params, int index) {
    const GradientParams& p = params.sum;
    const int row = row_of(p, index), height = row % p.taps_height, depth = row / p.taps_height;
    const int positions = p.batch * met_rows(p, height).count * met_depths(p, depth).count *
                          (int)params.chunks;
    return max(1, (positions + KS - 1) / KS);
  }
  static __device__ __forceinline__ int stages_of(const ColumnParams& params, int index) {
    return blocks_of(params, index) * Useful(params, tile_of(params.sum, index)).count();
  }
  // Before the first share.
  __device__ __forceinline__ void start(const ColumnParams& params) {
    round = 0, shared = (int)params.alone, at = 0, left = 0;
    if (blockIdx.x >= params.sharing) return;
    if (params.splits) {
      const long long split = blockIdx.x % params.splits;
      shared += (int)(blockIdx.x / params.splits);
      const long long all = stages_of(params, shared);
      at = (int)(all * split / params.splits), left = (int)(all * (split + 1) / params.splits) - at;
    } else {
      const Start& from = params.starts[blockIdx.x];
      shared = from.tile, at = from.at, left = from.left;
    }
  }
  // The next work tile that the block computes alone; negative: none.
  __device__ __forceinline__ int alone(const ColumnParams& params) {
    const int index = round++ * gridDim.x + blockIdx.x;
    if (!params.lpt_rounds) return index < params.alone ? index : -1;
    const int found = round <= params.lpt_rounds ? params.lpt_order[index] : NONE;
    return found == NONE ? -1 : found;
  }
  // Goes on to the next share, if there is one.
  __device__ __forceinline__ void next(const ColumnParams& params) {
    tile = alone(params), begin = 0;
    const bool sharing = tile < 0;
    if (sharing && left > 0) tile = shared++, begin = at, at = 0;
    if (tile < 0) return;
    const Useful useful(params, tile_of(params.sum, tile));
    first = useful.first, last = useful.last;
    end = stages = blocks_of(params, tile) * useful.count();
    if (sharing) end = min(stages, begin + left), left -= end - begin;
  }
  __device__ __forceinline__ bool whole() const { return begin == 0 && end == stages; }
  // Where its share of a sum is kept.
  __device__ __forceinline__ long long slot(const ColumnParams& params) const {
    return tile - params.alone + blockIdx.x;
  }
};

// Calls visit() for every share, by all threads of a role; one of them, ``first``, finds it.
template <class Sync, class Visit>
__device__ __forceinline__ void for_shares(const ColumnParams& params, ColumnScheduler& scheduler,
                                           bool first,
                                           const Sync& sync, const Visit& visit) {
#pragma unroll 1
  while (true) {
    if (first) scheduler.next(params);
    sync();
    if (scheduler.tile < 0) return;
    visit();
    sync();
  }
}

// A share's stages in turn: of a block of KS positions, the columns of dy; before the first of them,
// stages that only bring x.
struct Sweep {
  const ColumnScheduler& scheduler;
  int left;                        // stages with products, of this block on
  int block, column, first, last;  // of dy: a stage's column, those of the block
  __device__ __forceinline__ explicit Sweep(const ColumnScheduler& scheduler) : scheduler(scheduler) {
    const int at = lane_0(scheduler.begin), count = lane_0(scheduler.last) - lane_0(scheduler.first);
    left = lane_0(scheduler.end) - at, block = at / count;
    begin(at % count);
  }
  // So: the same in all lanes.
  static __device__ __forceinline__ int lane_0(int v) { return __shfl_sync(0xffffffffu, v, 0); }
  __device__ __forceinline__ void begin(int at) {
    first = lane_0(scheduler.first) + at, last = min(lane_0(scheduler.last), first + left);
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

// Where a work tile's positions lie; in shared memory, too.
template <class Element>
struct RowSource {
  const Element* x;  // of the first row and the first tap's column
  const Element* dy;
  int rows, depths, positions;
  int shift;      // from a column of dy to the first tap's of x
  int ins, outs;  // channels from the work tile's first on
  __device__ __forceinline__ void find(const ColumnParams& params, const GradientWorkTile& tile) {
    const GradientParams& p = params.sum;
    shift = tile.tap_width * DILATION_WIDTH - p.pad_width;
    x = p.x + tile.group * p.channels + tile.in +
        (tile.depth0 * STRIDE_DEPTH + tile.tap_depth * DILATION_DEPTH - p.pad_depth) * p.x_depth +
        (tile.row0 * STRIDE_HEIGHT + tile.tap_height * DILATION_HEIGHT - p.pad_height) * p.x_row +
        shift * (long long)p.x_pixel;
    dy = p.dy + tile.group * p.out_channels + tile.out + tile.depth0 * p.dy_depth +
         tile.row0 * p.dy_row;
    rows = max(1, tile.rows), depths = max(1, tile.depths);
    positions = p.batch * tile.depths * tile.rows * (int)params.chunks;
    ins = p.channels - tile.in, outs = p.out_channels - tile.out;
  }
};

// One position of a block, as those need it that copy its columns.
template <class Element>
struct Position {
  const Element* x;  // of the first tap's column in a chunk's column 0
  const Element* dy;
  int column;  // of dy, at the same place; far outside where there is no such position
  __device__ __forceinline__ Position(const ColumnParams& params, const RowSource<Element>& source,
                                      int at) {
    const GradientParams& p = params.sum;
    const unsigned chunks = (unsigned)params.chunks, rows = source.rows, depths = source.depths;
    const unsigned line = at / chunks, slice = line / rows;
    const int row = line % rows, depth = slice % depths, image = slice / depths;
    const int inside = at % chunks * p.pitch;
    column = at < source.positions ? inside : -(1 << 30);
    x = source.x + image * p.x_batch + depth * STRIDE_DEPTH * p.x_depth +
        row * STRIDE_HEIGHT * p.x_row + inside * (long long)p.x_pixel * STRIDE_WIDTH;
    dy = source.dy + image * p.dy_batch + depth * p.dy_depth + row * p.dy_row +
         inside * (long long)p.dy_pixel;
  }
};

// Whether a column of dy, of a position that may not exist, meets one of x; ``shift`` lies between.
__device__ __forceinline__ bool meets_x(const GradientParams& p, int column, int shift) {
  const bool exists = STRIDE_WIDTH == 1 || column >= 0;  // far outside, and no multiple wraps around
  return exists && (unsigned)(column * STRIDE_WIDTH + shift) < p.width;
}

// What a lane has, in all lanes.
template <class T>
__device__ __forceinline__ T* of_lane(T* pointer, int lane) {
  return reinterpret_cast<T*>(
      __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(pointer), lane));
}
