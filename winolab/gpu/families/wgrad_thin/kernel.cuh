// Filter gradients with few channels on one side: dw[column][channel] = Σ wide[position][channel] ·
// few[position][column], over positions of the wide side's map: x of few output channels, dy of few
// input channels. A column is a tap and one of the few channels, and what it meets of the other map.
//
// A thread has V channels of FEW columns in FP32 registers; LANES have all of a block's channels,
// COLUMN_GROUPS of them all of its columns, SLOTS of these as many positions at once. A chunk is
// POSITIONS of each slot; its channels, and what its columns meet, come to shared memory during the
// chunk before: once for all groups, and once for all channels.
//
// Barriers: all threads, once a chunk, when it is there, and the next one's places. What each writes
// behind it is the other of two buffers, whose readers have met it.
#pragma once

#include "elements.cuh"
#include "pipeline.cuh"
#include "shares.cuh"
#include "value.cuh"
#include "vector.cuh"

// A dimension: a position meets a tap at place (position · times − before + tap · step) / every of the
// other map, where that is whole.
struct ThinAxis {
  int size, taps, times, before, step, every;
};

// Strides are in elements, those of dw by what the wide and the few side have.
struct WgradThinParams {
  const Element* wide;
  const Element* few;
  Out* dw;
  float* buckets;  // [share][column][channel], where there are several shares
  long long wide_batch, wide_depth, wide_row, few_batch, few_depth, few_row;
  long long dw_channel, dw_few, dw_depth, dw_row, dw_tap;
  int wide_pixel, few_pixel;
  int depth, height, width, positions;  // of the wide map; positions of all images
  int channels, few_channels;
  int blocks_m, blocks_n, shares, chunks;  // blocks of channels, of columns; shares of the chunks
  int vectors;                             // whether V channels are read at once
  ThinAxis depths, rows, columns;
};

constexpr int SLOTS = THREADS / (LANES * COLUMN_GROUPS);
constexpr int TOGETHER = SLOTS * POSITIONS;  // positions of a chunk
constexpr int COLUMNS = COLUMN_GROUPS * FEW;  // of a block
constexpr int HELD = FEW <= 2 ? FEW : (FEW + 3) / 4 * 4;  // floats of a column group in shared memory
// Floats of a position there, no multiple of eight: neighbours' vectors lie in other banks.
constexpr int ROW =
    COLUMN_GROUPS * HELD + (COLUMN_GROUPS * HELD > 4 && COLUMN_GROUPS * HELD % 8 == 0 ? 4 : 0);
constexpr int SETS = COLUMNS < THREADS ? THREADS / COLUMNS : 1;  // positions gathered at once
constexpr int EACH = (COLUMNS + THREADS - 1) / THREADS;          // columns that a thread gathers
constexpr int ROUNDS = (TOGETHER + SETS - 1) / SETS;
static_assert(THREADS == LANES * COLUMN_GROUPS * SLOTS, "block shape");

// A position: the addresses of its channels, 0 where there is none, and of what the first tap meets.
// MASKED: which taps of each dimension meet something, a bit each; else where the first tap is along
// each dimension, before it is divided, and the address of its image.
struct __align__(16) Meeting {
  unsigned long long few;
  unsigned met;
  int depth;
  unsigned long long wide;
  int row, column;
};

constexpr int RAW = WORDS > 0 ? WORDS : 1;  // words of a lane's channels
constexpr bool LATER = INPUT > 0 && EACH * ROUNDS <= 8;  // what is gathered waits in registers

struct WgradThinShared {
  alignas(16) float few[2 * TOGETHER * ROW];  // of two chunks
  alignas(16) unsigned wide[2 * TOGETHER * LANES * RAW];
  Meeting at[2 * TOGETHER];
};

// Which taps of a dimension meet something, from where the first one does.
__device__ __forceinline__ unsigned taps_met(const ThinAxis& axis, int at) {
  unsigned found = 0;
  for (int tap = 0; tap < axis.taps; ++tap, at += axis.step)
    found |= (unsigned)((unsigned)at < (unsigned)axis.size) << tap;
  return found;
}

// The place of a dimension that a tap meets; false where there is none.
__device__ __forceinline__ bool place(const ThinAxis& axis, int& at) {
  if (at < 0 || at % axis.every) return false;
  at /= axis.every;
  return at < axis.size;
}

__device__ __forceinline__ unsigned long long address_of(const Element* base, long long elements) {
  return (unsigned long long)base + elements * (long long)sizeof(Element);
}

__device__ __forceinline__ void describe(const WgradThinParams& p, Meeting& to, unsigned position) {
  Meeting m;
  m.few = m.wide = 0, m.met = 0, m.depth = m.row = m.column = 0;
  if (position < (unsigned)p.positions) {
    const unsigned rows = position / p.width, w = position - rows * p.width;
    const unsigned levels = rows / p.height, h = rows - levels * p.height;
    const unsigned n = levels / p.depth, d = levels - n * p.depth;
    m.wide = address_of(p.wide, n * p.wide_batch + d * p.wide_depth + h * p.wide_row +
                                    (long long)w * p.wide_pixel);
    m.depth = (int)d * p.depths.times - p.depths.before;
    m.row = (int)h * p.rows.times - p.rows.before;
    m.column = (int)w * p.columns.times - p.columns.before;
    long long few = n * p.few_batch;
    if constexpr (MASKED) {
      few += m.depth * p.few_depth + m.row * p.few_row + (long long)m.column * p.few_pixel;
      m.met = taps_met(p.depths, m.depth) | taps_met(p.rows, m.row) << p.depths.taps |
              taps_met(p.columns, m.column) << (p.depths.taps + p.rows.taps);
    }
    m.few = address_of(p.few, few);
  }
  to = m;
}

// A column: its tap's bits, and how many bytes it is behind the first tap; else how far along each
// dimension, and how far its channel is behind the pixel.
struct ThinColumn {
  long long behind;
  unsigned bits;
  int depth, row, column;
  __device__ __forceinline__ ThinColumn() {}
  __device__ __forceinline__ ThinColumn(const WgradThinParams& p, unsigned number) {
    const unsigned tap = number / p.few_channels, channel = number - tap * p.few_channels;
    const unsigned rows = tap / p.columns.taps, kw = tap - rows * p.columns.taps;
    const unsigned kd = rows / p.rows.taps, kh = rows - kd * p.rows.taps;
    depth = (int)kd * p.depths.step, row = (int)kh * p.rows.step, column = (int)kw * p.columns.step;
    behind = channel, bits = 0;
    if constexpr (MASKED) {
      bits = 1u << kd | 1u << (p.depths.taps + kh) | 1u << (p.depths.taps + p.rows.taps + kw);
      behind += depth * p.few_depth + row * p.few_row + (long long)column * p.few_pixel;
    }
    behind *= sizeof(Element);
  }
  // Whether it meets something at a position, and where that is.
  __device__ __forceinline__ bool met(const WgradThinParams& p, const Meeting& at,
                                      const Element*& from) const {
    bool is;
    long long bytes = behind;
    if constexpr (MASKED) {
      is = (at.met & bits) == bits;
    } else {
      int d = at.depth + depth, h = at.row + row, w = at.column + column;
      is = at.wide && place(p.depths, d) && place(p.rows, h) && place(p.columns, w);
      bytes += (d * p.few_depth + h * p.few_row + (long long)w * p.few_pixel) * (long long)sizeof(Element);
    }
    from = reinterpret_cast<const Element*>(at.few + bytes);
    return is;
  }
};

// FEW floats of a column group of a row.
__device__ __forceinline__ void taken(const float* from, float (&to)[FEW]) {
  if constexpr (FEW <= 2) {
#pragma unroll
    for (int k = 0; k < FEW; ++k) to[k] = from[k];
  } else {
#pragma unroll
    for (int k = 0; k < FEW; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + k);
      const float each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (k + i < FEW) to[k + i] = each[i];
    }
  }
}

// Where a column of dw begins.
__device__ __forceinline__ Out* column_of(const WgradThinParams& p, unsigned number) {
  const unsigned tap = number / p.few_channels, channel = number - tap * p.few_channels;
  const unsigned rows = tap / p.columns.taps, kw = tap - rows * p.columns.taps;
  const unsigned kd = rows / p.rows.taps, kh = rows - kd * p.rows.taps;
  return p.dw + channel * p.dw_few + kd * p.dw_depth + kh * p.dw_row + kw * p.dw_tap;
}

// Copies a lane's channels to shared memory, zeros where they are not ``inside``.
__device__ __forceinline__ void copy_channels(const WgradThinParams& p, unsigned* to,
                                              const Element* from, bool inside) {
  if constexpr (V > 1) {
    if (p.vectors) {
      copy_async<16>(to, from, inside);
      return;
    }
  }
  if constexpr (INPUT == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) copy_async<4>(to + v, from + v, inside);
  } else {
    const Channels raw = read(from, inside, false);
#pragma unroll
    for (int i = 0; i < RAW; ++i) to[i] = raw.word[i];
  }
}

__device__ __forceinline__ Channels held(const unsigned* from) {
  Channels raw;
  if constexpr (RAW == 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    raw.word[0] = four.x, raw.word[1] = four.y, raw.word[2] = four.z, raw.word[3] = four.w;
  } else {
    raw.word[0] = *from;
  }
  return raw;
}

// Calls ``each`` for what a thread gathers of a chunk: its column, round and place.
template <class Each>
__device__ __forceinline__ void for_gathered(float* const (&to)[EACH], int set, int buffer, Each each) {
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    if (to[i]) {
      float* row = to[i] + buffer * (TOGETHER * ROW);
#pragma unroll 16
      for (int r = 0; r < ROUNDS; ++r)
        if (TOGETHER % SETS == 0 || set + r * SETS < TOGETHER) each(i, r, row + r * SETS * ROW);
    }
}

constexpr int AT_ONCE = FEW * THREADS * V <= SUMMED_BYTES / 4 ? FEW : SUMMED_BYTES / 4 / (THREADS * V);
static_assert(AT_ONCE >= 1, "block shape");

// Adds up what the slots have, in their order, AT_ONCE columns of each group at a time, and writes it to
// dw, or to a share's bucket. Shared memory is of the sums alone.
__device__ __forceinline__ void finish(const WgradThinParams& p, float* sums, const float (&acc)[FEW][V],
                                       int first_column, int first_channel, int share) {
  constexpr int WIDTH = LANES * V, OF_SLOT = COLUMN_GROUPS * WIDTH, OF_COLUMN = SLOTS * OF_SLOT;
  const int lane = threadIdx.x % LANES, rest = threadIdx.x / LANES;
  const int column_group = rest % COLUMN_GROUPS, slot = rest / COLUMN_GROUPS;
#pragma unroll
  for (int first = 0; first < FEW; first += AT_ONCE) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k)
      if (first + k < FEW)
#pragma unroll
        for (int v = 0; v < V; ++v)
          sums[k * OF_COLUMN + slot * OF_SLOT + column_group * WIDTH + v * LANES + lane] = acc[first + k][v];
    __syncthreads();
    for (int e = threadIdx.x; e < AT_ONCE * OF_SLOT; e += THREADS) {
      const int k = e / OF_SLOT, within = e % OF_SLOT;
      if (first + k >= FEW) break;
      float sum = 0.0f;
#pragma unroll 8
      for (int s = 0; s < SLOTS; ++s)
        sum = __fadd_rn(sum, sums[k * OF_COLUMN + s * OF_SLOT + within]);
      const int place = within % WIDTH, m = first_channel + place % LANES * V + place / LANES;
      const int number = first_column + within / WIDTH * FEW + first + k;
      if (m >= p.channels || number >= p.few_channels * p.depths.taps * p.rows.taps * p.columns.taps)
        continue;
      if (p.shares == 1)
        store_sum(column_of(p, number) + m * p.dw_channel, sum);
      else
        p.buckets[((long long)share * p.few_channels * p.depths.taps * p.rows.taps * p.columns.taps +
                   number) * p.channels + m] = sum;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    winolab_wgrad_thin(const __grid_constant__ WgradThinParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  WgradThinShared& shared = *reinterpret_cast<WgradThinShared*>(memory);
  const unsigned inner = p.blocks_m * p.blocks_n, share = blockIdx.x / inner;
  const unsigned block = blockIdx.x - share * inner, column_block = block / p.blocks_m;
  const int first_channel = (block - column_block * p.blocks_m) * (LANES * V);
  const int first_column = column_block * COLUMNS;
  const int lane = threadIdx.x % LANES, rest = threadIdx.x / LANES;
  const int column_group = rest % COLUMN_GROUPS, slot = rest / COLUMN_GROUPS, base = first_channel + lane * V;
  const bool mine = base < p.channels;

  const int set = threadIdx.x / COLUMNS, own = threadIdx.x % COLUMNS;  // of what it gathers
  const int columns = p.few_channels * p.depths.taps * p.rows.taps * p.columns.taps;
  ThinColumn column[EACH];
  float* to[EACH];  // its first place in a buffer; null: the thread gathers no such column
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int number = own + i * THREADS;
    const bool is = number < COLUMNS && set < min(SETS, TOGETHER);
    column[i] = ThinColumn(p, min(first_column + number, columns - 1));
    to[i] = is ? shared.few + set * ROW + number / FEW * HELD + number % FEW : nullptr;
  }
  const auto describe_all = [&](int buffer, long long chunk) {
    for (int i = threadIdx.x; i < TOGETHER; i += THREADS) {
      const long long at = chunk * TOGETHER + i;
      describe(p, shared.at[buffer * TOGETHER + i], at < p.positions ? (unsigned)at : ~0u);
    }
  };
  float waiting[LATER ? EACH : 1][LATER ? ROUNDS : 1];
  const auto bring = [&](int buffer) {
    const Meeting* at = shared.at + buffer * TOGETHER;
#pragma unroll
    for (int i = 0; i < POSITIONS; i += COLUMN_GROUPS) {
      const int position = i * SLOTS + rest;  // all threads copy, whatever their column group
      if (POSITIONS % COLUMN_GROUPS && position >= TOGETHER) break;
      const unsigned long long wide = at[position].wide;
      copy_channels(p, shared.wide + ((buffer * TOGETHER + position) * LANES + lane) * RAW,
                    reinterpret_cast<const Element*>(wide) + base, mine && wide);
    }
    for_gathered(to, set, buffer, [&](int i, int r, float* place) {
      const Element* from;
      const bool is = column[i].met(p, at[set + r * SETS], from);
      if constexpr (INPUT == 0)
        copy_async<4>(place, from, is);
      else if constexpr (LATER)
        waiting[i][r] = is ? value(from) : 0.0f;
      else
        *place = is ? value(from) : 0.0f;
    });
    copy_async_commit();
  };
  const auto put = [&](int buffer) {
    if constexpr (LATER)
      for_gathered(to, set, buffer, [&](int i, int r, float* place) { *place = waiting[i][r]; });
  };

  float acc[FEW][V];
#pragma unroll
  for (int k = 0; k < FEW; ++k)
#pragma unroll
    for (int v = 0; v < V; ++v) acc[k][v] = 0.0f;
  describe_all(0, share);
  __syncthreads();
  bring(0);
  put(0);
  describe_all(1, (long long)share + p.shares);
  int buffer = 0;
#pragma unroll 1
  for (long long chunk = share; chunk < p.chunks; chunk += p.shares, buffer ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    bring(buffer ^ 1);
    describe_all(buffer, chunk + 2 * p.shares);
#pragma unroll
    for (int i = 0; i < POSITIONS; ++i) {
      const int position = slot + i * SLOTS;
      const Channels raw = held(shared.wide + ((buffer * TOGETHER + position) * LANES + lane) * RAW);
      float few[FEW];
      taken(shared.few + (buffer * TOGETHER + position) * ROW + column_group * HELD, few);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float one = channel(raw, v);
#pragma unroll
        for (int k = 0; k < FEW; ++k) acc[k][v] = __fmaf_rn(one, few[k], acc[k][v]);
      }
    }
    put(buffer ^ 1);
  }
  copy_async_wait<0>();  // of what lies behind the last chunk, where there will be sums
  next_launch_may_begin();
  finish(p, reinterpret_cast<float*>(memory), acc, first_column, first_channel, share);
}

// Adds up the shares of SUMS_AT_ONCE sums a block, by SLICES threads each.
extern "C" __global__ void __launch_bounds__(SUMS_AT_ONCE * SLICES)
    winolab_wgrad_thin_sums(const __grid_constant__ WgradThinParams p) {
  launch_before_done();
  const int columns = p.few_channels * p.depths.taps * p.rows.taps * p.columns.taps;
  const long long size = (long long)columns * p.channels;
  add_shares<SUMS_AT_ONCE, SLICES>(p, size, [&](long long element, float sum) {
    const int number = (int)(element / p.channels), m = (int)(element % p.channels);
    store_sum(column_of(p, number) + m * p.dw_channel, sum);
  });
}
