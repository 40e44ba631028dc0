// Where a tile column of gamma_tensor.cuh lies: every IMAGES images vary first, so that boxes of them
// serve rows of few tiles.
struct Place : Column {
  __device__ __forceinline__ Place(const Params& p, int index) : Column(p, index / IMAGES) {
    batch = batch * IMAGES + index % IMAGES;
  }
};

// Of a block: TWINS neighbouring ones have the same output channels and rows, and neighbouring columns.
__device__ __forceinline__ Item item_at(const Params& p, int index) {
  Item item(p, index / TWINS);
  item.column = item.column * TWINS + index % TWINS * COLUMNS;
  return item;
}
