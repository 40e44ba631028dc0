"""cuBLASLt's stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.gpu.support.cublaslt_stand_in import StandIn
from tests.gpu.support.pretended import Library
from winolab.gpu import cublaslt
from winolab.gpu.params import MATMUL
from winolab.gpu.runtime import loader


@pytest.fixture
def stand_in(library: Library, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Stands in for the library, on device 0; copies between memory orders run on the CPU."""
    found, load = StandIn(), loader.load
    function = cublaslt.Matmul(found, 1, 0)

    def with_library(source: Any, title: str, shared: Mapping[str, int], index: int) -> Any:
        ours = {name: size for name, size in shared.items() if name != MATMUL}
        kernels = load(source, title, ours, index) if ours else {}
        return {**kernels, **({MATMUL: function} if len(ours) < len(shared) else {})}

    monkeypatch.setattr(loader, "load", with_library)
    return found
