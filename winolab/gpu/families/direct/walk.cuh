// What blocks of direct products compute, and the copies that their producer threads order.
//
// A work tile is a box of at most BN output positions × BM output channels; a step is KC channels of
// a tap, for which a thread orders a tensor copy of x, shifted by the tap, and one of w, of 128 bytes
// a position and an output channel. Blocks are persistent; or the SPLIT_K of a cluster share a
// work tile's steps.
//
// ALONG: a copy of x serves all taps of a filter row. Its rows have taps - 1 pixels more, which
// stand for positions too, of no output; the next tap's matrix begins a pixel, 128 bytes, further
// on. L2 is asked for less.
//
// Backward data (ROTATED): output channels are neighbours in w, which wgmma reads along them, and
// taps are walked backwards. SPLIT, a copy of w has rows of a high and a low part of 32 channels, in
// the order in which taps are walked.
//
// STRIDED: any stride and dilation. Forward, a copy of x brings every stride-th pixel, by the tensor
// map. Backward data of stride s is s phases of outputs along each dimension, s apart, each of unit
// stride: of the taps that meet it (Taps). Phases vary last, those of the most taps first.
#pragma once

#ifdef EPILOGUE
#include "epilogue.cuh"
#endif
#include "mma.cuh"
#include "pipe.cuh"
#include "tensor_map.cuh"
#include "either.cuh"
#include "axes.cuh"

using Output = Either<WIDE_OUT, float, unsigned short>::type;  // of results

struct DirectParams {
  TensorMap x_map, w_map;
  Output* y;
  long long y_batch, y_depth, y_row;  // strides in elements
  int y_pixel;
  int box_width, box_height, box_images, box_bytes;  // of x
  int blocks_width, blocks_height, blocks_images, blocks_m, work_tiles;
  int batch, out_depth, out_height, out_width, out_channels;
  int pad_depth, pad_height, pad_width;
  int taps_depth, taps_height, taps_width, chunks;
  int pitch;  // positions of a box's row
  DirectAxis along_depth, along_height, along_width;  // STRIDED
#ifdef EPILOGUE
  alignas(64) EpilogueParams epilogue;
#endif
};

constexpr int CONSUMERS = SPLIT ? 2 * BN : 256, THREADS = CONSUMERS + 128;
constexpr int ROW_BYTES = 128, KC = 64;   // of 64 channels, or of two parts of 32
constexpr int X_CHANNELS = SPLIT ? 32 : 64;  // of a step
constexpr int PLANE = KC * ROW_BYTES;     // of 64 output channels of w, BY_CHANNELS
constexpr bool BY_CHANNELS = ROTATED && !SPLIT;  // output channels are neighbours in w
constexpr int HELD = BN / 128;            // of a warpgroup's 64 positions
constexpr int PIXELS = ALONG ? BN + 8 : BN;  // of a stage, for up to nine taps
constexpr int PRODUCER_REGISTERS = BY_CHANNELS && STRIDED ? 72 : CONSUMERS > 256 ? 32 : 40;
constexpr int CONSUMER_REGISTERS =
    BY_CHANNELS && STRIDED ? 216 : CONSUMERS == 512 ? 112 : CONSUMERS == 384 ? 160 : 232;
static_assert(BM % (BY_CHANNELS ? 64 : 32) == 0 && BM / 8 % SPLIT_K == 0, "output channels of a block");

struct DirectShared {
  unsigned char x[X_STAGES][PIXELS * ROW_BYTES];
  unsigned char w[W_STAGES][BM * ROW_BYTES];
  unsigned long long x_full[X_STAGES], x_empty[X_STAGES], w_full[W_STAGES], w_empty[W_STAGES];
};
static_assert(sizeof(DirectShared) <= SHARED, "as the plan has it");
static_assert(SPLIT_K == 1 || sizeof(DirectShared) >= BN * BM * 4, "room for a block's sums");

// What a block computes: its first output channel and position, and which copies of x, of how many,
// it sums.
struct DirectWorkTile {
  int channel, width, height, depth, image, steps, begin, end;
  Taps taps_depth, taps_height, taps_width;  // STRIDED
  __device__ __forceinline__ DirectWorkTile(const DirectParams& p, int index) {
    channel = index % p.blocks_m * BM, index /= p.blocks_m;
    width = index % p.blocks_width * p.box_width, index /= p.blocks_width;
    height = index % p.blocks_height * p.box_height, index /= p.blocks_height;
    if constexpr (STRIDED) {
      depth = index % p.along_depth.outputs, index /= p.along_depth.outputs;
      image = index % p.blocks_images * p.box_images, index /= p.blocks_images;
      taps_width = Taps(p.along_width, index % p.along_width.phases, p.taps_width, p.pad_width);
      index /= p.along_width.phases;
      taps_height =
          Taps(p.along_height, index % p.along_height.phases, p.taps_height, p.pad_height);
      taps_depth =
          Taps(p.along_depth, index / p.along_height.phases, p.taps_depth, p.pad_depth);
      const int copies = ALONG ? taps_width.count > 0 : taps_width.count;
      steps = taps_depth.count * taps_height.count * copies * p.chunks;
    } else {
      depth = index % p.out_depth;
      image = index / p.out_depth * p.box_images;
      steps = p.taps_depth * p.taps_height * (ALONG ? 1 : p.taps_width) * p.chunks;
    }
    const int rank = SPLIT_K > 1 ? (int)blockIdx.x % SPLIT_K : 0;
    begin = steps * rank / SPLIT_K, end = steps * (rank + 1) / SPLIT_K;
  }
};

// A step's filters.
__device__ __forceinline__ void bring(const DirectParams& p, unsigned char* filters, int channel,
                                      int w, int h, int d, int chunk, unsigned long long* full) {
  if constexpr (BY_CHANNELS) {
    for (int n = 0; n < BM / 64; ++n)
      box_copy(filters + n * PLANE, p.w_map, channel + n * 64, p.taps_width - 1 - w,
               p.taps_height - 1 - h, p.taps_depth - 1 - d, chunk * KC, full);
  } else {
    box_copy(filters, p.w_map, chunk * KC, w, h, d, channel, full);
  }
}

// Whether a block's stages hold all of its filter, which is copied once then: its work tiles have the
// same output channels.
__device__ __forceinline__ bool filter_stays(const DirectParams& p) {
  if constexpr (!SPLIT || SPLIT_K > 1 || (STRIDED && ROTATED)) return false;
  return p.taps_depth * p.taps_height * p.taps_width * p.chunks <= W_STAGES &&
         gridDim.x % p.blocks_m == 0;
}

__device__ __forceinline__ void produce(const DirectParams& p, DirectShared& shared) {
  Pipe<X_STAGES> x_pipe;
  Pipe<W_STAGES> w_pipe;
  const bool stays = filter_stays(p);
  const int of_copy = ALONG ? p.taps_width : 1;  // taps that one of x serves
#pragma unroll 1
  for (int index = blockIdx.x / SPLIT_K; index < p.work_tiles; index += gridDim.x / SPLIT_K) {
    const DirectWorkTile work(p, index);
    if (STRIDED && work.begin == work.end) continue;
    const auto along = [&] { return STRIDED ? work.taps_width.count : p.taps_width; };
    const auto rows = [&] { return STRIDED ? work.taps_height.count : p.taps_height; };
    const auto taps = [&] { return STRIDED && ALONG ? work.taps_width.count : of_copy; };
    const auto brought = [&] { return stays && index != (int)blockIdx.x ? 0 : taps(); };
    int chunk = work.begin % p.chunks, tap = work.begin / p.chunks * taps();
    int w = tap % along(), h = tap / along() % rows(), d = tap / along() / rows();
#pragma unroll 1
    for (int step = work.begin; step < work.end; ++step) {
      unsigned long long* x_full = &shared.x_full[x_pipe.stage];
      barrier_wait(&shared.x_empty[x_pipe.stage], x_pipe.phase ^ 1);
      barrier_arrive_expect(x_full, p.box_bytes);
      if constexpr (STRIDED)
        box_copy(shared.x[x_pipe.stage], p.x_map, chunk * X_CHANNELS,
                 meets(p.along_width, work.taps_width, work.width, w),
                 meets(p.along_height, work.taps_height, work.height, h),
                 meets(p.along_depth, work.taps_depth, work.depth, d), work.image, x_full);
      else
        box_copy(shared.x[x_pipe.stage], p.x_map, chunk * X_CHANNELS, work.width + w - p.pad_width,
                 work.height + h - p.pad_height, work.depth + d - p.pad_depth, work.image, x_full);
      x_pipe.advance();
#pragma unroll 1
      for (int t = 0; t < brought(); ++t) {
        unsigned long long* w_full = &shared.w_full[w_pipe.stage];
        barrier_wait(&shared.w_empty[w_pipe.stage], w_pipe.phase ^ 1);
        barrier_arrive_expect(w_full, BM * ROW_BYTES);
        if constexpr (STRIDED)
          bring(p, shared.w[w_pipe.stage], work.channel,
                work.taps_width.first + (w + t) * p.along_width.apart,
                work.taps_height.first + h * p.along_height.apart,
                work.taps_depth.first + d * p.along_depth.apart, chunk, w_full);
        else
          bring(p, shared.w[w_pipe.stage], work.channel, w + t, h, d, chunk, w_full);
        w_pipe.advance();
      }
      if (++chunk == p.chunks) {
        chunk = 0;
        if ((w += taps()) == along()) {
          w = 0;
          if (++h == rows()) h = 0, ++d;
        }
      }
    }
  }
}

// A position of a box in y, by its number; null where there is none.
__device__ __forceinline__ Output* position(const DirectParams& p, const DirectWorkTile& work, int at) {
  const int column = at % p.pitch, row = at / p.pitch, box_image = row / p.box_height;
  int w = work.width + column, h = work.height + row % p.box_height, d = work.depth;
  const int n = work.image + box_image;
  if (STRIDED && ROTATED) {
    w = work.taps_width.output + w * p.along_width.stride;
    h = work.taps_height.output + h * p.along_height.stride;
    d = work.taps_depth.output + d * p.along_depth.stride;
    if (d >= p.out_depth) return nullptr;
  }
  if (column >= p.box_width || w >= p.out_width || h >= p.out_height ||
      box_image >= p.box_images || n >= p.batch)
    return nullptr;
  return p.y + n * p.y_batch + d * p.y_depth + h * p.y_row + (long long)w * p.y_pixel +
         work.channel;
}
