"""Arrays of other libraries as NumPy's and back: memory is shared, bfloat16's too."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax.numpy
import numpy as np
import pytest
import torch

import winolab.torch
from winolab.arguments.dlpack import BFLOAT16, foreign, numpy_view, returned

VALUES = np.arange(-6.0, 6.0).reshape(3, 4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("library", [torch, jax.numpy], ids=["torch", "jax"])
def test_memory_is_shared_both_ways(library: Any, dtype: str) -> None:
    made = library.asarray(VALUES.astype(np.float32))
    wanted = getattr(library, dtype)
    made = made.to(wanted) if library is torch else made.astype(wanted)
    assert foreign(made)
    seen = numpy_view("x", made)
    assert seen.dtype == (BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype))
    assert (seen == VALUES).all()
    address = made.data_ptr() if library is torch else made.unsafe_buffer_pointer()
    assert seen.ctypes.data == address
    mine = np.array(seen)
    back = returned(mine, made)
    assert (type(back), back.dtype) == (type(made), made.dtype)
    assert (numpy_view("y", back) == VALUES).all()
    if library is torch:
        assert back.data_ptr() == mine.ctypes.data
        mine[0, 0] = 7
        assert float(back[0, 0]) == 7


def test_strides_are_kept() -> None:
    made = torch.arange(24.0).reshape(2, 3, 4).movedim(-1, 1)[:, ::2]
    seen = numpy_view("x", made)
    assert (seen.ctypes.data, seen.strides) == (made.data_ptr(), (48, 8, 16))


def test_the_array_api_s_own() -> None:
    made = array_api_strict.asarray(VALUES)
    back = returned(numpy_view("x", made) + 1, made)
    assert isinstance(back, type(made))
    assert bool(array_api_strict.all(back == made + 1))


def test_a_subclass_of_mine_is_its_library_s() -> None:
    class Mine(torch.Tensor):
        pass

    x = torch.ones(1, 4, 6, 5).as_subclass(Mine)
    assert type(returned(numpy_view("x", x), x)) is torch.Tensor
    w = torch.ones(3, 4, 3, 3)
    assert type(winolab.torch.conv2d(x, w, algorithm="winograd:2x2:3x3")) is Mine


def test_what_cannot_pass_is_refused_in_a_line() -> None:
    with pytest.raises(
        TypeError, match=r"x is a torch Tensor of torch\.float32, which has no numbers that NumPy"
    ) as a:
        numpy_view("x", torch.ones(2, 2).to_sparse())
    assert "jax" not in str(a.value)
    with pytest.raises(TypeError, match="the result has dtype object, which torch does not") as b:
        returned(np.array([None]), torch.ones(1))
    for refused in (a, b):
        assert "\n" not in str(refused.value)
    assert not foreign(VALUES)
    assert not foreign(np.float32(1))
    assert not foreign([1.0])
