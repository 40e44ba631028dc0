"""The Tensor Core kernels of Γ, run on the CPU with emulated Tensor Cores, against FP64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.gpu.emit import unit
from winolab.gpu.launch import INT, LONG, POINTER, Layout
from winolab.ref.transforms import transforms

FILTER_PARAMS = Layout(
    ("w u scales", POINTER),
    ("m_stride c_stride depth_stride row_stride width_stride", LONG),
    ("out_channels channels taps taps_height taps_width chunks", INT),
)
PARAMS = Layout(
    ("x u y scales", POINTER),
    ("x_batch x_depth x_row y_batch y_depth y_row", LONG),
    ("x_pixel y_pixel", INT),
    ("depth height width out_depth out_height out_width", INT),
    ("pad_depth pad_height pad_width taps_depth taps_height taps_width", INT),
    ("channels out_channels tiles_width columns chunks blocks_m blocks_row items", INT),
)
BLOCK = {"PARTS": 2, "BF16": 0, "WIDE": 1, "KC": 16, "BN": 64, "ROWS": 4, "SHARE": 3}
BLOCK |= {"V_STAGES": 2, "PASSES": 2, "XVEC": 4, "YVEC": 4}
BLOCK |= {"CONSUMER_REGISTERS": 200, "PRODUCER_REGISTERS": 104}


@pytest.mark.parametrize(("group", "ring"), [(1, 4), (2, 3)])
def test_split_products_are_as_accurate_as_fp32(group: int, ring: int) -> None:
    batch, height, width, c, oc = 1, 5, 13, 20, 68
    constants = {"N": 6, "R": 3, "ALPHA": 8, **BLOCK, "GROUP": group, "RING": ring}
    programs = transforms(6, 3, "best").programs
    names = {"filter": programs.G, "input": programs.BT, "output": programs.AT}
    source = unit(
        "Γ8(6,3)",
        constants,
        {f"transform_{name}": program for name, program in names.items()},
        ("tensor", "parts", "pipeline", "filter_tensor", "gamma_tensor"),
    )
    kernels = hosted.load(source, {"winolab_filter": 0, "winolab_gamma": 227 << 10})
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, height, width, c), "float32")
    w = rng.standard_normal((oc, 3, 3, c), "float32")
    y = np.full((batch, height, width, oc), np.nan, "float32")
    scales = np.full(2, 64, "float32")
    u = np.zeros((2 * 3 * 2 * 8 * 2 * 128, 4), "uint32")
    a, b, out, s = (v.ctypes.data for v in (x, w, y, scales))
    filters = FILTER_PARAMS.pack(b, u.ctypes.data, s, 9 * c, 1, 0, 3 * c, c, oc, c, 3, 3, 1, 2)
    kernels["winolab_filter"]((2, 2, 3), 128, filters)
    columns = 512 * group // 8 // BLOCK["ROWS"]
    items = 2 * -(-height // BLOCK["ROWS"]) * -(-3 // columns)
    strides = (height * width * c, 0, width * c, height * width * oc, 0, width * oc, c, oc)
    sizes = (1, height, width) * 2 + (0, 1, 1) + (1, 3, 1)
    counts = (c, oc, 3, 3, 2, 2, -(-height // BLOCK["ROWS"]), items)
    params = PARAMS.pack(a, u.ctypes.data, out, s, *strides, *sizes, *counts)
    kernels["winolab_gamma"]((2 * group, 1, 1), 384, params)
    padded = np.pad(x.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = sum(
        padded[:, i : i + height, j : j + width] @ w[:, i, j].T.astype("float64")
        for i in range(3)
        for j in range(3)
    )
    # 2^-22 a product, and a few roundings of the transforms, amplified as noise_gain says.
    assert np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)) <= 16 * 2**-24
