"""CPU tensors that are taken for a GPU's, and calls of theirs by Python or past it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.gpu.support.pretended import host_kernels, on_the_cpu  # noqa: E402
from tests.gpu.support.steps import Launch, Maps  # noqa: E402
from winolab.gpu import driver  # noqa: E402
from winolab.gpu.runtime import arrays, conv  # noqa: E402
from winolab.torch import modules, native, operators, plain  # noqa: E402


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The native module, compiled once for all processes of a run."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "native"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINOLAB_CACHE", str(folder))
        return native.loaded(native.compiled())


@pytest.fixture(params=["Python", "native"])
def prepared(monkeypatch, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The directions of calls that were prepared."""
    found: list[str] = []

    def prepare(direction: str, *rest: Any) -> Any:
        found.append(direction)
        return prepare_call(direction, *rest)

    def load(source: str, title: str, shared: Any, index: int) -> Any:
        return host_kernels(source, shared)

    prepare_call, describe = conv.prepare_call, arrays.TORCH.describe
    monkeypatch.setattr(conv, "prepare_call", prepare)
    monkeypatch.setattr(arrays.Torch, "array", lambda library, name, value: value)
    monkeypatch.setattr(
        arrays.Torch, "describe", lambda library, array: describe(array)._replace(index=0)
    )
    monkeypatch.setattr(arrays.Torch, "on", lambda library, index: nullcontext())
    monkeypatch.setattr(arrays, "_device", lambda index: torch.device("cpu"))
    monkeypatch.setattr(arrays, "_current_device", lambda: lambda: 0)
    monkeypatch.setattr(arrays, "_stream_of", lambda: lambda index: Launch.current)
    on_the_cpu(monkeypatch, load, Launch)
    monkeypatch.setattr(operators, "_on_cpu", operators._on_cuda)
    maps = Maps()
    monkeypatch.setattr(driver, "encoder", maps.encoder)
    monkeypatch.setattr(driver, "replacing", lambda: driver.address_of(maps.function))
    Launch.streams.clear()
    Launch.native = 0
    arrays._maker.cache_clear()
    by = plain.NATIVE.of(list(plain.PLAIN["cpu"]), "AutogradCPU")
    for where in (plain, modules):
        monkeypatch.setattr(where, "NATIVE", by)
    if request.param == "native":
        by.use(request.getfixturevalue("module"))
    yield found
    by.withdraw()
    assert bool(Launch.native) == (request.param == "native")
    arrays._maker.cache_clear()
