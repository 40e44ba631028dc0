"""cuBLASLt's stand-in."""

from __future__ import annotations

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
    functions = {MATMUL: cublaslt.Matmul(found, 1, 0)}
    monkeypatch.setattr(
        loader, "load", lambda source, *more: load(source, *more) if source else functions
    )
    return found
