// Which part of a filter gradient a block computes, and over which units it sums: shared by the Ω
// kernels. ``Element`` is the type of x and dy, ``Out`` that of dw.
//
// The summation runs over rows (image, depth, height) that meet an input row for the item's taps,
// one after another, PITCH positions each: a whole number of units, or, with WRAP, N − 1 more than
// dy is wide, so that a unit may run from one row into the next and the zeros between them keep
// their products apart.

struct OmegaParams {
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
  int items;  // all of the above multiplied
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
struct Item {
  int tap_width, tap_height, tap_depth, in, out, group, segment;
  int depth0, depths, row0, rows;  // of dy: those that meet an input for these taps
  int begin, end;
  __device__ __forceinline__ Item(const OmegaParams& p, int index) {
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

// A row of dy: its first element and that of the row of x that the item's taps meet.
struct Row {
  const Element* x;
  const Element* dy;
};

// How an item's units lie in memory, for one thread's channels.
struct Map {
  const OmegaParams& p;
  const Item& item;
  Divisor pitch, rows, depths;
  int all;  // rows of all images
  const Element* x;
  const Element* dy;
  __device__ __forceinline__ Map(const OmegaParams& p, const Item& item, int in, int out)
      : p(p), item(item), pitch(p.pitch), rows(max(1, item.rows)), depths(max(1, item.depths)) {
    all = p.batch * item.depths * item.rows;
    x = p.x + item.group * p.channels + in +
        (item.depth0 + item.tap_depth - p.pad_depth) * p.x_depth +
        (item.row0 + item.tap_height - p.pad_height) * p.x_row;
    dy = p.dy + item.group * p.out_channels + out + item.depth0 * p.dy_depth +
         item.row0 * p.dy_row;
  }
  __device__ __forceinline__ Row row(int index) const {
    int h, d;
    const int batch = depths.divide(rows.divide(index, h), d);
    return {x + batch * p.x_batch + d * p.x_depth + h * p.x_row,
            dy + batch * p.dy_batch + d * p.dy_depth + h * p.dy_row};
  }
};
