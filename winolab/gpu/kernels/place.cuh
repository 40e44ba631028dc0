// Where a tile column of gamma_tensor.cuh lies: every IMAGES images vary first, so that boxes of them
// serve rows of few tiles.
struct Place : Column {
  __device__ __forceinline__ Place(const Params& p, int index) : Column(p, index / IMAGES) {
    batch = batch * IMAGES + index % IMAGES;
  }
};

// Of a block: TWINS neighbouring ones have the same output channels and rows, and neighbouring columns.
__device__ __forceinline__ Item item_at(const Params& p, int index) {
  const int at = index / TWINS;
  Item item(p, at);
  // Every block has its share of the narrow ones, which take less time.
  if (NARROW > 0) item.block_m = (at + at / p.turn) % p.blocks_m;
  item.column = item.column * TWINS + index % TWINS * COLUMNS;
  return item;
}
