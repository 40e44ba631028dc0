"""jax.lax's convolution by winolab: values, derivatives and batches beside lax's, on the CPU.

Small integers make every sum exact, of direct products and of F(2,3), whatever its order.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import winolab
from winolab.jax import conv_general_dilated

RNG = np.random.default_rng(50)
NHWC = ("NHWC", "HWIO", "NHWC")
SAME: dict[str, Any] = {"window_strides": (1, 1), "padding": "SAME"}
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "strided, dilated, NHWC": (
        (2, 7, 8, 4),
        (3, 3, 4, 6),
        {"window_strides": (2, 1), "padding": "SAME", "rhs_dilation": (1, 2),
         "dimension_numbers": NHWC},
    ),
    "groups, each end its own": (
        (2, 7, 8, 4),
        (3, 2, 2, 6),
        {"window_strides": (2, 2), "padding": ((1, 2), (0, 3)), "feature_group_count": 2,
         "dimension_numbers": ("NHWC", "HWIO", "NCHW")},
    ),
    "transposed, grouped, more than all of it": (
        (2, 4, 5, 6),
        (6, 2, 3, 2),
        {"window_strides": (1, 1), "padding": ((5, 0), (1, 4)), "lhs_dilation": (2, 3),
         "rhs_dilation": (2, 1), "feature_group_count": 2},
    ),
    "zeros between, strided and cut": (
        (2, 4, 5, 6),
        (6, 4, 3, 2),
        {"window_strides": (2, 1), "padding": ((5, -1), (-1, 4)), "lhs_dilation": (2, 3)},
    ),
    "batches with filters of their own": (
        (4, 4, 5, 6),
        (6, 4, 3, 2),
        {"window_strides": (1, 1), "padding": ((1, 1), (1, 4)), "batch_group_count": 2},
    ),
    "one dimension, other letters": (
        (9, 2, 4),
        (3, 4, 5),
        {"window_strides": (2,), "padding": "VALID", "dimension_numbers": ("WNC", "WIO", "CWN")},
    ),
    "three dimensions": (
        (1, 2, 4, 5, 6),
        (3, 2, 2, 3, 2),
        {"window_strides": (1, 2, 1), "padding": "SAME"},
    ),
}  # fmt: skip


def integers(*shape: int) -> Any:
    return jnp.asarray(RNG.integers(-3, 4, shape), jnp.float32)


@pytest.mark.parametrize("name", CASES)
def test_values_and_both_gradients_are_lax_s(name: str) -> None:
    x_shape, w_shape, how = CASES[name]
    x, w = integers(*x_shape), integers(*w_shape)

    def theirs(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, **how)

    def ours(x: Any, w: Any) -> Any:
        return conv_general_dilated(x, w, **how, algorithm="direct", precision="fp32")

    y = theirs(x, w)
    dy = integers(*y.shape)

    def both(convolve: Any) -> Any:
        def found(x: Any, w: Any, dy: Any) -> Any:
            y, pull = jax.vjp(convolve, x, w)
            return y, *pull(dy)

        return jax.jit(found)(x, w, dy)

    for got, expected in zip(both(ours), both(theirs), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_named_algorithm_has_the_reference_s_bits(dtype: str) -> None:
    """Under jit, as eagerly: NumPy's, of every type, in any order of axes."""
    kind = getattr(ml_dtypes, dtype, dtype)
    x, w = (RNG.uniform(-1, 1, s).astype(kind) for s in ((2, 9, 8, 5), (4, 3, 3, 5)))
    algorithm = "gamma:8:6:3"
    expected = winolab.conv_forward(x, w, padding=1, algorithm=algorithm)
    other = winolab.conv_forward(x, w, padding=1)
    assert (expected != other).any()

    def ours(x: Any, w: Any) -> Any:
        return conv_general_dilated(
            x, w, **SAME, dimension_numbers=("CHWN", "HWIO", "NHWC"), algorithm=algorithm
        )

    given = jnp.asarray(x.transpose(3, 1, 2, 0)), jnp.asarray(w.transpose(1, 2, 3, 0))
    for got in (jax.jit(ours)(*given), ours(*given)):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_sums_of_16_bits_are_wide_and_may_be_kept() -> None:
    """2048 + 1 is no number of float16, and no sum of its type."""
    x = jnp.full((1, 1, 3), 2048, jnp.float16).at[0, 0, 1].set(1).at[0, 0, 2].set(-2048)
    w = jnp.ones((1, 1, 3), jnp.float16)
    for algorithm, dtype in ((None, jnp.float32), ("direct", None)):
        how: dict[str, Any] = {"preferred_element_type": dtype, "algorithm": algorithm}
        convolve = partial(conv_general_dilated, window_strides=(1,), padding="VALID", **how)
        y, pull = jax.vjp(convolve, x, w)
        assert (y.dtype, y.item()) == (dtype or jnp.float16, 1)
        assert [v.dtype for v in pull(y)] == [jnp.float16] * 2


def test_a_tolerance_takes_the_cheapest_that_keeps_to_it() -> None:
    x, w = (RNG.uniform(-1, 1, s).astype(np.float32) for s in ((1, 8, 12, 12), (8, 8, 3, 3)))
    exact = winolab.conv_forward(
        x, w, padding=1, layout="channels_first", precision="fp64", out_dtype=float
    )
    errors = []
    for tolerance in ("componentwise:1e-6", 1e-5):
        y = conv_general_dilated(x, w, **SAME, tolerance=tolerance)
        errors.append(np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)))
    assert errors[0] < errors[1] <= 1e-5


def test_what_cannot_be_served_is_refused_in_a_line() -> None:
    x, w = jnp.ones((1, 2, 5, 5)), jnp.ones((2, 2, 3, 3))
    cases: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (x, w, {"algorithm": "winograd:4x4:5x5"}, ValueError, "3"),
        (x, w, {"algorithm": "winogrd:4x4:3x3"}, ValueError, "winograd"),
        (x, w, {"algorithm": "direct", "tolerance": 1e-5}, ValueError, "give one of them"),
        (x, w, {"precision": "fp31"}, ValueError, "fp32"),
        (x, w, {"tolerance": "much"}, ValueError, "expected a number"),
        (x, w, {"tolerance": 1e-30}, ValueError, "tolerance 1e-30: the least that"),
        (x, w[:, :1], {}, ValueError, "feature"),
        (x.astype(int), w.astype(int), {}, TypeError, "lhs is of dtype int"),
        (x.astype(complex), w.astype(complex), {}, TypeError, "lhs is of dtype complex"),
        (x, w, {"preferred_element_type": jnp.int32}, TypeError, "preferred_element_type is"),
        (x, w.astype(jnp.float16), {}, TypeError, "dtype"),
    ]
    for a, b, how, kind, said in cases:
        for call in (conv_general_dilated, jax.jit(conv_general_dilated, static_argnums=(2, 3))):
            if call is not conv_general_dilated and how:
                continue
            with pytest.raises(kind, match=said) as found:
                call(a, b, (1, 1), ((1, 1), (1, 1)), **how)
            assert "\n" not in str(found.value).partition("\n-----")[0]  # JAX's of tracebacks


def test_integers_of_numpy_s_are_integers() -> None:
    """XLA's call holds a text, without place for NumPy's; what equals them was refused, too."""
    x, w = jnp.ones((2, 4, 5, 5)), jnp.ones((4, 2, 3, 3))
    for two in (np.int64(2), 2):
        how = {"feature_group_count": two, "workspace_limit": two << 20, "algorithm": "direct"}
        assert conv_general_dilated(x, w, (1, 1), "SAME", **how).shape == (2, 4, 5, 5)
        how = {"batch_group_count": two, "algorithm": "direct"}
        assert conv_general_dilated(x[:, :2], w, (1, 1), "SAME", **how).shape == (1, 4, 5, 5)
    for name in ("feature_group_count", "batch_group_count", "workspace_limit"):
        with pytest.raises(TypeError, match=f"^{name} is 2.0; expected an integer$"):
            conv_general_dilated(x, w, (1, 1), "SAME", **{name: cast(Any, 2.0)})


def test_what_only_data_tells_is_said_as_it_runs() -> None:
    x, w = jnp.full((1, 2, 5, 5), jnp.nan), jnp.ones((2, 2, 3, 3))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: .*finite") as found:
        conv_general_dilated(x, w, **SAME, precision="exact").block_until_ready()
    assert "Traceback" not in str(found.value)


def test_a_tolerance_that_nothing_keeps_to_is_refused_as_it_is_traced() -> None:
    x = jax.ShapeDtypeStruct((1, 2, 5, 5), jnp.float32)
    w = jax.ShapeDtypeStruct((2, 2, 3, 3), jnp.float32)
    traced = jax.jit(partial(conv_general_dilated, **SAME, tolerance=1e-30)).trace(x, w)
    with pytest.raises(ValueError, match=r"^tolerance 1e-30: the least that"):
        traced.lower()


@pytest.mark.parametrize("name", ["window_strides", "lhs_dilation", "rhs_dilation"])
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (1, TypeError, "is 1; expected a list"),
        ("1", TypeError, "is '1'; expected a list"),
        ("11", TypeError, "is '11'; expected a list"),
        ((1, 1, 1), ValueError, "has 3 values; expected 2"),
        ((0, 1), ValueError, "in spatial dimension 0 is 0; expected at least 1"),
        ((1, 1.5), TypeError, r"in spatial dimension 1 is 1\.5; expected an integer"),
    ],
)
def test_strides_and_dilations_are_refused_by_name(
    name: str, value: Any, error: type[Exception], said: str
) -> None:
    x, w = jnp.ones((1, 2, 5, 5)), jnp.ones((2, 2, 3, 3))
    how = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), name: value}
    with pytest.raises(error, match=f"^{name} {said}"):
        conv_general_dilated(x, w, **how)
    with pytest.raises(ValueError, match=r"^padding 'SAMEE'; expected pairs or one of SAME,"):
        conv_general_dilated(x, w, (1, 1), "SAMEE")


def test_lax_s_precisions_ask_for_no_more_than_the_arrays_own() -> None:
    x, w = integers(1, 2, 5, 5), integers(2, 2, 3, 3)
    expected = conv_general_dilated(x, w, **SAME, algorithm="direct")
    for precision in (lax.Precision.HIGHEST, "default", (lax.Precision.HIGH, None), "fp32"):
        got = conv_general_dilated(x, w, **SAME, precision=precision, algorithm="direct")
        np.testing.assert_array_equal(got, expected)


def test_nothing_to_sum_is_zero() -> None:
    y = conv_general_dilated(jnp.ones((2, 0, 5, 5)), jnp.ones((3, 0, 3, 3)), **SAME)
    assert (y.shape, float(abs(y).sum())) == ((2, 3, 5, 5), 0.0)
    assert conv_general_dilated(jnp.ones((0, 1, 5)), jnp.ones((1, 1, 3)), (1,), "VALID").size == 0
