"""``batch_invariant=True`` on a GPU: one launch for a batch, by Python and past it; CPU tensors are
taken for a GPU's."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab.torch import kept  # noqa: E402

X, W = (5, 16, 8, 9), (16, 16, 3, 3)


def image(x: Any, i: int) -> Any:
    """One of a batch, in memory of its own."""
    return x[i : i + 1].clone()


@pytest.mark.parametrize(
    ("evaluated", "dtype"), [(False, torch.float16), (True, torch.float32)], ids=str
)
def test_a_batch_is_one_call_whose_images_have_their_bits(
    prepared: Any, monkeypatch: pytest.MonkeyPatch, evaluated: bool, dtype: Any
) -> None:
    monkeypatch.setattr(kept, "serves", lambda a, w: evaluated)
    x, w = tensors(X, W, dtype=dtype)
    layer = winolab.torch.Conv2d(16, 16, 3, padding=1, bias=False, batch_invariant=True)
    layer.weight = torch.nn.Parameter(w)
    layer.train(not evaluated)
    last = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        for given in (last, x):
            y = layer(given)
            count = len(prepared)
            for _ in range(3):  # recorded, found by one look, past Python
                assert torch.equal(layer(given), y)
            assert len(prepared) == count
            for i in range(len(x)):
                assert torch.equal(layer(image(given, i)), y[i : i + 1])
            assert torch.equal(layer(given[:3]), y[:3])
    assert prepared == ["forward"] * len(prepared)
    assert len(prepared) == 2 * 3  # all images, one, three


@pytest.mark.parametrize("prepared", ["Python"], indirect=True)
def test_data_that_lies_anywhere_has_the_same_bits(prepared: Any) -> None:
    """What is not aligned had other kernels, and so had each image of such a size."""
    x, w = tensors(X, W, dtype=torch.float16)
    x = x.to(memory_format=torch.channels_last)
    how: dict[str, Any] = {"padding": 1, "batch_invariant": True}
    y = winolab.torch.conv2d(x, w, **how)
    moved = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].as_strided(x.shape, x.stride())
    moved.copy_(x)
    assert moved.data_ptr() % 16
    for _ in range(3):
        assert torch.equal(winolab.torch.conv2d(moved, w, **how), y)
    apart = torch.zeros(5, 8, 9, 24, dtype=x.dtype)[..., :16].movedim(-1, 1)
    apart.copy_(x)
    assert torch.equal(winolab.torch.conv2d(apart, w, **how), y)


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("prepared", ["Python"], indirect=True)
@pytest.mark.parametrize(("channels", "groups"), [(16, 1), (32, 32)])
def test_pixels_that_are_not_aligned_are_copied(
    prepared: Any, monkeypatch: pytest.MonkeyPatch, evaluated: bool, channels: int, groups: int
) -> None:
    """A slice of channels was refused: the kernel that is named takes aligned pixels."""
    monkeypatch.setattr(kept, "serves", lambda a, w: evaluated)
    sizes = (5, channels, *X[2:]), (channels, channels // groups, 3, 3)
    x, w = tensors(*sizes, dtype=torch.float16)
    how: dict[str, Any] = {"padding": 1, "groups": groups, "batch_invariant": True}
    layer = winolab.torch.Conv2d(channels, channels, 3, bias=False, **how)
    layer.weight = torch.nn.Parameter(w)
    whole = torch.full((5, *X[2:], channels + 5), torch.nan, dtype=x.dtype)
    part = whole[..., :channels].movedim(-1, 1)
    part.copy_(x)
    with torch.no_grad():
        y = layer(x.to(memory_format=torch.channels_last))
        for _ in range(2):
            assert torch.equal(layer(part), y)
            assert torch.equal(layer(part[3:4]), y[3:4])


@pytest.mark.parametrize("ours", ["conv2d", "conv_transpose2d"])
def test_gradients_of_images_have_their_bits(prepared: Any, ours: str) -> None:
    x, w = tensors(X, W, dtype=torch.float32)
    conv = getattr(winolab.torch, ours)

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = conv(x, w, padding=1, batch_invariant=True)
        (found,) = torch.autograd.grad(y.square().sum(), x)
        return found

    for _ in range(3):
        every = gradient(x)
        for i in range(len(x)):
            assert torch.equal(gradient(image(x, i)), every[i : i + 1])
    assert len(prepared) == 4  # forward and back, of all images and of one
