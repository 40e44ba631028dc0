"""Arrays with ``__dlpack__`` on the CPU go to the reference and come back as they came."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import winolab
from winolab.problem import NAMES

LIBRARIES = {"torch": torch, "jax": jax.numpy, "array_api_strict": array_api_strict}
RNG = np.random.default_rng(4)
SHAPES = {"x": (1, 6, 7, 4), "w": (5, 3, 3, 4), "dy": (1, 6, 7, 5)}
ARRAYS = {n: RNG.uniform(-1, 1, s).astype(np.float32) for n, s in SHAPES.items()}
SIZES = {"forward": (), "backward_data": (SHAPES["x"],), "backward_filter": (SHAPES["w"],)}


def of(library: str, array: np.ndarray, dtype: str) -> Any:
    module = LIBRARIES[library]
    made = module.asarray(np.array(array))
    return made.to(getattr(torch, dtype)) if library == "torch" else made.astype(dtype)


@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize(
    ("library", "dtype"),
    [
        *(("torch", dtype) for dtype in ("float32", "float64", "float16", "bfloat16")),
        *(("jax", dtype) for dtype in ("float32", "float16", "bfloat16")),
        ("array_api_strict", "float32"),
    ],
)
def test_results_are_those_of_numpy_arrays(library: str, dtype: str, direction: str) -> None:
    """Issue 46, section 3: one code on a laptop and a GPU."""
    given = [ARRAYS[name] for name in NAMES[direction][:2]]
    narrow = [v.astype(getattr(ml_dtypes, dtype, dtype)) for v in given]
    call, how = getattr(winolab, f"conv_{direction}"), {"padding": 1}
    expected = call(*narrow, *SIZES[direction], **how)
    made = [of(library, v, dtype) if library != "array_api_strict" else
            array_api_strict.asarray(v) for v in given]  # fmt: skip
    got = call(*made, *SIZES[direction], **how)
    assert (type(got), got.dtype) == (type(made[0]), made[0].dtype)
    wide = got.double().numpy() if library == "torch" else np.asarray(got).astype(float)
    assert (wide == expected.astype(float)).all()


def test_the_exact_result_of_integers_is_the_library_s() -> None:
    x, w = torch.arange(16).reshape(1, 4, 4, 1), torch.ones(1, 3, 3, 1, dtype=torch.int64)
    y = winolab.conv_forward(x, w, precision="exact", algorithm="winograd:2x2:3x3")
    assert (y.dtype, y.flatten().tolist()) == (torch.int64, [45, 54, 81, 90])
    with pytest.raises(TypeError, match="the result has dtype object, which torch does not take"):
        winolab.conv_forward(x, w, precision="exact", out_dtype=object)


def test_tracers_are_refused_in_a_line() -> None:
    x, w = jax.numpy.asarray(ARRAYS["x"]), ARRAYS["w"]
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda v: f(v).sum())):
        with pytest.raises(
            TypeError, match=r"x is a jax .*Tracer, which has no numbers"
        ) as refused:
            transform(lambda v: winolab.conv_forward(v.reshape(1, 6, 7, 4), w))(x)
        assert "\n" not in str(refused.value)
    made = jax.ShapeDtypeStruct((1, 4, 5, 5), np.float32)
    inside = jax.jit(lambda v: jax.pure_callback(lambda u: winolab.conv_forward(u, w), made, v))
    assert (np.asarray(inside(x)) == winolab.conv_forward(ARRAYS["x"], w)).all()


def test_results_of_other_libraries_are_read_only() -> None:
    x, out = jax.numpy.asarray(ARRAYS["x"]), jax.numpy.zeros((1, 4, 5, 5))
    with pytest.raises(ValueError, match="out is read-only; pass an array that may be written"):
        winolab.conv_forward(x, ARRAYS["w"], out=out)
