// Producers of split.cuh: FP32 from global memory to FP16 parts in stages.
#pragma once

#include "pipeline.cuh"
#include "split_stage.cuh"
#include "exchanged.cuh"

// What a producer knows of its channels of one tensor: 4 of each line of 32.
template <int LINES, int ROW>  // ROW: channels of a plane
struct ScaledOperand {
  float scale;
  float squares[LINES][4] = {};
  int lines;  // lines whose channels exist
  int to;     // where the parts of the thread's first position go, in a plane
  __device__ __forceinline__ ScaledOperand(float scale, int position, int unit)
      : scale(scale), to(swizzled(position, unit / 2) + unit % 2 * 4) {}
  // Units of 8 channels as wgmma has them: rows of 128 or of 64 bytes.
  static __device__ __forceinline__ int swizzled(int position, int unit) {
    return position * ROW + (ROW == 64 ? unit ^ position % 8 : unit ^ position / 2 % 4) * 8;
  }
  // A vector's parts: of the thread's position i (after()), of a line.
  __device__ __forceinline__ void store(unsigned short* high, int part, int line, int i, float4 v) {
    const float raw[] = {v.x, v.y, v.z, v.w};
    float scaled[4];
    unsigned first[PARTS], last[PARTS];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      scaled[c] = __fmul_rn(scale, raw[c]);
      squares[line][c] = __fmaf_rn(scaled[c], scaled[c], squares[line][c]);
    }
    split(scaled[0], scaled[1], first);
    split(scaled[2], scaled[3], last);
    // Bit 1 of a position is i's lowest: it exchanges units, as a line's place in a row does.
    const int exchanged = ROW == 64 ? i % 2 * 2 ^ line % 2 * 4 : i % 2;
    unsigned short* const at = high + line * 32 / ROW * (KS * ROW) + after(i) * ROW +
                               (to ^ exchanged * 8);
    *reinterpret_cast<uint2*>(at) = make_uint2(first[0], last[0]);
    *reinterpret_cast<uint2*>(at + part) = make_uint2(first[1], last[1]);
  }
  // How far behind a thread's first position its position i lies.
  static __device__ __forceinline__ int after(int i) { return i / 2 * 8 + i % 2 * 2; }
};

__device__ __forceinline__ void produce(const SplitParams& params, SplitShared& shared,
                                        ColumnPipe& pipe, int& shares) {
  const GradientParams& p = params.sum;
  const ColumnScheduler& scheduler = shared.produced;
  const RowSource<Element>& source = shared.source;
  const int thread = threadIdx.x - 128 * GROUPS, warp = thread / 32, lane = thread % 32;
  if (thread == 0) shared.source.find(params, work_of(p, scheduler.tile));
  producers_sync<PRODUCERS>();
  // A warp has 4 · EACH neighbouring positions, 8 lanes one of them. Lanes 0 to 15, who store
  // together, have two that differ in bits 0 and 2, so that their units lie in other banks.
  const int unit = lane % 8, position = warp * 4 * EACH + (lane / 16 ^ lane / 8 % 2 * 5);
  ScaledOperand<LINES_M, 64> m(input_scale(params.dy_header), position, unit);
  ScaledOperand<LINES_N, PLANE> n(input_scale(params.x_header), position, unit);
  m.lines = (source.outs - unit * 4 + 31) / 32, n.lines = (source.ins - unit * 4 + 31) / 32;
  const Element* from_x[EACH];
  const Element* from_dy[EACH];
  int column[EACH];  // of dy
  const int shift = TAPS - 1 + source.shift;
  // A lane finds a position of the sweep's block, for all.
  const auto find = [&](const Sweep& sweep) {
    Position<Element> found(params, source, sweep.block * KS + warp * 4 * EACH + lane % (4 * EACH));
    found.x += (sweep.column + TAPS - 1) * (long long)p.x_pixel * STRIDE_WIDTH;
    found.dy += sweep.column * (long long)p.dy_pixel;
    found.column += sweep.column;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int finder = position % (4 * EACH) + ScaledOperand<LINES_M, 64>::after(i);
      from_x[i] = of_lane(found.x, finder) + unit * 4;
      from_dy[i] = of_lane(found.dy, finder) + unit * 4;
      column[i] = __shfl_sync(0xffffffffu, found.column, finder);
    }
  };
  // Which columns a stage brings: of x not what no tap reads, of dy not before the first one.
  const auto with_x = [&](const Sweep& sweep) {
    return params.chunks > 1 || (unsigned)(sweep.column * STRIDE_WIDTH + shift) < p.width;
  };
  const auto with_dy = [&](const Sweep& sweep) { return sweep.column >= sweep.first; };
  const auto bring_x = [&](int line) {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      copy_async<16>(&shared.raw[line][i][thread], from_x[i] + line * 32,
                     line < n.lines && meets_x(p, column[i], shift));
  };
  const auto bring_dy = [&](int line) {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      copy_async<16>(&shared.raw[LINES_N + line][i][thread], from_dy[i] + line * 32,
                     line < m.lines && (unsigned)column[i] < p.out_width);
  };
  Sweep sweep(scheduler);
  bool more = sweep.more(), x_now = with_x(sweep), dy_now = with_dy(sweep);
  find(sweep);
  const auto bring = [&](int line, bool x, bool dy) {
    if (line < LINES_N && x) bring_x(line);
    if (line >= LINES_N && dy) bring_dy(line - LINES_N);
    copy_async_commit();
  };
#pragma unroll
  for (int line = 0; line < LINES; ++line) bring(line, x_now, dy_now);
  float4 v[2][EACH];  // of a line, and of the next
  const auto load = [&](int line) {
    // All but the copies of lines that are needed later.
    if (line > 0)
      copy_async_wait<LINES - 2>();
    else
      copy_async_wait<LINES - 1>();
#pragma unroll
    for (int i = 0; i < EACH; ++i) v[line % 2][i] = load_shared(&shared.raw[line][i][thread]);
  };
  load(0);
#pragma unroll 1
  while (more) {
    // The next stage's columns are brought while this one's are stored.
    const bool other = sweep.advance();
    more = sweep.more();
    const bool x_next = more && with_x(sweep), dy_next = more && with_dy(sweep);
    if (other && more)
      find(sweep);
    else
#pragma unroll
      for (int i = 0; i < EACH; ++i)
        from_x[i] += (long long)p.x_pixel * STRIDE_WIDTH, from_dy[i] += p.dy_pixel, ++column[i];
    barrier_wait(&shared.empty[pipe.stage], pipe.phase ^ 1);
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
      if (line < LINES - 1) load(line + 1);
      if (line < LINES_N && x_now)
#pragma unroll
        for (int i = 0; i < EACH; ++i)
          n.store(shared.x[pipe.column][0][0], PLANES * KS * PLANE, line, i, v[line % 2][i]);
      if (line >= LINES_N && dy_now)
#pragma unroll
        for (int i = 0; i < EACH; ++i)
          m.store(shared.dy[pipe.stage][0][0], GROUPS_M * KS * 64, line - LINES_N, i,
                  v[line % 2][i]);
      bring(line, x_next, dy_next);
    }
    fence_async();  // ordinary stores are not of the proxy that wgmma reads by
    barrier_arrive(&shared.full[pipe.stage]);
    pipe.advance();
    x_now = x_next, dy_now = dy_next;
    load(0);
  }
  copy_async_wait<0>();
  // Sums of squares, of every thread, then of channels: in an order that is always the same.
  float* const squares = reinterpret_cast<float*>(shared.raw);
  const int row = thread / 8 * (BO + BI);
  producers_sync<PRODUCERS>();  // nobody reads what was on its way any more
#pragma unroll
  for (int line = 0; line < LINES; ++line) {
    const float* const of = line < LINES_M ? m.squares[line] : n.squares[line - LINES_M];
    *reinterpret_cast<float4*>(squares + row + line * 32 + unit * 4) =
        make_float4(of[0], of[1], of[2], of[3]);
  }
  producers_sync<PRODUCERS>();
  barrier_wait(&shared.squares_empty, shares & 1 ^ 1);
  for (int channel = thread; channel < BO + BI; channel += PRODUCERS) {
    float sum = 0.0f;
    for (int i = 0; i < PRODUCERS / 8; ++i)
      sum = __fadd_rn(sum, squares[i * (BO + BI) + channel]);
    shared.squares[channel] = sum;
  }
  barrier_arrive(&shared.squares_full);
  ++shares;
  producers_sync<PRODUCERS>();  // of squares that the next share's copies overwrite
}
