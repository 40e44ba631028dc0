"""Arrays of CuPy and torch where neither has a GPU: what running out of memory says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from winolab.gpu import arrays, launch


class Exhausted(MemoryError):
    """As CuPy and torch raise it, both in their own way."""


def refuse(*_, **__):
    raise Exhausted("out of memory")


def test_cupy_says_how_much_memory_was_asked(monkeypatch) -> None:
    fake = SimpleNamespace(ndarray=refuse, cuda=SimpleNamespace(alloc=refuse))
    monkeypatch.setattr(launch, "cupy", lambda: fake)
    with pytest.raises(MemoryError, match=r"no device memory for 96 B: .* workspace_limit"):
        arrays.CUPY.empty((2, 3, 4), "float32", 0)
    with pytest.raises(MemoryError, match="no device memory for 1048576 B"):
        arrays.CUPY.memory(1 << 20, 0)


@pytest.mark.parametrize("capturing", [True, False])
def test_what_a_captured_call_took_stays(monkeypatch, capturing) -> None:
    runtime = SimpleNamespace(streamIsCapturing=lambda stream: capturing and stream == 5)
    monkeypatch.setattr(
        launch, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    )
    monkeypatch.setattr(arrays, "_captured", [])
    arrays.CUPY.used(5, "workspace", "a copy")
    assert arrays._captured == [("workspace", "a copy")] * capturing


def test_torch_says_how_much_memory_was_asked(monkeypatch) -> None:
    fake = SimpleNamespace(
        empty_strided=refuse,
        OutOfMemoryError=Exhausted,
        bfloat16="bf16",
        uint8="u8",
        device=lambda *where: where,
    )
    monkeypatch.setattr(arrays, "_torch", lambda: fake)
    arrays._fresh.cache_clear()
    with pytest.raises(MemoryError, match=r"no device memory for 48 B: .* workspace_limit"):
        arrays.TORCH.empty((2, 3, 4), "bfloat16", 0)
    with pytest.raises(MemoryError, match="no device memory for 1048576 B"):
        arrays.TORCH.memory(1 << 20, 0)
    arrays._fresh.cache_clear()


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
    monkeypatch.setattr(launch, "cupy", lambda: SimpleNamespace(nan_to_num=refuse, array=refuse))
    calls = [
        getattr(lib, f) for lib in (arrays.TORCH, arrays.CUPY) for f in ("contiguous", "largest")
    ]
    for call in (*calls, lambda array: arrays.TORCH.array("x", array)):
        with pytest.raises(MemoryError, match="no device memory for 48 B: free some"):
            call(Full())


def test_arrays_on_the_cpu_are_refused_beside_cuda_arrays(monkeypatch) -> None:
    monkeypatch.setattr(launch, "cupy", lambda: SimpleNamespace(ndarray=str))
    with pytest.raises(TypeError, match="w is a list; expected a CUDA array like the other"):
        arrays.CUPY.array("w", [1.0])
    tensor = type("Tensor", (), {"is_cuda": False, "device": "cpu"})
    monkeypatch.setattr(arrays, "_torch", lambda: SimpleNamespace(Tensor=tensor))
    with pytest.raises(TypeError, match="w is a list; expected a torch tensor like the other"):
        arrays.TORCH.array("w", [1.0])
    with pytest.raises(ValueError, match="w is on cpu; expected a CUDA device"):
        arrays.TORCH.array("w", tensor())
