// What mma.hpp declares. Products of 16-bit numbers are exact; 16 of them and the accumulator are
// summed as winolab.ref.arithmetic.accumulate's tensor_core does. One lane computes for its warp,
// eight columns at once.
#include "mma.hpp"

namespace host {
float from_half(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return bits<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = fraction * 0x1p-24f;
  return sign ? -value : value;
}

// To nearest even; 65520 and more is infinite.
unsigned short to_half(float v) {
  const unsigned raw = bits<unsigned>(v), sign = raw >> 16 & 0x8000, size = raw & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7fff;
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size >= 0x38800000)  // normal: drop 13 bits
    return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
  const float aligned = bits<float>(size) + 0.5f;  // the last bit of 0.5 is 2^-24
  return sign | (bits<unsigned>(aligned) - 0x3f000000);
}

unsigned short to_bfloat(float v) {
  const unsigned raw = bits<unsigned>(v);
  if ((raw & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (raw + 0x7fff + (raw >> 16 & 1)) >> 16;
}

float odd(double v) {
  const float near = (float)v;
  if (near == v || near != near) return near;
  const bool away = (near < 0 ? -near : near) > (v < 0 ? -v : v);
  return bits<float>((bits<unsigned>(near) - away) | 1);
}

float widen(unsigned short v, bool bf16) {
  return bf16 ? bits<float>((unsigned)v << 16) : from_half(v);
}

float truncated(double v) {
  const double size = v < 0 ? -v : v;
  if (size >= 0x1p128) return v < 0 ? -INFINITY : INFINITY;
  if (size < 0x1p-126) return (float)((double)(long long)(v * 0x1p149) * 0x1p-149);
  return (float)bits<double>(bits<uint64_t>(v) & ~((1ull << 29) - 1));
}

double binade(double v) {
  return bits<double>(bits<uint64_t>(v) & 0x7ff0000000000000);
}

// As a format has it whose least normal number is given; 0 of 0.
double reach(double v, double lowest) {
  const double size = binade(v);
  return size > 0 && size < lowest ? lowest : size;
}

double least(bool bf16) { return bf16 ? 0x1p-126 : 0x1p-14; }

constexpr int DEPTH = 16, ROWS = 16, COLUMNS = 8;  // of a product of one instruction
constexpr int EXTRA_BITS = 2;                      // kept below the last of the largest term
typedef double Doubles __attribute__((vector_size(8 * COLUMNS)));
typedef uint64_t Longs __attribute__((vector_size(8 * COLUMNS)));
typedef int Ints __attribute__((vector_size(4 * COLUMNS)));
typedef float Floats __attribute__((vector_size(4 * COLUMNS)));
typedef unsigned Words __attribute__((vector_size(4 * COLUMNS)));
typedef unsigned short Shorts __attribute__((vector_size(2 * COLUMNS)));

Doubles binade(Doubles v) { return (Doubles)((Longs)v & 0x7ff0000000000000); }

Doubles reach(Doubles v, double lowest) {
  const Doubles size = binade(v), low = lowest - Doubles{};
  return (size > 0) & (size < low) ? low : size;
}

// As from_half, which 2^112 makes of exponents where they stand.
Doubles widen(Shorts v, bool bf16) {
  const Words raw = __builtin_convertvector(v, Words);
  if (bf16) return __builtin_convertvector((Floats)(raw << 16), Doubles);
  const Words size = raw & 0x7fff, no_number = (Words)(size >= 0x7c00) & 0x7f800000;
  const Floats scaled = (Floats)(size << 13) * 0x1p112f;
  const Words sign = (raw & 0x8000) << 16;
  return __builtin_convertvector((Floats)((Words)scaled | no_number | sign), Doubles);
}

// Eight columns of B, the powers of two that their elements reach, and whether all of them are 0,
// none infinite or NaN.
struct Columns {
  alignas(64) double value[DEPTH][COLUMNS], size[DEPTH][COLUMNS];
  bool zero, finite;
  void set(int k, int column, float v, double lowest) {
    value[k][column] = v;
    size[k][column] = reach(v, lowest);
  }
  Doubles values(int k) const { return *(const Doubles*)value[k]; }
  Doubles sizes(int k) const { return *(const Doubles*)size[k]; }
  void close() {
    Doubles sum = sizes(0);
    for (int k = 1; k < DEPTH; ++k) sum += sizes(k);
    zero = finite = true;
    for (int c = 0; c < COLUMNS; ++c) zero &= sum[c] == 0, finite &= sum[c] < INFINITY;
  }
};
struct Row {
  double value[DEPTH], size[DEPTH];
  bool zero, finite;
  void set(int k, float v, double lowest) {
    value[k] = v;
    size[k] = reach(v, lowest);
  }
  void close() {
    double sum = 0;
    for (int k = 0; k < DEPTH; ++k) sum += size[k];
    zero = sum == 0, finite = sum < INFINITY;
  }
};

Doubles whole(Doubles v) { return __builtin_convertvector(__builtin_convertvector(v, Ints), Doubles); }

// Terms are cut below a unit that the largest of them, or the sum so far, decides.
void add_products(const Row& a, const Columns& b, double lowest, float (&sums)[COLUMNS]) {
  Floats before;
  memcpy(&before, sums, sizeof before);
  if ((a.zero && b.finite) || (b.zero && a.finite)) {  // as padding is: sums stay, −0 is 0
    before += 0;
    memcpy(sums, &before, sizeof before);
    return;
  }
  const Doubles sum = __builtin_convertvector(before, Doubles);
  Doubles largest = (Doubles)((Longs)sum & ~(1ull << 63));
  Doubles reached = largest;  // NaN where a factor is: max would lose it
  for (int k = 0; k < DEPTH; ++k) {
    const Doubles size = a.size[k] * b.sizes(k);  // a product's exponent is its factors' sum
    reached += size;
    largest = size > largest ? size : largest;
  }
  const Doubles none = {}, floor = sum != 0 ? 0x1p-126 - none : lowest * lowest - none;
  const Doubles top = binade(largest);
  const Doubles spacing = (top < floor ? floor : top) * (0x1p-23 / (1 << EXTRA_BITS));
  const Doubles inverse = 1.0 / spacing;
  Doubles total = whole(sum * inverse);
  for (int k = 0; k < DEPTH; ++k) total += whole(a.value[k] * b.values(k) * inverse);
  total *= spacing;
  for (int c = 0; c < COLUMNS; ++c) {
    if (reached[c] < INFINITY) {
      sums[c] = truncated(total[c]);
      continue;
    }
    double plain = 0;
    for (int k = 0; k < DEPTH; ++k) plain += a.value[k] * b.value[k][c];
    sums[c] = (float)(plain + sums[c]);
  }
}

// Eight neighbours from (mn, k) of a matrix in shared memory, see codegen/kernels/mma.cuh: along mn
// where it is major, else along k. No swizzle parts them.
Doubles neighbours(unsigned long long descriptor, bool mn_major, int mn, int k, bool bf16) {
  const unsigned leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  unsigned at = (descriptor & 0x3fff) << 4;
  if (descriptor >> 62 == (int)Swizzle::B128) {
    at += mn_major ? mn / 64 * leading + k / 8 * stride + k % 8 * 128 + mn % 64 * 2
                   : mn / 8 * stride + mn % 8 * 128 + k * 2;
    at ^= at >> 3 & 0x70;
  } else if (descriptor >> 62 == 2 && mn_major) {  // rows of 64 bytes
    at += mn / 32 * leading + k / 8 * stride + k % 8 * 64 + mn % 32 * 2;
    at ^= at >> 3 & 0x30;
  } else {
    const int row = mn_major ? k : mn, column = mn_major ? mn : k;
    at += k / 8 * leading + mn / 8 * stride + row % 8 * 16 + column % 8 * 2;
  }
  const Block& b = *now->block;
  Shorts values;
  if (at < GUARD || at - GUARD + sizeof values > b.bytes) fail("wgmma reads outside shared memory");
  const Quiet quiet;
  memcpy(&values, b.shared() + at - GUARD, sizeof values);
  return widen(values, bf16);
}

// What `set` makes of eight numbers at (mn, k), for 16 k and as many mn.
template <class F>
void read(unsigned long long descriptor, bool mn_major, int mn, int count, bool bf16, F set) {
  const double lowest = least(bf16);
  for (int i = 0; i < count; i += mn_major ? COLUMNS : 1)
    for (int k = 0; k < DEPTH; k += mn_major ? 1 : COLUMNS) {
      const Doubles value = neighbours(descriptor, mn_major, mn + i, k, bf16);
      const Doubles size = reach(value, lowest);
      for (int at = 0; at < COLUMNS; ++at)
        set(mn_major ? i + at : i, mn_major ? k : k + at, value[at], size[at]);
    }
}

// A number of TF32, whose lower bits do not count.
float tf32(unsigned raw) { return bits<float>(raw & 0xffffe000); }

// The number at (mn, k) of a matrix of FP32 in shared memory, rows of 128 bytes exchanged alike.
float fp32_at(unsigned long long descriptor, int mn, int k) {
  const unsigned stride = (descriptor >> 32 & 0x3fff) << 4;
  unsigned at = ((descriptor & 0x3fff) << 4) + mn / 8 * stride + mn % 8 * 128 + k * 4;
  if (descriptor >> 62 != (int)Swizzle::B128) fail("wgmma of TF32 without its swizzle");
  at ^= at >> 3 & 0x70;
  const Block& b = *now->block;
  unsigned raw;
  if (at < GUARD || at - GUARD + sizeof raw > b.bytes) fail("wgmma reads outside shared memory");
  const Quiet quiet;
  memcpy(&raw, b.shared() + at - GUARD, sizeof raw);
  return tf32(raw);
}

void close(Row (&rows)[ROWS]) {
  for (Row& row : rows) row.close();
}

// The products of a warp: rows g and g + 8 and columns 2q and 2q + 1 of eight are lane 4g + q's,
// two accumulators a row after another.
template <class F>
void multiply_rows(const Row (&a)[ROWS], Columns& b, double lowest, F accumulators) {
  b.close();
  for (int row = 0; row < ROWS; ++row) {
    float sums[COLUMNS];
    float* at[COLUMNS / 2];
    for (int q = 0; q < COLUMNS / 2; ++q) {
      at[q] = accumulators(row % 8 * 4 + q) + row / 8 * 2;
      sums[2 * q] = at[q][0], sums[2 * q + 1] = at[q][1];
    }
    add_products(a[row], b, lowest, sums);
    for (int q = 0; q < COLUMNS / 2; ++q) at[q][0] = sums[2 * q], at[q][1] = sums[2 * q + 1];
  }
}

// The warp's part of a wgmma that every lane has at this place of its list.
void multiply(const Fiber* lanes, int at) {
  const Product& p = lanes->ordered->products.list[at];
  const int wide = lanes->index / WARP % 4;
  const double lowest = least(p.bf16);
  for (int lane = 0; lane < WARP; ++lane) {
    const Product& other = lanes[lane].ordered->products.list[at];
    if (lanes[lane].ordered->products.count <= at || p.a != other.a || p.b != other.b || p.n != other.n ||
        p.accumulate != other.accumulate)
      fail("wgmma with other operands than lane 0's");
    if (!p.accumulate) memset(other.d, 0, p.n / 2 * sizeof(float));
  }
  Row a[ROWS];
  if (!p.a_registers)
    read(p.a, p.a_mn, 16 * wide, ROWS, p.bf16, [&](int row, int k, double value, double size) {
      a[row].value[k] = value, a[row].size[k] = size;
    });
  for (int row = 0; p.tf32 && row < ROWS; ++row)  // half as deep: the rest is zeros
    for (int k = 0; k < DEPTH; ++k) {
      const Fiber& lane = lanes[row % 8 * 4 + k % 4];
      a[row].set(k, k < 8 ? tf32(lane.ordered->products.list[at].registers[row / 8 + k / 4 * 2]) : 0, lowest);
    }
  for (int row = 0; p.a_registers && !p.tf32 && row < ROWS; ++row)
    for (int k = 0; k < DEPTH; ++k) {
      const Fiber& lane = lanes[row % 8 * 4 + k % 8 / 2];
      const unsigned pair = lane.ordered->products.list[at].registers[row / 8 + k / 8 * 2];
      a[row].set(k, widen((unsigned short)(pair >> k % 2 * 16), p.bf16), lowest);
    }
  close(a);
  for (int first = 0; first < p.n; first += COLUMNS) {
    Columns b;
    if (p.tf32)
      for (int c = 0; c < COLUMNS; ++c)
        for (int k = 0; k < DEPTH; ++k) b.set(k, c, k < 8 ? fp32_at(p.b, first + c, k) : 0, lowest);
    else
      read(p.b, p.b_mn, first, COLUMNS, p.bf16, [&](int column, int k, double value, double size) {
      b.value[k][column] = value, b.size[k][column] = size;
    });
    multiply_rows(a, b, lowest, [&](int lane) { return lanes[lane].ordered->products.list[at].d + first / 2; });
  }
}

// Every lane shows `mine` until the last has come, and the first to go on takes all of them.
template <class T, class F>
void of_warp(const T& mine, const char* what, F take) {
  Warp& w = warp();
  if (~w.live) fail("%s of a warp that lanes have left", what);
  w.slot[now->index % WARP] = (uint64_t)&mine;
  meet(w.meeting, WARP, what);
  if (now->index % WARP == 0) {
    const Quiet quiet;
    take([&](int lane) -> const T& { return *(const T*)w.slot[lane]; });
  }
  meet(w.meeting, WARP, what);
}

void wgmma_wait(int pending) {
  of_warp(*now, "wgmma_wait", [=](auto) {
    for (int i = 0; i < now->ordered->products.count; ++i)
      if (now->ordered->products.list[i].group + pending < now->ordered->products.group) multiply(now, i);
  });
  now->ordered->products.finish(pending, [](const Product&) {});
}

void multiply(Fragments mine, bool bf16) {
  of_warp(mine, "mma", [=](auto of) {
    const double lowest = least(bf16);
    const auto half = [=](unsigned v) { return widen((unsigned short)v, bf16); };
    Row a[ROWS];
    Columns b;
    for (int k = 0; k < DEPTH; ++k) {
      const int from = k % 8 / 2, shift = k % 2 * 16;
      for (int row = 0; row < ROWS; ++row)
        a[row].set(k, half(of(row % 8 * 4 + from).a[row / 8 + k / 8 * 2] >> shift), lowest);
      for (int c = 0; c < COLUMNS; ++c) b.set(k, c, half(of(4 * c + from).b[k / 8] >> shift), lowest);
    }
    close(a);
    multiply_rows(a, b, lowest, [=](int lane) { return of(lane).d; });
  });
}

// Half as deep: the rest is zeros. Lower bits than TF32's do not count.
void multiply_tf32(Fragments mine) {
  of_warp(mine, "mma", [=](auto of) {
    const double lowest = least(true);  // FP32's
    Row a[ROWS];
    Columns b;
    for (int k = 0; k < DEPTH; ++k) {
      const int from = k % 4;
      const bool there = k < 8;
      for (int row = 0; row < ROWS; ++row)
        a[row].set(k, there ? tf32(of(row % 8 * 4 + from).a[row / 8 + k / 4 * 2]) : 0, lowest);
      for (int c = 0; c < COLUMNS; ++c) b.set(k, c, there ? tf32(of(4 * c + from).b[k / 4]) : 0, lowest);
    }
    close(a);
    multiply_rows(a, b, lowest, [=](int lane) { return of(lane).d; });
  });
}

void load_matrices(unsigned (&r)[4], const void* shared, bool transposed) {
  touch(shared, 16, false, "load_matrices");
  shared_address((const char*)shared + 15);
  if ((uintptr_t)shared % 16) fail("a matrix row that is not 16-byte aligned");
  struct {
    const unsigned short* row;
    unsigned* to;
  } const mine = {(const unsigned short*)shared, r};
  of_warp(mine, "load_matrices", [=](auto of) {
    for (int lane = 0; lane < WARP; ++lane) {
      const int g = lane / 4, q = lane % 4;
      for (int m = 0; m < 4; ++m) {
        unsigned pair[2];
        for (int c = 0; c < 2; ++c)
          pair[c] = transposed ? of(8 * m + 2 * q + c).row[g] : of(8 * m + g).row[2 * q + c];
        of(lane).to[m] = pair[0] | pair[1] << 16;
      }
    }
  });
}
}  // namespace host
