// U = G w for every outer tap, laid out as the main kernel's bulk copies want it:
// [block of BN outputs][outer tap / SHARE][chunk of KC channels][filter row % SHARE]
// [state][channel][output], zero-filled.
// The operand map is in the strides: backward data swaps m and c and walks the taps backwards.

struct FilterParams {
  const float* w;  // element (m = 0, tap = 0, c = 0) as the convolution runs over it
  float* u;
  const int* wanted;  // guard.cuh
  long long m_stride, c_stride, depth_stride, row_stride, width_stride;
  int out_channels, channels, taps, taps_height, taps_width, chunks;
};

constexpr int FILTER_M = 32, FILTER_C = 8;  // one block: 256 (m, c) pairs of one tap

extern "C" __global__ void __launch_bounds__(FILTER_M* FILTER_C)
    winolab_filter(const __grid_constant__ FilterParams p) {
  if (!wanted(p.wanted)) return;
  __shared__ float staged[ALPHA][FILTER_C][FILTER_M + 1];
  const int thread = threadIdx.x;
  const int m0 = blockIdx.x * FILTER_M, c0 = blockIdx.y * FILTER_C, tap = blockIdx.z;
  // Neighbouring threads read along whichever channel is contiguous in w.
  const bool along_c = p.c_stride == 1;
  const int lm = along_c ? thread / FILTER_C : thread % FILTER_M;
  const int lc = along_c ? thread % FILTER_C : thread / FILTER_M;
  const int m = m0 + lm, c = c0 + lc;
  float taps[R], state[ALPHA];
#pragma unroll
  for (int j = 0; j < R; ++j) taps[j] = 0.0f;
  if (m < p.out_channels && c < p.channels) {
    const int fw = tap % p.taps_width, fh = tap / p.taps_width % p.taps_height,
              fd = tap / p.taps_width / p.taps_height;
    const float* w = p.w + m * p.m_stride + c * p.c_stride + fd * p.depth_stride +
                     fh * p.row_stride + fw * R * p.width_stride;
#pragma unroll
    for (int j = 0; j < R; ++j) taps[j] = __ldg(w + j * p.width_stride);
  }
  transform_filter(taps, state);
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) staged[s][lc][lm] = state[s];
  __syncthreads();
  const int om = thread % FILTER_M, oc = thread / FILTER_M;
  if (c0 + oc >= p.chunks * KC) return;
  // Filter rows that share a stage of V follow one another; widths come between their groups.
  const int fw = tap % p.taps_width, row = tap / p.taps_width;
  const int group = row / SHARE * p.taps_width + fw;
  const long long block = (((long long)((m0 + om) / BN) * (p.taps / SHARE) + group) * p.chunks +
                           (c0 + oc) / KC) * SHARE + row % SHARE;
  float* u = p.u + (block * ALPHA * KC + (c0 + oc) % KC) * BN + (m0 + om) % BN;
#pragma unroll
  for (int s = 0; s < ALPHA; ++s) u[(long long)s * KC * BN] = staged[s][oc][om];
}
