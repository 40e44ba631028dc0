// How direct filter gradients sum, by columns.
//
// Positions are the rows of dy, of all images, that meet an input row for the item's taps; where
// these are few, ``chunks`` parts of them, ``pitch`` columns each. Products take one column of KS
// positions: what TAPS neighbouring taps meet there are as many columns of x, of which the next
// column needs all but the first. Rows are not laid end to end, so none needs zeros behind it. A
// column of x outside the image is 0, and multiplied nevertheless: an infinity in dy may reach taps
// that do not meet it, as NaN.

constexpr int TAPS = N, KS = KC;
// A stage brings a column of both; x's are kept while taps read them, and the first ones of the ring
// lie behind its last once more, so that neighbours are neighbours in memory.
constexpr int RING = STAGES + TAPS - 1, SLOTS = RING + TAPS - 1;

struct ColumnParams {
  OmegaParams sum;    // its buckets are parts of sums, as the kernel has them in registers
  int* ends;          // [item that blocks share][first, last block with a part of it]; null: none has
  long long chunks;   // of a row
  long long alone;    // items that blocks compute alone, before they share the others
  long long sharing;  // blocks that do, a stage each at least
  long long parts;    // of an item that is shared, as long; 0: each block has as many stages
};

// Where a stage's columns lie in the rings.
struct Pipe {
  int stage = 0, column = 0;  // of dy and the barriers; of x
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
    if (++column == RING) column = 0;
  }
  // Where the columns of x begin that dy's meets.
  __device__ __forceinline__ int met() const {
    return column < TAPS - 1 ? column + STAGES : column - (TAPS - 1);
  }
};

// Which output channels, input channels and taps an item is: one row of the filter after another, so
// that those that run at the same time are as long.
__device__ __forceinline__ Item item_of(const OmegaParams& p, int index) {
  const int rows = p.taps_height * p.taps_depth, of_row = p.items / rows;
  const int row = index / of_row, inside = index % of_row;
  const int tile = inside % p.tiles_width, block = inside / p.tiles_width;
  return Item(p, tile + p.tiles_width * (row + rows * block));
}

// A block's share of the sum: items alone, then parts of those that blocks share. It is kept in
// shared memory: registers are for sums.
struct Work {
  int item;                // none, where negative
  int begin, end, stages;  // of the item; all of its
  int shared, at;          // the first item that it shares, and from which stage on
  long long left;          // stages of those that it shares
  static __device__ __forceinline__ int of_row(const OmegaParams& p) {
    return p.items / (p.taps_height * p.taps_depth);
  }
  static __device__ __forceinline__ int row_end(const OmegaParams& p, int index) {
    return (index / of_row(p) + 1) * of_row(p);
  }
  // Stages of one item; of nothing but zeros where no row meets an input.
  static __device__ __forceinline__ int stages_of(const ColumnParams& params, int index) {
    const OmegaParams& p = params.sum;
    const int row = index / of_row(p), height = row % p.taps_height, depth = row / p.taps_height;
    const int positions = p.batch * met(p.pad_height - height, p.height, p.out_height) *
                          met(p.pad_depth - depth, p.depth, p.out_depth) * (int)params.chunks;
    return max(1, (positions + KS - 1) / KS) * p.pitch;
  }
  // Outputs along a dimension that meet an input, for a tap that lies ``before`` the first one.
  static __device__ __forceinline__ int met(int before, int inputs, int outputs) {
    return max(0, min(outputs, inputs + before) - max(0, before));
  }
  // Before the first part.
  __device__ __forceinline__ void start(const ColumnParams& params) {
    const OmegaParams& p = params.sum;
    const int alone = (int)params.alone;
    item = (int)blockIdx.x - (int)gridDim.x, shared = alone, at = 0, left = 0;
    if (blockIdx.x >= params.sharing) return;
    if (params.parts) {
      const long long part = blockIdx.x % params.parts;
      shared = alone + (int)(blockIdx.x / params.parts);
      const long long all = stages_of(params, shared);
      at = (int)(all * part / params.parts), left = all * (part + 1) / params.parts - at;
      return;
    }
    const auto of_row = [&](int i) { return (row_end(p, i) - i) * (long long)stages_of(params, i); };
    long long all = 0;
    for (int i = alone; i < p.items; i = row_end(p, i)) all += of_row(i);
    long long first = all * blockIdx.x / params.sharing;
    left = all * (blockIdx.x + 1) / params.sharing - first;
    while (first >= of_row(shared)) first -= of_row(shared), shared = row_end(p, shared);
    const int each = stages_of(params, shared);
    shared += (int)(first / each), at = (int)(first % each);
  }
  // Goes on to the next part, if there is one.
  __device__ __forceinline__ void next(const ColumnParams& params) {
    item += gridDim.x, begin = 0;
    const bool sharing = item >= params.alone;
    if (sharing) item = left > 0 ? shared++ : -1, begin = at, at = 0;
    if (item < 0) return;
    end = stages = stages_of(params, item);
    if (sharing) end = (int)min((long long)stages, begin + left), left -= end - begin;
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
  int left, count;                 // stages with products, of this block on; a block's
  int block, column, first, last;  // of dy: a stage's column, those of the block
  __device__ __forceinline__ Sweep(const OmegaParams& p, const Work& work) : count(p.pitch) {
    const int at = __shfl_sync(0xffffffffu, work.begin, 0);  // so: the same in all lanes
    left = __shfl_sync(0xffffffffu, work.end, 0) - at, block = at / count;
    begin(at % count);
  }
  __device__ __forceinline__ void begin(int at) {
    first = at, last = min(count, at + left);
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
