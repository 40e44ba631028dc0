"""Fields of structs that several kernels have, printed into them as a header."""

from __future__ import annotations

from winolab.gpu.params import INT, LONG

# The fields of Γ's parameters behind their pointers, as block.cuh gets them. Strides are in
# elements; outer taps are summed directly; a chunk is KC channels; ``tiles_width`` are tiles of n
# outputs in a row, ``columns`` those of all depths and images. A work tile, a block's worth of
# work, is one of ``blocks_m`` blocks of output channels × one of ``blocks_row`` blocks of output
# rows × a block's columns; one block alone sums each of the first ``whole``.
CORRELATION = (
    ("x_batch x_depth x_row y_batch y_depth y_row", LONG),
    ("x_pixel y_pixel", INT),
    ("depth height width out_depth out_height out_width", INT),
    ("pad_depth pad_height pad_width taps_depth taps_height taps_width", INT),
    ("channels out_channels tiles_width columns chunks blocks_m blocks_row work_tiles whole", INT),
)
