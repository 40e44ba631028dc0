// Of omega_split.cuh: block shape, registers, shared memory.

constexpr int TAPS = N, KS = KC;
constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
// Warpgroups have 64 output channels each; of the same ones half of the taps, or of the positions.
constexpr int GROUPS_M = BO / 64;
constexpr int GROUPS_K = GROUPS_M * TAPS % GROUPS ? GROUPS / GROUPS_M : 1;
constexpr int GROUP_TAPS = GROUPS_M * GROUPS_K * TAPS / GROUPS, GROUP_KS = KS / GROUPS_K;
constexpr int ROWS = KS + (TAPS > 1 ? 8 : 0);  // of a stage of x
constexpr int PLANES = BI / 64;                // of 64 channels
constexpr int PIECES = PLANES * GROUP_TAPS;    // of 64 columns, of a warpgroup
constexpr int VECTORS_M = BO / 4, VECTORS_N = BI / 4;  // of a position
constexpr int DOWN_M = PRODUCERS / VECTORS_M, DOWN_N = PRODUCERS / VECTORS_N;  // positions at once
constexpr int LOADS_M = KS / DOWN_M, LOADS = LOADS_M + KS / DOWN_N;  // of a thread, of a stage
constexpr int DESCRIBED = PRODUCERS / KS;      // steps whose positions are found at once
constexpr int TABLES = 3;  // of such positions: read, read by the next step's loads, written
// Registers that the launch gives, handed from producers to consumers. With more than these the
// compiler has producers' sums of squares wait, and spills what they are of.
constexpr int PRODUCER_REGISTERS = 80, LAUNCHED = 65536 / THREADS / 8 * 8;
constexpr int CONSUMER_REGISTERS =
    (LAUNCHED * THREADS - PRODUCER_REGISTERS * PRODUCERS) / (128 * GROUPS) / 8 * 8;
static_assert(KS % (16 * GROUPS_K) == 0 && KS % DOWN_M == 0 && KS % DOWN_N == 0 &&
                  DESCRIBED >= 1 && TAPS <= 8 && (TAPS - 1) * VECTORS_N <= PRODUCERS,
              "stage shape");
static_assert(RAW < DESCRIBED && SUMS <= 2, "positions are described as far ahead as copies go");

struct SplitParams {
  OmegaParams sum;
  Header* x_header;  // its flags are the call's
  Header* dy_header;
};

struct __align__(16) Place {
  const float* x;  // null: zeros
  const float* dy;
};

struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

struct Shared {
  unsigned short dy[STAGES][PARTS][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[STAGES][PARTS][PLANES][ROWS * 64];
  // A thread's vectors, of steps on their way; what taps after the first reach. (One of nothing else.)
  float4 raw[RAW > 0 ? RAW : 1][RAW > 0 ? LOADS : 1][RAW > 0 ? PRODUCERS : 1];
  float4 reached[RAW > 0 ? RAW : 1][RAW > 0 && TAPS > 1 ? (TAPS - 1) * VECTORS_N : 1];
  Place places[TABLES * PRODUCERS];  // a ring; in the end, producers' sums of squares
  float squares[BO + BI];            // of dy's and x's channels
  unsigned long long full[STAGES], empty[STAGES], watched;
};
