"""Calls on a GPU while their kernels are compiled, and PyTorch's flags of determinism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import winolab.torch  # noqa: E402
from tests.torch.network import tensors  # noqa: E402
from winolab import calls  # noqa: E402
from winolab.torch import operators, plain  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture
def background(tmp_path: Any, monkeypatch: Any) -> Iterator[Any]:
    """Compiling behind calls is on; the cache is empty, and no call is kept."""
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(operators, "BACKGROUND", type(operators.BACKGROUND)())
    monkeypatch.setattr(calls, "kept", {})
    monkeypatch.setattr(plain, "NATIVE", plain.NATIVE.of(plain.NATIVE.plain))
    monkeypatch.setattr(plain.NATIVE, "begin", lambda: None)
    operators.BACKGROUND.on = True
    yield operators.BACKGROUND
    for begun in operators.BACKGROUND._begun.values():
        begun.exception(120)  # the folder goes with the test


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_call_is_pytorch_s_until_its_kernel_is_there(background: Any, dtype: Any) -> None:
    """Shapes that no other test has, so that nothing is loaded."""
    x, w = (v.cuda().to(dtype) for v in tensors((3, 40, 19, 23), (72, 40, 3, 3)))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        theirs = torch.conv2d(x, w, padding=1)
    first = winolab.torch.conv2d(x, w, padding=1)
    assert torch.equal(first, theirs)
    (begun,) = background._begun.values()
    assert begun.result(120).compiled
    after = winolab.torch.conv2d(x, w, padding=1)
    background.on = False
    assert torch.equal(after, winolab.torch.conv2d(x, w, padding=1))
    exact = torch.conv2d(x.double(), w.double(), padding=1)
    most = {torch.float32: 1e-5, torch.float16: 1e-2}[dtype]
    for y in (first, after):
        assert float((y.double() - exact).norm()) <= most * float(exact.norm())


def gradients(x: Any, w: Any) -> Any:
    return torch.autograd.grad(winolab.torch.conv2d(x, w).square().sum(), (x, w))


def test_gradients_are_the_same_bits_where_pytorch_is_told_so(background: Any) -> None:
    """By what stands for the kernels, and by them; nothing refuses either, nor is it near zero."""
    x, w = (v.cuda().float().requires_grad_() for v in tensors((2, 24, 17, 21), (56, 24, 3, 3)))
    torch.use_deterministic_algorithms(True)
    try:
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            meanwhile = gradients(x, w)
        assert len(background._begun) == 3
        for begun in background._begun.values():
            begun.result(120)
        after, again = gradients(x, w), gradients(x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    for p, q, exact in zip(after, again, meanwhile, strict=True):
        assert torch.equal(p, q)
        assert float((p - exact).norm()) <= 1e-4 * float(exact.norm()) > 0
