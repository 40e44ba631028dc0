"""Parameters of the kernels of nested Winograd, field for field."""

from __future__ import annotations

from winolab.gpu.params import FLOAT, INT, LONG, MAP, POINTER, Layout

FILTER_PARAMS = Layout(
    ("w u rows maxima losses", POINTER),
    ("m_stride c_stride row_stride width_stride lowest", LONG),
    ("step out_channels channels height width", INT),
    ("pieces_height pieces_width chunks outputs slices", INT),
    ("known", FLOAT),
)
INPUT_PARAMS = Layout(
    ("x v header", POINTER),
    ("batch_stride row_stride", LONG),
    ("pixel_stride height width channels pad_height pad_width", INT),
    ("tiles_height tiles_width chunks units", INT),
)
DESCRIBERS = Layout(("describers", INT))  # behind these and the filter's
PRODUCTS_PARAMS = Layout(
    ("v_map", MAP),
    ("u m", POINTER),
    ("box_width box_height box_images box_bytes", INT),
    ("blocks_width blocks_height blocks_m blocks_n work_tiles", INT),
    ("pieces_height pieces_width chunks", INT),
    ("short_height short_width", INT),
)
OUTPUT_PARAMS = Layout(
    ("m y header rows", POINTER),
    ("batch_stride row_stride state_stride", LONG),
    ("pixel_stride height width channels pitch", INT),
    ("tiles_height tiles_width pairs units", INT),
    ("box_width box_height box_images blocks_width blocks_height", INT),
)
