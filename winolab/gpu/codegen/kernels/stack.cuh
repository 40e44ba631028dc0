// A map's phases by a stride as channels of a smaller map, and back: pixel i of the smaller one has,
// for every phase q, the channels of the map's pixel step i + q - shift, in the order of phases by
// depth, height, width. What lies outside is 0: pixels and channels behind the last of the phases; of
// a map that is made, what the smaller one does not have. A filter is such a map, of taps.
//
// Roles: a block has a row, or a part of it, of the map that is made. Its threads have vectors of 16
// bytes, EACH a block's threads apart; of a map whose channels are no whole vectors, EACH elements,
// and of a smaller one, which always has whole vectors, one vector of elements that lie apart.
#pragma once

#include "either.cuh"
#include "quotient.cuh"

constexpr int STACK_THREADS = 256, STACK_EACH = 4, STACK_VECTOR = 16 / STACK_SIZE;
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
  int parts;            // blocks of a row
  int wide;             // whether elements of both come in vectors
  StackAxis depth, height, width;
  Quotient by_pitch;     // vectors of a pixel of the smaller map
  Quotient by_channels;  // of the map, or vectors of them where ``wide``
  Quotient by_step;      // along the width
  Quotient by_wide, by_high;  // phases
};

// Channel ``channel`` of a phase, at a pixel (i_d, i_h, i_w) of the smaller map.
struct StackPlace {
  int i_d, i_h, i_w, depth, height, width, channel;
};

// The map's pixel that is the phase of a pixel of the smaller one, or -1.
__device__ __forceinline__ int unstacked(const StackAxis& axis, int pixel, int phase) {
  const int at = pixel * axis.step + phase - axis.shift;
  return phase < axis.phases && at >= 0 && at < axis.size ? at : -1;
}

// The element of an image of the map, or null.
__device__ __forceinline__ const StackElement* stack_source(const StackParams& p,
                                                            const StackElement* image,
                                                            const StackPlace& at) {
  const int d = unstacked(p.depth, at.i_d, at.depth), h = unstacked(p.height, at.i_h, at.height);
  const int w = unstacked(p.width, at.i_w, at.width);
  return (d | h | w) < 0 ? nullptr
                         : image + d * p.depth.stride + h * p.height.stride + w * p.width.stride +
                               at.channel * p.channel_stride;
}

// A vector of elements that lie apart.
__device__ __forceinline__ uint4 gathered(const StackParams& p, const StackElement* image,
                                          StackPlace at) {
  unsigned word[4] = {};
  const StackElement* from = stack_source(p, image, at);
#pragma unroll
  for (int e = 0; e < STACK_VECTOR; ++e) {
    if (from) {
      word[e * STACK_SIZE / 4] |= (unsigned)*from << e * STACK_SIZE % 4 * 8;
      from += p.channel_stride;
    }
    if (++at.channel == p.channels) {
      at.channel = 0;
      if (++at.width == p.width.phases) {
        at.width = 0;
        if (++at.height == p.height.phases) at.height = 0, ++at.depth;
      }
      from = stack_source(p, image, at);
    }
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// A row of the smaller map.
template <bool WIDE>
__device__ __forceinline__ void stack_row(const StackParams& p, int row, int part) {
  constexpr int EACH = WIDE ? STACK_EACH : 1;
  const int count = p.width.stacked * p.by_pitch.divisor;  // vectors
  const int above = row / p.height.stacked, first = part * STACK_THREADS * EACH + threadIdx.x;
  const StackElement* const image = p.map + above / p.depth.stacked * p.batch_stride;
  StackPlace at;
  at.i_d = above % p.depth.stacked, at.i_h = row % p.height.stacked;
  uint4 v[EACH] = {};
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    int vector;
    at.i_w = divide(p.by_pitch, first + k * STACK_THREADS, vector);
    if (at.i_w >= p.width.stacked) break;
    int behind = divide(p.by_channels, WIDE ? vector : vector * STACK_VECTOR, at.channel);
    behind = divide(p.by_wide, behind, at.width);
    at.depth = divide(p.by_high, behind, at.height);
    if constexpr (WIDE) {
      at.channel *= STACK_VECTOR;
      const StackElement* const from = stack_source(p, image, at);
      if (from) v[k] = *reinterpret_cast<const uint4*>(from);
    } else {
      v[k] = gathered(p, image, at);
    }
  }
  uint4* const to = reinterpret_cast<uint4*>(p.stacked) + (long long)row * count;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int t = first + k * STACK_THREADS;
    if (t < count) to[t] = v[k];
  }
}

// The pixel and the phase of the smaller map that are the map's; whether there are such.
__device__ __forceinline__ bool stacked(const StackAxis& axis, int at, int& pixel, int& phase) {
  const int shifted = at + axis.shift;
  pixel = shifted / axis.step, phase = shifted % axis.step;
  return shifted >= 0 && pixel < axis.stacked && phase < axis.phases;
}

// A row of the map.
template <class T>
__device__ __forceinline__ void unstack_row(const StackParams& p, int row, int part) {
  constexpr int LENGTH = sizeof(T) / sizeof(StackElement);
  const int h = row % p.height.size, above = row / p.height.size;
  const int d = above % p.depth.size, image = above / p.depth.size;
  int of_height, phase_height, of_depth, phase_depth;
  const bool there = stacked(p.height, h, of_height, phase_height) &
                     stacked(p.depth, d, of_depth, phase_depth);
  const long long pixels =
      (((long long)image * p.depth.stacked + of_depth) * p.height.stacked + of_height) *
      p.width.stacked;
  const StackElement* const from =
      p.stacked + pixels * p.pitch +
      (phase_depth * p.height.phases + phase_height) * p.width.phases * p.channels;
  StackElement* const to = p.map + image * p.batch_stride + d * p.depth.stride + h * p.height.stride;
  const int first = part * (STACK_THREADS * STACK_EACH) + threadIdx.x;
  T v[STACK_EACH] = {};
#pragma unroll
  for (int k = 0; k < STACK_EACH; ++k) {
    int channel, phase;
    const int w = divide(p.by_channels, first + k * STACK_THREADS, channel);
    const int shifted = w + p.width.shift, pixel = divide(p.by_step, max(0, shifted), phase);
    const bool is = shifted >= 0 && pixel < p.width.stacked && phase < p.width.phases;
    if (is && there && w < p.width.size)
      v[k] = *reinterpret_cast<const T*>(from + (long long)pixel * p.pitch + phase * p.channels +
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
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    stack_row<true>(p, row, part);
  else
    stack_row<false>(p, row, part);
}

extern "C" __global__ void __launch_bounds__(STACK_THREADS)
    winolab_unstack(const __grid_constant__ StackParams p) {
  const int row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  if (p.wide)
    unstack_row<uint4>(p, row, part);
  else
    unstack_row<StackElement>(p, row, part);
}
