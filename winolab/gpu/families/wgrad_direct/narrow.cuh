// dW by direct products on wgmma, of x and dy as they lie in memory: nothing is transformed, and
// the only workspace is the segments' sums.
//
// The sum runs over positions (gradient_scheduler.cuh with R = 1): a row of dy has PITCH of them,
// its width and TAPS - 1 zeros. What TAPS neighbouring taps of a filter row meet at a position of
// dy are then as many neighbouring positions of x: a stage of KS positions of dy and KS + TAPS - 1
// of x serves all of them, and x's matrix for tap t begins t rows further on. Products with the
// zeros between rows are products nevertheless: an infinity in x may reach taps that do not meet
// it, as NaN.
//
// Roles: producers copy 16 bytes at a time, exchanged as wgmma reads them with the 128-byte
// swizzle; two consumer warpgroups multiply.
//
// Barriers: who arrives → who waits
//   full[stage]    every producer, when its copies are there → consumers
//   empty[stage]   a lane of each consumer warp → producers
#pragma once

#include "elements.cuh"
#include "pipe.cuh"
#include "pipeline.cuh"
#include "gradient_scheduler.cuh"
#include "split_k.cuh"

constexpr int TAPS = N, KS = KC;
constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
constexpr int COPIED = PRODUCERS / 8;          // positions that producers copy at once
// Warpgroups have 64 output channels each; of the same ones half of the taps, or of the positions.
constexpr int GROUPS_M = BO / 64;
constexpr int GROUPS_K = GROUPS_M * TAPS % GROUPS ? GROUPS / GROUPS_M : 1;
constexpr int GROUP_TAPS = GROUPS_M * GROUPS_K * TAPS / GROUPS;
constexpr int ROWS = KS + (TAPS > 1 ? 8 : 0);  // of a stage of x
constexpr int PLANES = BI / 64;                // of 64 channels
// An instruction multiplies all channels for one tap; or 64 channels for neighbouring taps, whose
// matrices begin 128 bytes apart.
constexpr bool JOINED = BI == 64;
constexpr int WIDEST = PRODUCERS == 128 ? 256 : 192;  // that the launch's registers allow
constexpr int WN = !JOINED ? BI : 64 * GROUP_TAPS <= WIDEST ? 64 * GROUP_TAPS : 32 * GROUP_TAPS;
constexpr int INSTRUCTIONS = BI * GROUP_TAPS / WN;    // instructions of 16 positions
constexpr int INSTRUCTION_TAPS = JOINED ? WN / 64 : 1;
constexpr int DESCRIBED = PRODUCERS / KS;      // steps whose positions are found at once
constexpr int TABLES = 3;  // of such positions: read, read by the last taps, written
// Registers of the launch are handed from the producers to those that multiply.
constexpr int PRODUCER_REGISTERS = PRODUCERS == 128 ? 72 : 88;
constexpr int CONSUMER_REGISTERS = PRODUCERS == 128 ? 216 : 168;
static_assert(KS % (16 * GROUPS_K) == 0 && DESCRIBED >= 1 && TAPS <= 8, "stage shape");

struct __align__(16) PositionSource {
  const Element* x;  // null: zeros
  const Element* dy;
};

struct NarrowShared {
  unsigned short dy[STAGES][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[STAGES][PLANES][ROWS * 64];
  PositionSource places[TABLES * PRODUCERS];  // a ring
  unsigned long long full[STAGES], empty[STAGES];
};

// A position of the sum that goes on PRODUCERS positions at a time, without divisions.
struct PositionWalk {
  int index, column, row, depth, image;
  long long x, dy;                            // offsets of the position in both arrays
  int by_column, by_row, by_depth, by_image;  // PRODUCERS positions in these units
  long long x_by, dy_by;
  int pitch, rows, depths;
  __device__ __forceinline__ PositionWalk(const GradientParams& p, const GradientWorkTile& work, int first)
      : index(first), pitch(p.pitch), rows(max(1, work.rows)), depths(max(1, work.depths)) {
    split(first, column, row, depth, image);
    split(PRODUCERS, by_column, by_row, by_depth, by_image);
    x = offset(column, row, depth, image, p.x_pixel, p.x_row, p.x_depth, p.x_batch);
    dy = offset(column, row, depth, image, p.dy_pixel, p.dy_row, p.dy_depth, p.dy_batch);
    x_by = offset(by_column, by_row, by_depth, by_image, p.x_pixel, p.x_row, p.x_depth, p.x_batch);
    dy_by = offset(by_column, by_row, by_depth, by_image, p.dy_pixel, p.dy_row, p.dy_depth,
                   p.dy_batch);
  }
  __device__ __forceinline__ void split(int at, int& c, int& h, int& d, int& n) const {
    c = at % pitch, at /= pitch;
    h = at % rows, at /= rows;
    d = at % depths, n = at / depths;
  }
  static __device__ __forceinline__ long long offset(int c, int h, int d, int n, int by_c,
                                                     long long by_h, long long by_d,
                                                     long long by_n) {
    return c * (long long)by_c + h * by_h + d * by_d + n * by_n;
  }
  __device__ __forceinline__ void advance(const GradientParams& p) {
    index += PRODUCERS, x += x_by, dy += dy_by;
    column += by_column;
    const bool next_row = column >= pitch;
    if (next_row) {
      column -= pitch;
      x += p.x_row - pitch * (long long)p.x_pixel, dy += p.dy_row - pitch * (long long)p.dy_pixel;
    }
    row += by_row + next_row;
    const bool next_depth = row >= rows;
    if (next_depth)
      row -= rows, x += p.x_depth - rows * p.x_row, dy += p.dy_depth - rows * p.dy_row;
    depth += by_depth + next_depth;
    const bool next_image = depth >= depths;
    if (next_image)
      depth -= depths, x += p.x_batch - depths * p.x_depth, dy += p.dy_batch - depths * p.dy_depth;
    image += by_image + next_image;
  }
};

__device__ __forceinline__ void produce(const GradientParams& p, NarrowShared& shared,
                                        const GradientWorkTile& work) {
  const int thread = threadIdx.x - 128 * GROUPS, unit = thread % 8, first = thread / 8;
  const int ins = (p.channels - work.in + 7) / 8 - unit;
  const int outs = (p.out_channels - work.out + 7) / 8 - unit;
  const Element* x = p.x + work.group * p.channels + work.in +
                     (work.depth0 + work.tap_depth - p.pad_depth) * p.x_depth +
                     (work.row0 + work.tap_height - p.pad_height) * p.x_row +
                     (long long)(work.tap_width - p.pad_width) * p.x_pixel;
  const Element* dy = p.dy + work.group * p.out_channels + work.out + work.depth0 * p.dy_depth +
                      work.row0 * p.dy_row;
  PositionWalk walk(p, work, work.begin + thread);
  int table = 0;
  // Taps after the first meet x beyond the segment's last position.
  const auto describe = [&] {
    PositionSource place = {nullptr, nullptr};
    if (walk.image < p.batch) {
      const unsigned column = walk.column + work.tap_width - p.pad_width;
      if (column < (unsigned)p.width && walk.index < work.end + TAPS - 1) place.x = x + walk.x;
      if (walk.column < p.out_width && walk.index < work.end) place.dy = dy + walk.dy;
    }
    shared.places[table * PRODUCERS + thread] = place;
    walk.advance(p);
    table = table == TABLES - 1 ? 0 : table + 1;
  };
  const auto copy = [&](unsigned short* plane, int row, const Element* from, bool inside) {
    copy_async<16>(plane + row * 64 + (unit ^ row % 8) * 8, from + unit * 8, inside);
  };
  const auto place = [&](int step, int row) -> const PositionSource& {
    const int at = step % (TABLES * DESCRIBED) * KS + row;
    return shared.places[at < TABLES * PRODUCERS ? at : at - TABLES * PRODUCERS];
  };
  const int steps = work.steps();
  Pipe<STAGES> pipe;
  describe();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step % DESCRIBED == 0) {
      describe();  // of the next steps: this one's taps reach into them
      producers_sync<PRODUCERS>();
    }
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int i = 0; i < KS / COPIED; ++i) {
      const int row = first + COPIED * i;
      const PositionSource from = place(step, row);
#pragma unroll
      for (int b = 0; b < GROUPS_M; ++b)
        copy(shared.dy[pipe.stage][b], row, from.dy + b * 64, from.dy && b * 8 < outs);
#pragma unroll
      for (int b = 0; b < PLANES; ++b)
        copy(shared.x[pipe.stage][b], row, from.x + b * 64, from.x && b * 8 < ins);
    }
    if (TAPS > 1 && first < TAPS - 1) {
      const Element* from = place(step, KS + first).x;
#pragma unroll
      for (int b = 0; b < PLANES; ++b)
        copy(shared.x[pipe.stage][b], KS + first, from + b * 64, from && b * 8 < ins);
    }
    copy_async_arrive(&shared.full[pipe.stage]);
    pipe.advance();
  }
}

// Two neighbouring channels of dw, or of a segment's sums.
template <class T>
__device__ __forceinline__ void store_pair(T* to, long long by_in, int ins, float first,
                                           float second) {
  if constexpr (sizeof(T) == 4) {
    if (ins > 0) to[0] = first;
    if (ins > 1) to[by_in] = second;
  } else {
    if (ins > 0) store_sum(to, first);
    if (ins > 1) store_sum(to + by_in, second);
  }
}

// The sums of both warpgroups, in the first one's registers; whether this is the first one. The
// stages are free: nobody reads or fills them any more.
__device__ __forceinline__ bool sum_up(NarrowShared& shared, float (&acc)[INSTRUCTIONS][WN / 2],
                                       int group_k) {
  static_assert(GROUPS_K <= 2 && sizeof shared.dy + sizeof shared.x >= sizeof(acc) * 128, "room");
  float* const box = reinterpret_cast<float*>(&shared) + threadIdx.x % 128;
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) {
#pragma unroll
    for (int i = 0; i < INSTRUCTIONS * WN / 2; ++i) box[i * 128] = acc[i / (WN / 2)][i % (WN / 2)];
  }
  consumers_sync<128 * GROUPS>();
  if (group_k > 0) return false;
#pragma unroll
  for (int i = 0; i < INSTRUCTIONS * WN / 2; ++i) {
    float& sum = acc[i / (WN / 2)][i % (WN / 2)];
    sum = __fadd_rn(sum, box[i * 128]);
  }
  return true;
}

__device__ __forceinline__ void consume(const GradientParams& p, NarrowShared& shared,
                                        const GradientWorkTile& work) {
  const int group_m = threadIdx.x / 128 % GROUPS_M, other = threadIdx.x / 128 / GROUPS_M;
  const int group_k = GROUPS_K > 1 ? other : 0, tap0 = GROUPS_K > 1 ? 0 : other * GROUP_TAPS;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float acc[INSTRUCTIONS][WN / 2] = {};
  const int steps = work.steps();
  Pipe<STAGES> pipe;
  int last = -1;
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[stage]);
  };
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned long long a =
        matrix_descriptor(shared.dy[pipe.stage][group_m] + group_k * (KS / GROUPS_K * 64), 1024,
                          1024, Swizzle::B128);
    const unsigned long long b =
        matrix_descriptor(shared.x[pipe.stage][0] + (group_k * (KS / GROUPS_K) + tap0) * 64,
                          JOINED ? 128 : ROWS * 128, 1024, Swizzle::B128);
    barrier_wait(&shared.full[pipe.stage], pipe.phase);
    fence_async();  // copies of 16 bytes are not of the proxy that wgmma reads by
#pragma unroll
    for (int instruction = 0; instruction < INSTRUCTIONS; ++instruction) wgmma_pin(acc[instruction]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KS / GROUPS_K; k += 16)
#pragma unroll
      for (int instruction = 0; instruction < INSTRUCTIONS; ++instruction)
        wgmma<WN, BF16, true, true>(acc[instruction], descriptor_offset(a, k * 128),
                                    descriptor_offset(b, (instruction * INSTRUCTION_TAPS + k) * 128), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (last >= 0) release(last);
    last = pipe.stage;
    pipe.advance();
  }
  wgmma_wait<0>();
  next_launch_may_begin();  // not before: its blocks would take issue slots from these
#pragma unroll
  for (int instruction = 0; instruction < INSTRUCTIONS; ++instruction) wgmma_pin(acc[instruction]);
  if constexpr (GROUPS_K > 1) {
    if (!sum_up(shared, acc, group_k)) return;
  }

  const bool whole = p.segments == 1;
  const long long row_size = (long long)p.taps_width * p.channels;
  const long long size = p.taps_depth * p.taps_height * row_size;  // of an output channel
  const long long by_out = whole ? p.dw_out : size, by_tap = whole ? p.dw_tap : p.channels;
  const long long by_in = whole ? p.dw_in : 1;
  const int out = work.out + group_m * 64 + warp * 16 + lane / 4;
  const long long at =
      (work.group * p.out_channels + out) * by_out + work.tap_width * by_tap + work.in * by_in +
      (whole ? work.tap_depth * p.dw_depth + work.tap_height * p.dw_row
             : work.segment * (size * p.out_channels * p.groups) +
                   (work.tap_depth * p.taps_height + work.tap_height) * row_size);
#pragma unroll
  for (int instruction = 0; instruction < INSTRUCTIONS; ++instruction)
#pragma unroll
    for (int i = 0; i < WN / 2; i += 2) {
      const int column = i / 4 * 8 + lane % 4 * 2, down = i / 2 % 2 * 8;
      const int tap = tap0 + instruction * INSTRUCTION_TAPS + (JOINED ? column / 64 : 0);
      const int in = JOINED ? column % 64 : column;
      if (out + down >= p.out_channels || work.tap_width + tap >= p.taps_width) continue;
      const long long to = at + down * by_out + tap * by_tap + in * by_in;
      const int ins = p.channels - work.in - in;
      if (whole)
        store_pair(p.dw + to, by_in, ins, acc[instruction][i], acc[instruction][i + 1]);
      else
        store_pair(p.buckets + to, 1, ins, acc[instruction][i], acc[instruction][i + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winolab_wgrad_direct_narrow(const __grid_constant__ GradientParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  NarrowShared& shared = *reinterpret_cast<NarrowShared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&shared.full[s], PRODUCERS);
      barrier_init(&shared.empty[s], GROUPS * 4);
    }
    barriers_ready();
  }
  __syncthreads();
  const GradientWorkTile work(p, blockIdx.x);
  if (threadIdx.x < 128 * GROUPS) {
    registers_grow<CONSUMER_REGISTERS>();
    consume(p, shared, work);
  } else {
    registers_shrink<PRODUCER_REGISTERS>();
    produce(p, shared, work);
  }
}
