// Powers of two that bring the largest elements of x and w below 2^15 after their transforms:
// SCALE_INPUT and SCALE_FILTER bound the growth in the transforms, as exponents. Two launches: w's,
// which clears the counter, then x's, whose last block computes the scales.
// scales: of x, of w, and two factors that undo both. Tensors with NaN or infinity get 1.

struct ScaleParams {
  const float* x;
  unsigned* partial;  // a block's largest absolute value, as bits, from this launch's first block on
  unsigned* other;    // the same of the launch before, for the last block
  unsigned* counter;
  float* scales;
  long long batch_stride, depth_stride, row_stride, pixel_stride, channel_stride;
  long long vectors;  // of all elements
  int depth, height, width, run;  // run: vectors that follow one another
  int wide;                       // whether a vector has 4 floats, not 1
  int others;                     // blocks of the launch before; 0 in the first
};

__device__ __forceinline__ unsigned magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// NaN and infinity are the largest.
__device__ __forceinline__ unsigned block_maximum(unsigned v) {
  __shared__ unsigned warps[8];
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) v = max(v, __shfl_xor_sync(0xffffffffu, v, flip));
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; ++i) v = max(v, warps[i]);
  return v;
}

__device__ __forceinline__ const float* vector_at(const ScaleParams& p, long long i) {
  const int length = p.wide ? 4 : 1;
  if (i < p.run) return p.x + i * p.channel_stride * length;
  const long long pixel = i / p.run;
  long long rest = pixel;
  const long long width = rest % p.width;
  rest /= p.width;
  const long long height = rest % p.height;
  rest /= p.height;
  return p.x + rest / p.depth * p.batch_stride + rest % p.depth * p.depth_stride +
         height * p.row_stride + width * p.pixel_stride +
         (i - pixel * p.run) * p.channel_stride * length;
}

__device__ __forceinline__ int scale_exponent(unsigned bits, int growth) {
  if (bits == 0 || bits >= 0x7f800000u) return 0;
  return max(-126, min(127, 14 - ((int)(bits >> 23) - 127) - growth));
}

__device__ __forceinline__ float power_of_two(int e) {
  return __uint_as_float(e < -126 ? 1u << (149 + e) : (unsigned)(e + 127) << 23);
}

extern "C" __global__ void __launch_bounds__(256)
    winolab_scale(const __grid_constant__ ScaleParams p) {
  __shared__ unsigned last;
  const long long step = (long long)gridDim.x * 256;
  unsigned most = 0;
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (p.wide) {
    for (; i + 3 * step < p.vectors; i += 4 * step) {
      float4 v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        v[k] = __ldg(reinterpret_cast<const float4*>(vector_at(p, i + k * step)));
#pragma unroll
      for (int k = 0; k < 4; ++k)
        most = max(most, max(max(magnitude(v[k].x), magnitude(v[k].y)),
                             max(magnitude(v[k].z), magnitude(v[k].w))));
    }
    for (; i < p.vectors; i += step) {
      const float4 v = __ldg(reinterpret_cast<const float4*>(vector_at(p, i)));
      most = max(most, max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w))));
    }
  } else {
    for (; i < p.vectors; i += step) most = max(most, magnitude(__ldg(vector_at(p, i))));
  }
  most = block_maximum(most);
  if (p.others == 0) {
    if (threadIdx.x == 0) {
      p.partial[blockIdx.x] = most;
      if (blockIdx.x == 0) *p.counter = 0;
    }
    return;
  }
  if (threadIdx.x == 0) {
    p.partial[blockIdx.x] = most;
    __threadfence();
    last = atomicAdd(p.counter, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  unsigned x = 0, w = 0;
  for (int k = threadIdx.x; k < gridDim.x; k += 256) x = max(x, __ldcg(p.partial + k));
  for (int k = threadIdx.x; k < p.others; k += 256) w = max(w, __ldcg(p.other + k));
  x = block_maximum(x);
  w = block_maximum(w);
  if (threadIdx.x == 0) {
    const int ex = scale_exponent(x, SCALE_INPUT), ew = scale_exponent(w, SCALE_FILTER);
    const int half = (ex + ew) >> 1;
    p.scales[0] = power_of_two(ex);
    p.scales[1] = power_of_two(ew);
    p.scales[2] = power_of_two(-half);
    p.scales[3] = power_of_two(half - ex - ew);
  }
}
