"""Parameters of the kernels of Ωα(n,r) on Tensor Cores, field for field; what they call types."""

from __future__ import annotations

from winolab.gpu.params import FLOAT, INT, LONG, POINTER, Layout

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # as the kernels name them
SCALING = "power_of_two"  # of the rows of G and BT, so that states are about as large as data

TRANSFORM_PARAMS = Layout(
    *(
        (" ".join(f"{side}_{name}" for name in names.split()), kind)
        for side in ("x", "dy")
        for names, kind in (
            ("data to scale", POINTER),
            ("batch depth row", LONG),
            ("pixel width channels blocks depths rows", INT),
        )
    ),
    ("images batch batches units pitch pad_width pieces", INT),
    ("flags", POINTER),
)
GEMM_PARAMS = Layout(
    ("u v u_scale v_scale m", POINTER),
    ("u_positions v_positions", LONG),
    ("u_blocks v_blocks tiles_m tiles_n taps first_tap taps_height pieces segments", INT),
    ("pitch batches depths rows out_depths out_rows depth_shift row_shift accumulate", INT),
    ("flags", POINTER),
)
FINISH_PARAMS = Layout(
    ("m dw", POINTER),
    ("dw_out dw_depth dw_row dw_tap", LONG),
    ("out_channels channels padded_out padded", INT),
    ("taps first_tap taps_height pieces taps_width segments", INT),
    ("budget flags", POINTER),
    ("least", FLOAT),
)
