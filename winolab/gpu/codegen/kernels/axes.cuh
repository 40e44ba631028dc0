// Dimensions of direct products with stride and dilation. ROTATED: of backward data.
#pragma once

// A dimension of a STRIDED problem. Taps of a phase are ``apart`` apart, and meet x ``step`` apart;
// there are ``stride`` phases of backward data, one of forward, of ``outputs`` at most.
struct __align__(8) DirectAxis {
  int stride, dilation, apart, step, phases, outputs;
};

// The taps that meet a phase's outputs along one dimension: how many, and of the first one its number
// and where in x it meets output 0. Output o of the phase is output + o * stride of y.
struct Taps {
  int count, first, x, output;
  __device__ __forceinline__ Taps() {}
  __device__ __forceinline__ Taps(const DirectAxis& axis, int phase, int taps, int pad)
      : count(taps), first(0), x(-pad), output(0) {
    if (!ROTATED) return;
    first = phase % axis.apart;
    const int rest = phase / axis.apart;  // not 0: the phase meets no tap
    output = (pad - first * axis.dilation + rest) % axis.stride;
    if (output < 0) output += axis.stride;
    count = rest || first >= taps ? 0 : (taps - 1 - first) / axis.apart + 1;
    x = (output - pad + first * axis.dilation) / axis.stride;
  }
};

// Where in x the t-th tap of a phase meets one of its outputs.
__device__ __forceinline__ int meets(const DirectAxis& axis, const Taps& taps, int output, int t) {
  return (ROTATED ? output : output * axis.stride) + taps.x + t * axis.step;
}
