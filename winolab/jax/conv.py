"""jax.lax's convolution, computed by winolab: the same arguments, shapes and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from winolab.algorithm import Algorithm
from winolab.arguments.values import per_dimension, sequence, whole
from winolab.arguments.words import plural
from winolab.jax.asked import Asked, check_dtype, options_of
from winolab.jax.primitives import convolve

LAX_PRECISIONS = tuple(each.name.lower() for each in lax.Precision)
PADDINGS = ("SAME", "SAME_LOWER", "VALID")  # lax's, in letters of any case


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    algorithm: str | Algorithm | None = None,
    tolerance: float | str | None = None,
    workspace_limit: int | None = None,
) -> jax.Array:
    """The cross-correlation of lhs with rhs, float64 (on the CPU), float32, float16 or bfloat16.

    The arguments and the result are those of jax.lax.conv_general_dilated: 16-bit arrays are summed
    in float32, and ``precision`` may be a lax.Precision, which asks for no more than the arrays'
    own, or one of winolab.conv_forward's, "tf32". ``algorithm`` is an algorithm or its text
    ("winograd:4x4:3x3", "gamma:8:6:3"); None is direct convolution on the CPU and on a GPU the
    planner's choice of those that are predicted to err at most four times as much as direct
    products in the same precision ("direct:4"). ``tolerance`` is winolab.conv_forward's, for data
    uniform on [-1, 1]: 1e-5 admits algorithms by their predicted error; ``workspace_limit`` is in
    bytes. On the CPU, what is
    named runs the reference, slowly.

    jit, grad, jvp, vmap and what is made of them serve, in any order and of any order; filters'
    gradients take no tile of ``algorithm``. Within jax.shard_map and pmap each device computes its
    part; arrays that jit has sharded are gathered first. Any two runs give the same bits.

    Raises ValueError for shapes and sizes that do not fit and for what is not served, TypeError for
    dtypes; what only the data tells, as they run, JAX's JaxRuntimeError.

    >>> x, w = jnp.ones((1, 1, 4, 4)), jnp.ones((1, 1, 3, 3))
    >>> conv_general_dilated(x, w, (1, 1), "VALID", algorithm="winograd:2x2:3x3")[0, 0].tolist()
    [[9.0, 9.0], [9.0, 9.0]]
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    check_dtype("lhs", lhs.dtype.name)
    if preferred_element_type is not None:
        check_dtype("preferred_element_type", jnp.dtype(preferred_element_type).name)
    options = options_of(algorithm, _named(precision), tolerance, workspace_limit)
    ndim = jnp.ndim(rhs) - 2
    strides = _each("window_strides", window_strides, ndim)
    longer = _each("lhs_dilation", (1,) * ndim if lhs_dilation is None else lhs_dilation, ndim)
    dilation = _each("rhs_dilation", (1,) * ndim if rhs_dilation is None else rhs_dilation, ndim)
    if isinstance(padding, str) and padding.upper() not in PADDINGS:
        raise ValueError(f"padding {padding!r}; expected pairs or one of {', '.join(PADDINGS)}")
    feature_group_count = whole(feature_group_count, "feature_group_count")  # in a text: no NumPy's
    batch_group_count = whole(batch_group_count, "batch_group_count")

    def shaped(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(
            a,
            b,
            strides,
            padding,
            None if lhs_dilation is None else longer,
            dilation,
            dimension_numbers,
            feature_group_count,
            batch_group_count,
            preferred_element_type=preferred_element_type,
        )

    expected = jax.eval_shape(shaped, lhs, rhs)  # raises what lax does of arguments
    out_dtype = expected.dtype.name
    if 0 in (*lhs.shape, *rhs.shape, *expected.shape):
        return jnp.zeros(expected.shape, expected.dtype)
    specs = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    lying = _Lying(*((spec[0], *spec[2:], spec[1]) for spec in specs))
    groups = feature_group_count
    taps = [rhs.shape[i] for i in lying.w[1:-1]]
    if isinstance(padding, str):
        extents = [d * (r - 1) + 1 for d, r in zip(dilation, taps, strict=True)]
        sizes = [lhs.shape[i] for i in lying.x[1:-1]]
        padding = lax.padtype_to_pads(sizes, extents, strides, padding)
    pads = [(int(low), int(high)) for low, high in padding]
    if batch_group_count > 1:  # batches of their own filters: groups of channels
        lhs, groups = _batches_as_groups(lhs, lying.x, batch_group_count), batch_group_count
    geometry = {"dilation": dilation, "groups": groups, "out_dtype": out_dtype, **options}
    if set(longer) != {1} and set(strides) == {1}:
        return _transposed(lhs, rhs, lying, longer, pads, geometry)
    inner = [(low, high, d - 1) for (low, high), d in zip(pads, longer, strict=True)]
    cut = [(min(0, low), min(0, high), more) for low, high, more in inner]
    lhs = _padded(lhs, lying.x, cut)
    pads = tuple((max(0, low), max(0, high)) for low, high in pads)
    asked = Asked("forward", *lying, stride=strides, padding=pads, **geometry)
    return convolve(lhs, rhs, asked)


def _each(name: str, value: Any, ndim: int) -> tuple[int, ...]:
    """Integers of 1 or more, one a spatial dimension, as the argument ``name``."""
    values = sequence(name, value)
    if len(values) != ndim:
        raise ValueError(f"{name} has {plural(len(values), 'value')}; expected {ndim}")
    return per_dimension(values, ndim, name, 1)


class _Lying(NamedTuple):
    """Which axes of the arrays stand first, second, … in channels-last order."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]


def _named(precision: Any) -> Any:
    """None for lax's precisions, which ask for no more than the arrays' own; others as they are."""
    several = precision if isinstance(precision, tuple) else (precision,)
    known = all(isinstance(p, lax.Precision) or p in (None, *LAX_PRECISIONS) for p in several)
    return None if known else precision


def _padded(array: Any, axes: Sequence[int], spatial: Sequence[tuple[int, int, int]]) -> Any:
    """The array with zeros at both ends and between elements of its spatial axes, or cut there."""
    if not any(map(any, spatial)):
        return array
    config = [(0, 0, 0)] * array.ndim
    for axis, each in zip(axes[1:-1], spatial, strict=True):
        config[axis] = each
    return lax.pad(array, jnp.zeros((), array.dtype), config)


def _batches_as_groups(array: Any, axes: Sequence[int], groups: int) -> Any:
    """(groups · N, …, C) as (N, …, groups · C), wherever these axes lie."""
    batch, channels = axes[0], axes[-1]
    shape = list(array.shape)
    cut = array.reshape(*shape[:batch], groups, -1, *shape[batch + 1 :])
    shape[batch] //= groups
    shape[channels] *= groups
    return jnp.moveaxis(cut, batch, channels).reshape(shape)


def _transposed(
    lhs: Any,
    rhs: Any,
    lying: _Lying,
    stride: tuple[int, ...],
    pads: Sequence[tuple[int, int]],
    geometry: dict[str, Any],
) -> Any:
    """Zeros between the elements of lhs: the gradient of a strided convolution, of a filter whose
    taps run backwards and whose inputs are outputs."""
    taps = [rhs.shape[i] for i in lying.w[1:-1]]
    reach = [d * (r - 1) for d, r in zip(geometry["dilation"], taps, strict=True)]
    cuts = [(e - low, e - high) for e, (low, high) in zip(reach, pads, strict=True)]
    whole = [
        s * (lhs.shape[i] - 1) + 1 + e for s, i, e in zip(stride, lying.x[1:-1], reach, strict=True)
    ]
    inside = [(max(0, low), max(0, high)) for low, high in cuts]
    sizes = [n - low - high for n, (low, high) in zip(whole, inside, strict=True)]
    groups, channels = geometry["groups"], rhs.shape[lying.w[0]]
    w_axes = (lying.w[-1], *lying.w[1:-1], lying.w[0])
    rhs = lax.rev(rhs, lying.w[1:-1])
    if groups > 1:  # as (groups · IC, …, OC), where groups are cut out of OC
        rhs = jnp.transpose(rhs, lying.w).reshape(groups, -1, *taps, rhs.shape[lying.w[-1]])
        rhs = jnp.swapaxes(rhs, 1, -1).reshape(-1, *taps, channels // groups)
        w_axes = tuple(range(rhs.ndim))
    asked = Asked(
        "backward_data",
        x_axes=lying.y,
        w_axes=w_axes,
        y_axes=lying.x,
        stride=stride,
        padding=tuple(inside),
        result_shape=(lhs.shape[lying.x[0]], *sizes, channels),
        **geometry,
    )
    found = convolve(lhs, rhs, asked)
    missing = [(max(0, -low), max(0, -high), 0) for low, high in cuts]
    return _padded(found, lying.y, missing)
