"""Derivatives of any order, batches and meshes of the primitives: those of jax.lax."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from winolab.jax import conv_general_dilated

RNG = np.random.default_rng(51)
HOW: dict[str, Any] = {"window_strides": (1, 1), "padding": ((1, 0), (0, 1))}
SHAPES = {"x": (2, 4, 3, 4), "w": (4, 2, 2, 2), "y": (2, 4, 3, 4)}


def integers(*shape: int) -> Any:
    return jnp.asarray(RNG.integers(-2, 3, shape), jnp.float32)


def ours(x: Any, w: Any) -> Any:
    return conv_general_dilated(x, w, **HOW, feature_group_count=2, algorithm="direct")


def theirs(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, **HOW, feature_group_count=2)


def same(got: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_second_derivatives_forward_and_backward() -> None:
    """The sum of cubes has them: none is zero without a word."""
    x, w = integers(*SHAPES["x"]), integers(*SHAPES["w"])
    ways = integers(*SHAPES["x"]), integers(*SHAPES["w"])

    def found(convolve: Any) -> Any:
        def cubes(x: Any, w: Any) -> Any:
            return (convolve(x, w) ** 3).sum()

        def products(x: Any, w: Any) -> Any:
            gradient = jax.grad(cubes, (0, 1))
            forward = jax.jvp(gradient, (x, w), ways)[1]
            backward = jax.vjp(gradient, x, w)[1](ways)
            return forward, backward, jax.linearize(convolve, x, w)[1](*ways)

        return jax.jit(products)(x, w)

    got = found(ours)
    same(got, found(theirs))
    same(got[0], got[1])
    assert all(np.abs(each).min() < np.abs(each).max() for each in jax.tree.leaves(got))


@pytest.mark.parametrize("mapped", ["x", "w", "y", "xwy"])
def test_batches_of_any_operands(mapped: str) -> None:
    """x, w and what is pulled back have some: each rule of every direction, with groups, the
    batch's axis anywhere."""
    dims = {"x": 2, "w": 4, "y": 1}
    given = [integers(*SHAPES[role]) for role in SHAPES]
    axes = [dims[role] if role in mapped else None for role in SHAPES]
    given = [
        v if dim is None else jnp.stack([v, v + 1, -v], dim)
        for v, dim in zip(given, axes, strict=True)
    ]

    def found(convolve: Any) -> Any:
        def both(x: Any, w: Any, dy: Any) -> Any:
            y, pull = jax.vjp(convolve, x, w)
            return y, pull(dy)

        return jax.jit(jax.vmap(both, axes, 3))(*given)

    same(found(ours), found(theirs))


MESHES = """
import jax, numpy as np
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from winolab.jax import conv_general_dilated

def ours(x, w, algorithm="winograd:2x2:3x3"):
    return conv_general_dilated(x, w, (1, 1), "SAME", algorithm=algorithm)

rng = np.random.default_rng(0)
x, w = (jnp.asarray(rng.integers(-2, 3, s), jnp.float32) for s in ((4, 2, 4, 4), (2, 2, 3, 3)))
mesh = Mesh(np.array(jax.devices()), ("batch",))
def loss(convolve):
    return jax.jit(jax.value_and_grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1)))(x, w)
for algorithm in (None, "winograd:2x2:3x3"):
    one = lambda x, w: ours(x, w, algorithm)
    mapped = jax.shard_map(one, mesh=mesh, in_specs=(P("batch"), P()), out_specs=P("batch"))
    for a, b in zip(jax.tree.leaves(loss(mapped)), jax.tree.leaves(loss(one))):
        np.testing.assert_array_equal(a, b)
whole = ours(x, w)
sharded = jax.device_put(x, NamedSharding(mesh, P("batch")))
np.testing.assert_array_equal(jax.jit(ours)(sharded, w), whole)
parts = jax.pmap(ours, in_axes=(0, None))(x.reshape(2, 2, *x.shape[1:]), w)
np.testing.assert_array_equal(parts.reshape(whole.shape), whole)
explicit = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    try:
        jax.jit(ours)(jax.device_put(x, NamedSharding(explicit, P("batch"))), w)
    except ValueError as error:
        print(error)
"""


def test_meshes_of_two_devices() -> None:
    """shard_map and pmap: values, and gradients summed over devices; types that are sharded: no."""
    run = subprocess.run(
        [sys.executable, "-c", MESHES],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "convolve the parts within jax.shard_map\n" in run.stdout
