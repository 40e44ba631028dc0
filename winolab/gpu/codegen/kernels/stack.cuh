// A map's phases by a stride as channels of a smaller map, and back: pixel i of the smaller one has,
// for every phase q, the channels of the map's pixel step i + q - shift, in the order of phases by
// depth, height, width. What lies outside is 0: pixels and channels behind the last of the phases; of
// a map that is made, what the smaller one does not have. A filter is such a map, of taps.
//
// Roles: a block has a row, or a part of it, of the map that is made. Of the smaller map it first
// finds where the elements of a pixel lie in the map, or the vectors where channels are whole ones;
// its threads then have vectors of 16 bytes, those of a pixel side by side. Of the map they have
// elements or vectors.
#pragma once

#include "either.cuh"
#include "quotient.cuh"

constexpr int STACK_THREADS = 256, STACK_EACH = 4, STACK_VECTOR = 16 / STACK_SIZE;
constexpr int STACK_HELD = 64;  // vectors of a pixel that a block has, at most
using StackElement = Either<STACK_SIZE == 4, unsigned, unsigned short>::type;

struct StackAxis {
  long long stride;   // of the map
  int size, stacked;  // pixels of the map, and of the smaller one
  int step, phases, shift;
};

struct StackParams {
  StackElement* map;
  StackElement* stacked;  // dense
  long long batch_stride, channel_stride;  // of the map
  int channels, pitch;  // of a pixel of the map; of the smaller one's, with those that are filled up
  int wide;             // whether elements of both come in vectors
  StackAxis depth, height, width;
  Quotient by_parts, by_rows, by_levels;  // blocks of a row; rows, levels of the map that is made
  Quotient by_held;      // vectors of a pixel of the smaller map that a block has
  Quotient by_channels;  // of the map, or vectors of them where ``wide``
  Quotient by_wide, by_high, by_deep;  // phases of each axis; steps where the map is made
};

// Where an element or a vector of the smaller map's first pixel lies, and at which pixel of a row of
// the map: before the row where there is none at any pixel.
struct StackSource {
  const StackElement* from;
  int w;
};

// The map's pixel that is the phase of a pixel of the smaller one, or -1.
__device__ __forceinline__ int unstacked(const StackAxis& axis, int pixel, int phase) {
  const int at = pixel * axis.step + phase - axis.shift;
  return phase < axis.phases && at >= 0 && at < axis.size ? at : -1;
}

__device__ __forceinline__ StackSource stack_source(const StackParams& p, int row, int element) {
  int i_h, i_d, channel, of_width, of_height;
  const int image = divide(p.by_levels, divide(p.by_rows, row, i_h), i_d);
  const int behind = divide(p.by_wide, divide(p.by_channels, element, channel), of_width);
  const int of_depth = divide(p.by_high, behind, of_height);
  const int h = unstacked(p.height, i_h, of_height), d = unstacked(p.depth, i_d, of_depth);
  if ((d | h) < 0) return {p.map, -p.width.stacked * p.width.step};
  const int w = of_width - p.width.shift;
  return {p.map + image * p.batch_stride + d * p.depth.stride +
              h * p.height.stride + w * p.width.stride +
              channel * (p.wide ? STACK_VECTOR : p.channel_stride),
          w};
}

// A row of the smaller map.
template <bool WIDE>
__device__ __forceinline__ void stack_row(const StackParams& p, int row, int part) {
  constexpr int PIECES = WIDE ? 1 : STACK_VECTOR, EACH = WIDE ? STACK_EACH : STACK_EACH / 2;
  using Piece = typename Either<WIDE, uint4, StackElement>::type;
  __shared__ StackSource sources[STACK_HELD * PIECES];
  const int vectors = p.pitch / STACK_VECTOR, held = p.by_held.divisor;
  const int first = blockIdx.y * held, here = min(held, vectors - first);
  for (int e = threadIdx.x; e < here * PIECES; e += STACK_THREADS)
    sources[e] = stack_source(p, row, first * PIECES + e);
  __syncthreads();

  Piece v[EACH][PIECES];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    int vector;
    const int pixel = divide(
        p.by_held, (part * EACH + k) * STACK_THREADS + threadIdx.x, vector);
    const bool there = pixel < p.width.stacked && vector < here;
    const int w = pixel * p.width.step;
    const long long apart = w * p.width.stride;
#pragma unroll
    for (int e = 0; e < PIECES; ++e) {
      v[k][e] = Piece{};
      const StackSource source = sources[there ? vector * PIECES + e : 0];
      if (there && source.w + w >= 0 && source.w + w < p.width.size)
        v[k][e] = *reinterpret_cast<const Piece*>(source.from + apart);
    }
  }
  uint4* const to = reinterpret_cast<uint4*>(p.stacked) +
                    (long long)row * p.width.stacked * vectors + first;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    int vector;
    const int pixel = divide(
        p.by_held, (part * EACH + k) * STACK_THREADS + threadIdx.x, vector);
    if (pixel >= p.width.stacked || vector >= here) continue;
    if constexpr (WIDE) {
      to[pixel * vectors + vector] = v[k][0];
    } else {
      unsigned word[4] = {};
#pragma unroll
      for (int e = 0; e < PIECES; ++e)
        word[e * STACK_SIZE / 4] |= (unsigned)v[k][e] << e * STACK_SIZE % 4 * 8;
      to[pixel * vectors + vector] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

// The pixel and the phase of the smaller map that are the map's; whether there are such.
__device__ __forceinline__ bool stacked(const StackAxis& axis, const Quotient& by_step, int at,
                                        int& pixel, int& phase) {
  const int shifted = at + axis.shift;
  pixel = divide(by_step, max(0, shifted), phase);
  return shifted >= 0 && pixel < axis.stacked && phase < axis.phases;
}

// A row of the map.
template <class T>
__device__ __forceinline__ void unstack_row(const StackParams& p, int row, int part) {
  constexpr int LENGTH = sizeof(T) / sizeof(StackElement);
  int h, d, i_h, i_d, of_height, of_depth;
  const int image = divide(p.by_levels, divide(p.by_rows, row, h), d);
  const bool there = stacked(p.height, p.by_high, h, i_h, of_height) &
                     stacked(p.depth, p.by_deep, d, i_d, of_depth);
  const long long pixels =
      (((long long)image * p.depth.stacked + i_d) * p.height.stacked + i_h) * p.width.stacked;
  const StackElement* const from =
      p.stacked + pixels * p.pitch +
      (of_depth * p.height.phases + of_height) * p.width.phases * p.channels;
  StackElement* const to = p.map + image * p.batch_stride + d * p.depth.stride + h * p.height.stride;
  const int first = part * (STACK_THREADS * STACK_EACH) + threadIdx.x;
  T v[STACK_EACH] = {};
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    int channel, i_w, of_width;
    const int w = divide(p.by_channels, first + k * STACK_THREADS, channel);
    if (w < p.width.size && there & stacked(p.width, p.by_wide, w, i_w, of_width))
      v[k] = *reinterpret_cast<const T*>(from + (long long)i_w * p.pitch + of_width * p.channels +
                                         channel * LENGTH);
  }
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    int channel;
    const int w = divide(p.by_channels, first + k * STACK_THREADS, channel);
    if (w < p.width.size) *reinterpret_cast<T*>(to + w * p.width.stride + channel * LENGTH) = v[k];
  }
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_stack(const __grid_constant__ StackParams p) {
  int part;
  const int row = divide(p.by_parts, blockIdx.x, part);
  if (p.wide)
    stack_row<true>(p, row, part);
  else
    stack_row<false>(p, row, part);
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_unstack(const __grid_constant__ StackParams p) {
  int part;
  const int row = divide(p.by_parts, blockIdx.x, part);
  if (p.wide)
    unstack_row<uint4>(p, row, part);
  else
    unstack_row<StackElement>(p, row, part);
}
