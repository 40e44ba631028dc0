// dw = AT of the sums of the segments (omega_sums*.cuh): one channel of one tap's piece a thread.
extern "C" __global__ void __launch_bounds__(256)
    winolab_omega_finish(const __grid_constant__ FinishParams p) {
  launch_before_done();
  const int index = blockIdx.x * 256 + threadIdx.x;
  const int out = index / p.channels, channel = index - out * p.channels;
  if (out >= p.out_channels) return;
  int tap = p.first_tap + blockIdx.y;
  const int piece = tap % p.pieces;
  tap /= p.pieces;
  const int fh = tap % p.taps_height, fd = tap / p.taps_height;
  const long long plane = (long long)p.padded_out * p.padded, stride = p.taps * plane;
  const float* m = p.m + blockIdx.y * plane + (long long)out * p.padded + channel;
  SegmentSum state[ALPHA] = {};
  float taps[N];
  sum_segments(m, stride, p.segments, state);
  transform_output(state, taps);
  if (PARTS == 2 && p.budget) {
    const int pair = (blockIdx.y * (p.padded_out / 64) + out / 64) * (p.padded / 64) + channel / 64;
    const float2 budget = __ldg(p.budget + pair);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum = __fadd_rn(sum, fabsf(taps[i]));
    judge(p.flags, sum, __fmul_rn(p.least, __fmul_rn(sqrtf(budget.x), sqrtf(budget.y))));
  }
  Output* dw = p.dw + out * p.dw_out + fd * p.dw_depth + fh * p.dw_row + channel;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (piece * N + i < p.taps_width)
      store(dw + (piece * N + i) * p.dw_tap, __fmul_rn(taps[i], 1 / (HALVED * HALVED)));
}
