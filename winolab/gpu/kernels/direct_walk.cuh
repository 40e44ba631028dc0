// Stages in turn, and positions of the sum, for direct products of x and dy as they lie.

struct Pipe {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

// A position of the sum that goes on PRODUCERS positions at a time, without divisions.
struct Walk {
  int index, column, row, depth, image;
  long long x, dy;                            // offsets of the position in both arrays
  int by_column, by_row, by_depth, by_image;  // PRODUCERS positions in these units
  long long x_by, dy_by;
  int pitch, rows, depths;
  __device__ __forceinline__ Walk(const OmegaParams& p, const Item& item, int first)
      : index(first), pitch(p.pitch), rows(max(1, item.rows)), depths(max(1, item.depths)) {
    split(first, column, row, depth, image);
    split(PRODUCERS, by_column, by_row, by_depth, by_image);
    x = offset(column, row, depth, image, p.x_pixel, p.x_row, p.x_depth, p.x_batch);
    dy = offset(column, row, depth, image, p.dy_pixel, p.dy_row, p.dy_depth, p.dy_batch);
    x_by = offset(by_column, by_row, by_depth, by_image, p.x_pixel, p.x_row, p.x_depth, p.x_batch);
    dy_by = offset(by_column, by_row, by_depth, by_image, p.dy_pixel, p.dy_row, p.dy_depth,
                   p.dy_batch);
  }
  __device__ __forceinline__ void split(int at, int& c, int& h, int& d, int& n) const {
    c = at % pitch, at /= pitch;
    h = at % rows, at /= rows;
    d = at % depths, n = at / depths;
  }
  static __device__ __forceinline__ long long offset(int c, int h, int d, int n, int by_c,
                                                     long long by_h, long long by_d,
                                                     long long by_n) {
    return c * (long long)by_c + h * by_h + d * by_d + n * by_n;
  }
  __device__ __forceinline__ void advance(const OmegaParams& p) {
    index += PRODUCERS, x += x_by, dy += dy_by;
    column += by_column;
    const bool next_row = column >= pitch;
    if (next_row) {
      column -= pitch;
      x += p.x_row - pitch * (long long)p.x_pixel, dy += p.dy_row - pitch * (long long)p.dy_pixel;
    }
    row += by_row + next_row;
    const bool next_depth = row >= rows;
    if (next_depth)
      row -= rows, x += p.x_depth - rows * p.x_row, dy += p.dy_depth - rows * p.dy_row;
    depth += by_depth + next_depth;
    const bool next_image = depth >= depths;
    if (next_image)
      depth -= depths, x += p.x_batch - depths * p.x_depth, dy += p.dy_batch - depths * p.dy_depth;
    image += by_image + next_image;
  }
};
