// Forward sums in order: a thread has one output. It is what tests/gpu/families/test_adding_a_family.py
// adds to the families: the least that one consists of.
#pragma once

struct TrialParams {
  const float* x;  // positions × CHANNELS, of a convolution with one tap
  const float* w;  // out_channels × CHANNELS
  float* y;        // positions × out_channels
  int positions, out_channels;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    winolab_trial(const __grid_constant__ TrialParams p) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= p.positions * p.out_channels) return;
  const int position = i / p.out_channels, channel = i % p.out_channels;
  float sum = 0.0f;
  for (int c = 0; c < CHANNELS; ++c)
    sum = __fmaf_rn(p.x[position * CHANNELS + c], p.w[channel * CHANNELS + c], sum);
  p.y[i] = sum;
}
