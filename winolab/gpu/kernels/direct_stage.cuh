// Stages of omega_direct.cuh: block shape, shared memory, who has which registers.

constexpr int TAPS = N, KS = KC;
constexpr int GROUPS = 2, THREADS = 128 * GROUPS + PRODUCERS;
constexpr int COPIED = PRODUCERS / 8;          // positions that producers copy at once
// Warpgroups have 64 output channels each; of the same ones half of the taps, or of the positions.
constexpr int GROUPS_M = BO / 64;
constexpr int GROUPS_K = GROUPS_M * TAPS % GROUPS ? GROUPS / GROUPS_M : 1;
constexpr int GROUP_TAPS = GROUPS_M * GROUPS_K * TAPS / GROUPS;
constexpr int ROWS = KS + (TAPS > 1 ? 8 : 0);  // of a stage of x
constexpr int PLANES = BI / 64;                // of 64 channels
// An instruction multiplies all channels for one tap; or 64 channels for neighbouring taps, whose
// matrices begin 128 bytes apart.
constexpr bool JOINED = BI == 64;
constexpr int WIDEST = PRODUCERS == 128 ? 256 : 192;  // that the launch's registers allow
constexpr int WN = !JOINED ? BI : 64 * GROUP_TAPS <= WIDEST ? 64 * GROUP_TAPS : 32 * GROUP_TAPS;
constexpr int PARTS = BI * GROUP_TAPS / WN;    // instructions of 16 positions
constexpr int PART_TAPS = JOINED ? WN / 64 : 1;
constexpr int DESCRIBED = PRODUCERS / KS;      // steps whose positions are found at once
constexpr int TABLES = 3;  // of such positions: read, read by the last taps, written
// Registers of the launch are handed from the producers to those that multiply.
constexpr int PRODUCER_REGISTERS = PRODUCERS == 128 ? 72 : 88;
constexpr int CONSUMER_REGISTERS = PRODUCERS == 128 ? 216 : 168;
static_assert(KS % (16 * GROUPS_K) == 0 && DESCRIBED >= 1 && TAPS <= 8, "stage shape");

struct __align__(16) Place {
  const Element* x;  // null: zeros
  const Element* dy;
};

struct Shared {
  unsigned short dy[STAGES][GROUPS_M][KS * 64];  // [plane][position][64 channels]
  unsigned short x[STAGES][PLANES][ROWS * 64];
  Place places[TABLES * PRODUCERS];  // a ring
  unsigned long long full[STAGES], empty[STAGES];
};
