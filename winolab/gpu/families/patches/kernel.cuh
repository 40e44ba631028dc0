// Forward, and backward data of unit strides, of few channels that are summed, on mma.sync (8.0 and later).
//
// A block has ROWS × COLUMNS positions of a level of y and WIDTH output channels. What of x their taps
// meet it copies into shared memory, once; taps and channels are one dimension of the sum, of pairs of
// neighbours: A's fragments are read there, a pair at a time, by places that a table has.
// A warp has TILES tiles of 16 positions, each of two runs of 8 in a row, and all channels.
//
// The next work tile's x is copied while this one's is multiplied.
//
// Barriers: all threads, once, behind the tables; once a work tile, when its x is there and all have
// read what the next one's overwrites.
#pragma once

#include "elements.cuh"
#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "pipeline.cuh"
#include "quotient.cuh"

// In a correlation's terms: backward data has dy in x's place and dx in y's. Strides are in elements.
struct PatchParams {
  const Element* x;
  const Element* w;  // element (m = 0, taps 0, c = 0) as the convolution runs over it
  Out* y;
  long long x_batch, x_depth, x_row, y_batch, y_depth, y_row;
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int x_pixel, y_pixel;
  int depth, height, width, out_height, out_width, out_channels;
  int pad_depth, pad_height, pad_width, taps_depth, taps_width;
  int stride_depth, stride_height, stride_width, dilation_depth, dilation_height, dilation_width;
  int blocks_m, work_tiles;  // blocks of output channels, and of positions
  int pitch, copied;  // elements of a row in shared memory, and vectors that are copied
  int pairs, steps;   // of the sum: pairs of numbers, and sixteens
  int skip, lead;     // numbers before a row's first one in shared memory, and before a pair's, of none
  int x_vector;       // elements of a row's vectors, or of a pixel's; 0: pixels one by one
  int y_vectors;      // whether y is written in vectors
  // Vectors of a row, and rows of a level, that are copied; work tiles of a row, rows of them in a
  // level, levels; pairs of a filter row, and filter rows of a level.
  Quotient by_row, by_lines, by_columns, by_rows, by_levels, by_pairs, by_taps;
#ifdef EPILOGUE
  EpilogueParams epilogue;
#endif
};

constexpr int THREADS = 2 * ROWS * COLUMNS / TILES;  // a warp for TILES · 16 positions
constexpr int RUNS = COLUMNS / 8;                    // of 8 positions, in a row
constexpr bool IN_ROWS = VECTOR < 8;                 // pixels lie one behind the other
constexpr int PARTS = CHANNELS / VECTOR;             // vectors of a pixel
constexpr int FRAGMENTS = WIDTH / 16;                // of the filter a step: of two tiles of 8 channels
constexpr bool BF16 = INPUT == 2;
static_assert(INPUT != 0 && RUNS * 8 == COLUMNS && ROWS * RUNS % (2 * TILES) == 0 && WIDTH % 32 == 0,
              "16-bit operands, whole warps, lanes of 8 channels");
static_assert(PARTS * VECTOR == CHANNELS && (VECTOR % 2 == 0 || PARTS == 1), "pairs do not cross vectors");

// VECTOR channels of a pixel, two a word.
struct PatchVector {
  unsigned word[(VECTOR + 1) / 2];
};

__device__ __forceinline__ PatchVector read_vector(const Element* from) {
  PatchVector to = {};
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) to.word[i / 2] |= (unsigned)__ldg(from + i) << i % 2 * 16;
  return to;
}

__device__ __forceinline__ void write_vector(Element* to, const PatchVector& v) {
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) to[i] = (Element)(v.word[i / 2] >> i % 2 * 16);
}

// Where a work tile begins in y.
struct PatchTile {
  int n, level, row, column;
  __device__ __forceinline__ PatchTile(const PatchParams& p, int index) {
    index = divide(p.by_columns, index, column);
    index = divide(p.by_rows, index, row);
    n = divide(p.by_levels, index, level);
    row *= ROWS, column *= COLUMNS;
  }
};

// A vector that every work tile copies: where it lies in x and in shared memory, from a tile's first
// one on; its level, row and column.
struct __align__(16) PatchUnit {
  long long from;
  int place, where;
};
constexpr int COLUMN_BITS = 14, LINE_BITS = 12;  // of ``where``

__device__ __forceinline__ void fill_units(const PatchParams& p, PatchUnit* to) {
  for (int i = threadIdx.x; i < p.copied; i += THREADS) {
    int rest, line;
    const int row = divide(p.by_row, i, rest), level = divide(p.by_lines, row, line);
    const long long from = level * p.dilation_depth * p.x_depth + line * p.x_row;
    if (IN_ROWS && p.x_vector) {
      const int first = rest * p.x_vector;
      to[i].from = from + first - p.skip, to[i].place = row * p.pitch + first;
    } else {
      const int column = rest / PARTS, first = rest % PARTS * VECTOR;
      to[i].from = from + (long long)column * p.x_pixel + first;
      to[i].place = row * p.pitch + p.skip + column * PIXEL + first;
      rest = column;
    }
    to[i].where = (level << LINE_BITS | line) << COLUMN_BITS | rest;
  }
}

// Copies what a tile's taps meet, zeros where that lies outside of x: asynchronously in vectors, else
// through registers, several at a time.
__device__ __forceinline__ void copy_patch(const PatchParams& p, const PatchTile& tile,
                                           const PatchUnit* units, Element* to) {
  constexpr int ONCE = VECTOR == 1 ? 8 : VECTOR <= 3 ? 4 : 2;
  const bool in_rows = IN_ROWS && p.x_vector;
  const int deep = tile.level * p.stride_depth - p.pad_depth;
  const int down = tile.row * p.stride_height - p.pad_height;
  const int across = tile.column * p.stride_width - p.pad_width;
  const Element* begin = p.x + tile.n * p.x_batch + deep * p.x_depth + down * p.x_row +
                         (long long)across * p.x_pixel;
  // Along a row: pixels, or elements of its vectors.
  const int first = in_rows ? across * CHANNELS - p.skip : across, apart = in_rows ? p.x_vector : 1;
  const int width = in_rows ? p.width * CHANNELS : p.width;
  const auto inside = [&](int where) {
    const unsigned column = first + (where & (1 << COLUMN_BITS) - 1) * apart;
    const unsigned line = down + (where >> COLUMN_BITS & (1 << LINE_BITS) - 1);
    const unsigned level = deep + (where >> COLUMN_BITS + LINE_BITS) * p.dilation_depth;
    return column < width && line < p.height && level < p.depth;
  };
  if (p.x_vector) {
#pragma unroll 2
    for (int i = threadIdx.x; i < p.copied; i += THREADS) {
      const PatchUnit unit = units[i];
      const bool is = inside(unit.where);
      const Element* from = is ? begin + unit.from : p.x;
      if (p.x_vector == 8) {
        copy_async<16>(to + unit.place, from, is);
      } else {
        copy_async<4>(to + unit.place, from, is);
        copy_async<4>(to + unit.place + 2, from + 2, is);
      }
    }
    return;
  }
  for (int begins = threadIdx.x; begins < p.copied; begins += ONCE * THREADS) {
    PatchVector vector[ONCE];
    int place[ONCE];
#pragma unroll
    for (int i = 0; i < ONCE; ++i) {
      vector[i] = {};
      if (begins + i * THREADS >= p.copied) continue;
      const PatchUnit unit = units[begins + i * THREADS];
      place[i] = unit.place;
      if (inside(unit.where)) vector[i] = read_vector(begin + unit.from);
    }
#pragma unroll
    for (int i = 0; i < ONCE; ++i)
      if (begins + i * THREADS < p.copied) write_vector(to + place[i], vector[i]);
  }
}

// A pair of the sum: where it lies in x, from a position's first one on, in words, and which of its
// bits there are; where its numbers lie in an output channel's filter.
struct __align__(16) PatchPair {
  long long first, second;
};
constexpr long long NONE = 1ll << 62;

__device__ __forceinline__ void fill_pairs(const PatchParams& p, int4* places, PatchPair* pairs) {
  const int lines = p.by_lines.divisor;
  for (int i = threadIdx.x; i < p.steps * 4; i += THREADS) {
    int place[2], bits[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int number = i / 4 * 8 + k * 4 + i % 4;
      int first, row;
      const int line = divide(p.by_pairs, number < p.pairs ? number : 0, first);
      const int level = divide(p.by_taps, line, row);
      first *= 2;
      place[k] = (level * lines + row * p.dilation_height) * p.pitch +
                 first / CHANNELS * p.dilation_width * PIXEL + first % CHANNELS;
      first -= p.lead;
      const bool there = number < p.pairs, is = there && first >= 0;
      const bool next = there && first + 1 < p.taps_width * CHANNELS;
      bits[k] = (is ? 0xffff : 0) | (next ? 0xffff0000 : 0);
      const long long from = level * p.depth_stride + row * p.row_stride;
      const auto at = [&](int n) {
        return from + n / CHANNELS * p.width_stride + n % CHANNELS * p.c_stride;
      };
      pairs[number] = {is ? at(first) : NONE, next ? at(first + 1) : NONE};
    }
    places[i] = make_int4(place[0] / 2, place[1] / 2, bits[0], bits[1]);
  }
}

// The filter as fragments of B: [step][32 channels][half][lane]. A lane's columns of 32 channels are 8
// neighbours: column 2q + c of the t-th tile of 8 is channel 8q + 2t + c.
__device__ __forceinline__ void fill_filter(const PatchParams& p, const PatchPair* pairs, uint4* to,
                                            int first) {
  const auto number = [](const Element* w, long long at, bool is) {
    return is && at != NONE ? (unsigned)__ldg(w + at) : 0u;
  };
#pragma unroll 4
  for (int i = threadIdx.x; i < p.steps * FRAGMENTS * 32; i += THREADS) {
    const int lane = i % 32, g = lane / 4, half = i / 32 % 2, block = i / 64 % (WIDTH / 32);
    const PatchPair* pair = pairs + i / 64 / (WIDTH / 32) * 8 + lane % 4;
    const int m = first + block * 32 + g / 2 * 8 + half * 4 + g % 2;
    unsigned word[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int channel = m + k / 2 * 2;
      const Element* w = p.w + channel * p.m_stride;
      const bool is = channel < p.out_channels;
      const PatchPair two = pair[k % 2 * 4];
      word[k] = number(w, two.first, is) | number(w, two.second, is) << 16;
    }
    to[i] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// The pair that begins so many bits behind the first one of two.
__device__ __forceinline__ unsigned two_of(unsigned low, unsigned high, int bits) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> bits);
}

// Stores 8 output channels from ``m`` on.
__device__ __forceinline__ void store_channels(const PatchParams& p, Out* y, int m, float (&sum)[8]) {
  y += m;
  if (!p.y_vectors) {
#ifdef EPILOGUE
    finish_channels<8, false>(p.epilogue, sum, y, p.y, m);
#endif
#pragma unroll
    for (int v = 0; v < 8; ++v) store_sum(y + v, sum[v]);
    return;
  }
#ifdef EPILOGUE
  finish_channels<8, true>(p.epilogue, sum, y, p.y, m);
#endif
  if constexpr (OUTPUT == 0) {
    *reinterpret_cast<float4*>(y) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    *reinterpret_cast<float4*>(y + 4) = make_float4(sum[4], sum[5], sum[6], sum[7]);
  } else {
    *reinterpret_cast<uint4*>(y) =
        make_uint4(pack<OUTPUT == 2>(sum[0], sum[1]), pack<OUTPUT == 2>(sum[2], sum[3]),
                   pack<OUTPUT == 2>(sum[4], sum[5]), pack<OUTPUT == 2>(sum[6], sum[7]));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    winolab_patches(const __grid_constant__ PatchParams p) {
  extern __shared__ __align__(16) uint4 memory[];
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int first = blockIdx.x % p.blocks_m * WIDTH, run = threadIdx.x / 32 * TILES * 2;
  uint4* filter = memory;
  int4* places = reinterpret_cast<int4*>(filter + p.steps * FRAGMENTS * 32);
  PatchPair* pairs = reinterpret_cast<PatchPair*>(places + p.steps * 4);
  PatchUnit* units = reinterpret_cast<PatchUnit*>(pairs + p.steps * 8);
  Element* patches = reinterpret_cast<Element*>(units + p.copied);
  const int patch = p.by_lines.divisor * p.taps_depth * p.pitch + 8;  // elements
  fill_units(p, units);
  fill_pairs(p, places, pairs);
  __syncthreads();

  // Where the first pair of a lane's positions lies, in words, and by how many bits it is behind.
  int begin[TILES][2], behind[TILES][2];
#pragma unroll
  for (int i = 0; i < 2 * TILES; ++i) {
    const int row = (run + i) / RUNS, column = (run + i) % RUNS * 8 + g;
    const int at = row * p.stride_height * p.pitch + column * p.stride_width * PIXEL + p.skip - p.lead;
    begin[i / 2][i % 2] = at / 2, behind[i / 2][i % 2] = at % 2 * 16;
  }

  const int apart = gridDim.x / p.blocks_m;
  int index = blockIdx.x / p.blocks_m, odd = 0;
  PatchTile next(p, index);
  if (index < p.work_tiles) copy_patch(p, next, units, patches);
  copy_async_commit();
  fill_filter(p, pairs, filter, first);
  for (; index < p.work_tiles; index += apart, odd ^= 1) {
    const PatchTile tile = next;
    copy_async_wait<0>();
    __syncthreads();
    if (index + apart < p.work_tiles) {
      next = PatchTile(p, index + apart);
      copy_patch(p, next, units, patches + (odd ^ 1) * patch);
    }
    copy_async_commit();

    const unsigned* x = reinterpret_cast<const unsigned*>(patches + odd * patch);
    float sum[TILES][FRAGMENTS * 2][4];
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int j = 0; j < FRAGMENTS * 2; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[i][j][k] = 0.0f;
    const uint4* b = filter + lane;
#pragma unroll 2
    for (int step = 0; step < p.steps; ++step, b += FRAGMENTS * 32) {
      const int4 place = places[step * 4 + q];
      unsigned a[TILES][4];
#pragma unroll
      for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const unsigned* from = x + begin[i][k % 2] + (k < 2 ? place.x : place.y);
          a[i][k] = ODD ? two_of(from[0], from[1], behind[i][k % 2]) : from[0];
          if (MASKED) a[i][k] &= k < 2 ? place.z : place.w;
        }
#pragma unroll
      for (int j = 0; j < FRAGMENTS; ++j) {
        const uint4 four = b[j * 32];
        const unsigned even[2] = {four.x, four.y}, odd[2] = {four.z, four.w};
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
          mma<BF16>(sum[i][2 * j], a[i], even);
          mma<BF16>(sum[i][2 * j + 1], a[i], odd);
        }
      }
    }

    Out* image = p.y + tile.n * p.y_batch + tile.level * p.y_depth;
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
      const int row = tile.row + (run + i) / RUNS, column = tile.column + (run + i) % RUNS * 8 + g;
      if (row >= p.out_height || column >= p.out_width) continue;
      Out* pixel = image + row * p.y_row + (long long)column * p.y_pixel;
#pragma unroll
      for (int j = 0; j < WIDTH / 32; ++j) {
        const int m = first + j * 32 + q * 8;
        float channels[8];
#pragma unroll
        for (int t = 0; t < 8; ++t) channels[t] = sum[i / 2][j * 4 + t / 2][i % 2 * 2 + t % 2];
        if (m < p.out_channels) store_channels(p, pixel, m, channels);
      }
    }
  }
}
