// Input tiles for the producers of gamma_tensor.cuh by bulk tensor copies: boxes of RUN neighbouring
// tiles of a row, of IMAGES images and of SLOT_ROWS rows, 64 bytes of channels a pixel, zeros outside
// x. A slot holds a unit of 8 tiles of every producer warp (UNIT_*, gamma_tensor_boxes.py: such that
// nothing conflicts); once all of them have read it, a warp of its own orders the boxes of the next
// stage in it. Requests of 64 bytes a pixel, whatever the elements: smaller ones bind.

constexpr int BOX_CHANNELS = 64 / (int)sizeof(Element);
constexpr int REUSE = BOX_CHANNELS / KC;                  // stages that boxes serve
constexpr int BOX_SIZE = IMAGES * SLOT_ROWS * BOX_PIXELS * 64;
constexpr int OUTSIDE = 1 << 30;  // an image that is none
static_assert(BOXES <= 32, "a lane a box");

struct Raw {
  alignas(1024) unsigned char slot[SLOTS][SLOT_SIZE];  // [box][image][row][pixel][channel], swizzled
  unsigned long long full[SLOTS], empty[SLOTS];
};

__device__ __forceinline__ void fetch_init(Raw& raw) {
#pragma unroll
  for (int g = 0; g < SLOTS; ++g) {
    barrier_init(&raw.full[g], 1);
    barrier_init(&raw.empty[g], PRODUCERS);
  }
}

// Stages that boxes of so many left serve, from that chunk on.
__device__ __forceinline__ int serves(const Params& p, int chunk, int more) {
  return REUSE == 1 ? 1 : min(min(REUSE - chunk % REUSE, p.chunks - chunk), more);
}

// A producer lane's tile of a slot, counted along its rows.
__device__ __forceinline__ int unit_tile(int warp, int lane) {
  const long long low = warp % 2 ? UNIT_1 : UNIT_0, high = warp % 2 ? UNIT_3 : UNIT_2;
  return (int)((warp / 2 ? high : low) >> lane / 2 % 8 * 8) & 0xff;
}

// By one warp: orders boxes ahead of the transforms, over items, outer taps and channels.
struct Loader {
  const Steps& steps;
  int index, more, fw, fh;  // of the boxes that are ordered next; stages of the item from them on
  int c, w, h, d, n;        // where a lane's box begins

  __device__ __forceinline__ Loader(const Params& p, const Steps& steps)
      : steps(steps), index(blockIdx.x / SPLIT) {
    begin(p);
  }

  // The first tile column of a lane's box.
  __device__ __forceinline__ int column(const Params& p, int g) const {
    return Item(p, index).column + g * 32 % COLUMNS + threadIdx.x % 32 * BOX_TILES;
  }

  __device__ __forceinline__ void begin(const Params& p) {
    const int group = steps.begin / p.chunks, taps = group / p.taps_width;
    more = steps.end - steps.begin;
    fw = group % p.taps_width;
    fh = taps % (p.taps_height / SHARE) * SHARE;
    c = steps.begin % p.chunks * KC;
    const Place first(p, column(p, 0));
    w = first.first + fw * R - p.pad_width;
    h = Item(p, index).row + fh - p.pad_height;
    d = first.depth + taps / (p.taps_height / SHARE) - p.pad_depth;
    n = column(p, 0) < p.columns ? first.batch : OUTSIDE;
  }

  __device__ __forceinline__ void next(const Params& p) {
    const int stages = serves(p, c / KC, more);
    c += stages * KC;
    if ((more -= stages) == 0) {
      index += gridDim.x / SPLIT;
      begin(p);
    } else if (c == p.chunks * KC) {
      c = 0;
      w += R;
      if (++fw == p.taps_width) {
        w -= fw * R;
        fw = 0;
        h += SHARE;
        if ((fh += SHARE) >= p.taps_height) {
          h -= fh;
          fh = 0;
          ++d;
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const Params& p, Raw& raw, int g) const {
    const int lane = threadIdx.x % 32;
    if (lane == 0) barrier_arrive_expect(&raw.full[g], BOXES * BOX_SIZE);
    __syncwarp();
    int right = 0, behind = 0, batch = n;
    if (g * 32 % COLUMNS > 0) {
      const int at = column(p, g);
      const Place first(p, column(p, 0)), here(p, at);
      right = here.first - first.first, behind = here.depth - first.depth;
      batch = at < p.columns ? here.batch : OUTSIDE;
    }
    if (lane < BOXES)
      box_copy(raw.slot[g] + lane * BOX_PITCH, p.x_map, c / BOX_CHANNELS * BOX_CHANNELS, w + right,
               h + g * 32 / COLUMNS, d + behind, batch, &raw.full[g]);
  }
};

// Blocks that have an item fewer than others begin later, spread over less than an item's time: else
// all store outputs at the same moment and wait for the memory (10 % at 96² × 64, on an H100).
__device__ __forceinline__ void spread(const Params& p, int steps) {
  constexpr int CYCLES = PARTS == 2 ? 4096 : 2048, PHASES = 64;  // less than a stage's; of blocks
  const int block = blockIdx.x / SPLIT, longer = p.items % (int)(gridDim.x / SPLIT);
  if (longer == 0 || block < longer) return;
  const int wait = block * 37 % PHASES * (min(steps, 8) * CYCLES / PHASES);
  const long long begin = clock64();
  while (clock64() - begin < wait) {
  }
}

__device__ __forceinline__ void load(const Params& p, Raw& raw) {
  const Steps steps(p, SPLIT);
  spread(p, steps.end - steps.begin);
  unsigned phase = 1;
  for (Loader loader(p, steps); loader.index < p.items; loader.next(p)) {
#pragma unroll 1
    for (int g = 0; g < SLOTS; ++g) {
      barrier_wait(&raw.empty[g], phase);
      loader.issue(p, raw, g);
    }
    phase ^= 1;
    // Producers, too, finish an item once they have made a stage of the next.
    static_assert(SPLIT == 1 || AHEAD == 1, "boxes of that stage have been ordered then");
    if (SPLIT > 1 && loader.more == steps.end - steps.begin && loader.index >= gridDim.x / SPLIT)
      meet();
  }
  if (SPLIT > 1 && blockIdx.x / SPLIT < p.items) meet();  // about the last item
}

// Of a producer thread: its four channels of a tile's pixels, stage by stage.
struct Fetch {
  Raw& raw;
  const Steps& steps;
  int left, sub, more;  // stages that the present boxes serve; the first one's place in them
  unsigned phase = 0;
  unsigned offset[ALPHA / 2];  // of pixels in a slot, pairs of 16 bits

  __device__ __forceinline__ Fetch(const Params& p, Raw& raw, const Steps& steps)
      : raw(raw), steps(steps), more(0) {
    static_assert(SLOT_SIZE <= 1 << 16, "offsets of 16 bits");
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
    const int tile = unit_tile(warp, lane), column = tile % SLOT_COLUMNS, row = tile / SLOT_COLUMNS;
    const int image = column % IMAGES, along = column % BOX_TILES / IMAGES;
    const unsigned pixel = (image * SLOT_ROWS + row) * BOX_PIXELS + along * N;
    const unsigned first = column / BOX_TILES * BOX_PITCH + pixel * 64 +
                           (lane / 16 * 2 + lane % 2) * 4 * (int)sizeof(Element);
#pragma unroll
    for (int i = 0; i < ALPHA; i += 2)
      offset[i / 2] = swizzled(first + i * 64) | swizzled(first + i * 64 + 64) << 16;
    begin(p);
  }

  __device__ __forceinline__ void begin(const Params& p) {
    if constexpr (REUSE > 1) {
      if (more == 0) more = steps.end - steps.begin;
      const int chunk = (steps.end - more) % p.chunks;
      left = serves(p, chunk, more);
      sub = chunk % REUSE;
      more -= left;
    } else {
      left = 1, sub = 0;
    }
  }

  __device__ __forceinline__ void pixels(int g, Loaded (&to)[ALPHA]) {
    barrier_wait(&raw.full[g], phase);
#pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
      const unsigned at = offset[i / 2] >> i % 2 * 16 & 0xffffu;
      to[i] = *reinterpret_cast<const Loaded*>(raw.slot[g] + (REUSE == 1 ? at : at ^ sub * 32));
    }
  }

  // After the stores of what the pixels became: they have been read then.
  __device__ __forceinline__ void done(const Params&, int g) {
    if (left == 1) barrier_arrive(&raw.empty[g]);
  }

  __device__ __forceinline__ void next(const Params& p) {
    if (--left > 0) {
      ++sub;
    } else {
      begin(p);
      phase ^= 1;
    }
  }
};
