"""Arrays of CuPy and torch where neither has a GPU: what running out of memory says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from winolab.gpu import driver
from winolab.gpu.runtime import arrays
from winolab.gpu.runtime.dtypes import result_dtype


class Exhausted(MemoryError):
    """As CuPy and torch raise it, both in their own way."""


def refuse(*_, **__):
    raise Exhausted("out of memory")


def test_cupy_says_how_much_memory_was_asked(monkeypatch) -> None:
    fake = SimpleNamespace(ndarray=refuse, cuda=SimpleNamespace(alloc=refuse))
    monkeypatch.setattr(driver, "cupy", lambda: fake)
    with pytest.raises(MemoryError, match=r"no device memory for 96 B: .* workspace_limit"):
        arrays.CUPY.empty((2, 3, 4), "float32", 0)
    with pytest.raises(MemoryError, match="no device memory for 1048576 B"):
        arrays.CUPY.memory(1 << 20, 0)


@pytest.mark.parametrize("capturing", [True, False])
def test_what_a_captured_call_took_stays(monkeypatch, capturing) -> None:
    runtime = SimpleNamespace(streamIsCapturing=lambda stream: capturing and stream == 5)
    monkeypatch.setattr(
        driver, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    )
    monkeypatch.setattr(arrays, "_captured", [])
    arrays.CUPY.used(5, "workspace", "a copy")
    assert arrays._captured == [("workspace", "a copy")] * capturing


@pytest.fixture
def makers(monkeypatch):
    """No maker is kept from test to test."""
    arrays._maker.cache_clear()
    yield
    arrays._maker.cache_clear()


@pytest.mark.parametrize("quick", [True, False])
def test_torch_says_how_much_memory_was_asked(monkeypatch, makers, quick) -> None:
    """Also by a torch that has no quick way to a new tensor."""
    guards = {"_empty_strided_cuda": refuse} if quick else {}
    fake = SimpleNamespace(
        _C=SimpleNamespace(_dynamo=SimpleNamespace(guards=SimpleNamespace(**guards))),
        empty_strided=refuse,
        OutOfMemoryError=Exhausted,
        bfloat16="bf16",
        uint8="u8",
    )
    monkeypatch.setattr(arrays, "_torch", lambda: fake)
    monkeypatch.setattr(arrays, "_device", lambda index: SimpleNamespace(type="cuda"))
    with pytest.raises(MemoryError, match=r"no device memory for 48 B: .* workspace_limit"):
        arrays.TORCH.empty((2, 3, 4), "bfloat16", 0)
    with pytest.raises(MemoryError, match="no device memory for 1048576 B"):
        arrays.TORCH.memory(1 << 20, 0)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_new_tensor_whose_axes_are_moved_is_none_that_was(
    monkeypatch, makers, first, quick
) -> None:
    """At once as a view of a new one would be, inference tensors in inference mode alone."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arrays, "_device", lambda index: torch.device("cpu"))
    if not quick:
        monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu", raising=False)
    for shape in ((2, 5, 3), (2, 5, 7, 3), (2, 4, 5, 7, 3)):
        made = arrays.TORCH.maker(shape, "float16", 0, first)()
        empty = arrays.TORCH.empty(shape, "float16", 0)
        view = (arrays.TORCH.channels_first if first else arrays.TORCH.channels_last)(empty)
        assert (made.shape, made.stride(), made.dtype) == (view.shape, view.stride(), view.dtype)
        assert not made._is_view()
    assert not made.is_inference()
    with torch.inference_mode():
        assert arrays.TORCH.maker(shape, "float16", 0, first)().is_inference()


class Full:
    """A CUDA array of 48 bytes, of which nothing has a copy."""

    is_cuda, nbytes = True, 48
    clone = nan_to_num = resolve_neg = refuse

    def is_neg(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return 0

    def detach(self) -> Full:
        return self


def test_copies_say_how_much_memory_was_asked(monkeypatch) -> None:
    torch = SimpleNamespace(OutOfMemoryError=Exhausted, Tensor=Full, contiguous_format=0)
    monkeypatch.setattr(arrays, "_torch", lambda: torch)
    monkeypatch.setattr(driver, "cupy", lambda: SimpleNamespace(nan_to_num=refuse, array=refuse))
    calls = [
        getattr(lib, f) for lib in (arrays.TORCH, arrays.CUPY) for f in ("contiguous", "largest")
    ]
    for call in (*calls, lambda array: arrays.TORCH.array("x", array)):
        with pytest.raises(MemoryError, match="no device memory for 48 B: free some"):
            call(Full())


def test_arrays_on_the_cpu_are_refused_beside_cuda_arrays(monkeypatch) -> None:
    monkeypatch.setattr(driver, "cupy", lambda: SimpleNamespace(ndarray=str))
    with pytest.raises(TypeError, match="w is a list; expected a CUDA array like the other"):
        arrays.CUPY.array("w", [1.0])
    tensor = type("Tensor", (), {"is_cuda": False, "device": "cpu"})
    monkeypatch.setattr(arrays, "_torch", lambda: SimpleNamespace(Tensor=tensor))
    with pytest.raises(TypeError, match="w is a list; expected a torch tensor like the other"):
        arrays.TORCH.array("w", [1.0])
    with pytest.raises(ValueError, match="w is on cpu; expected a CUDA device"):
        arrays.TORCH.array("w", tensor())


@pytest.mark.parametrize("name", ["x", "w", "out"])
def test_swapped_bytes_are_refused(monkeypatch, name: str) -> None:
    """Item 6 of issue 42: the name of a dtype is the same in either byte order."""
    monkeypatch.setattr(driver, "cupy", lambda: SimpleNamespace(ndarray=np.ndarray))
    native = np.zeros(3, "<f4")
    assert arrays.CUPY.array(name, native) is native
    with pytest.raises(TypeError, match=f"{name} has dtype >f4, whose bytes are swapped; convert"):
        arrays.CUPY.array(name, native.astype(">f4"))


def test_out_dtypes_are_what_kernels_write() -> None:
    torch = type("dtype", (), {"__str__": lambda self: "torch.bfloat16"})
    for wish, name in ((np.float32, "float32"), ("<f2", "float16"), (torch(), "bfloat16")):
        assert result_dtype("forward", "float32", wish, None) == name
    with pytest.raises(TypeError, match="out_dtype >f4 has its bytes swapped; kernels write float"):
        result_dtype("forward", "float32", ">f4", None)
    with pytest.raises(TypeError, match="out_dtype is 'float31'; expected a dtype, such as"):
        result_dtype("forward", "float32", "float31", None)
    for wrong in ("V4", [("a", "f4")], "f8", "?", "O", np.dtypes.StringDType()):
        with pytest.raises(TypeError, match="; the CUDA kernels write float32, float16, bfloat16"):
            result_dtype("forward", "float32", wrong, None)
