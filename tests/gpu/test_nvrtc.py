from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.gpu.gamma import source
from winolab.gpu.gamma_blocks import VARIANTS
from winolab.gpu.nvrtc import CompileError, architecture, compile_cubin
from winolab.nouns import Tile

# One tile an alpha: the block shapes are what the assembler may fail to fit into registers.
TILES = {1: Tile(1, 1), 4: Tile(2, 3), 8: Tile(6, 3), 16: Tile(8, 9)}
CASES = [
    (TILES[alpha], replace(variant, **changes))
    for alpha, variants in VARIANTS.items()
    for variant, changes in [
        *((v, {"xvec": v.cpt}) for v in variants),
        (variants[0], {"split": 2, "xvec": 1, "yvec": 1}),
    ]
]


@pytest.mark.parametrize(("tile", "variant"), CASES, ids=lambda v: str(v).replace(" ", "_"))
def test_kernels_compile_without_spills(tile, variant) -> None:
    compiled = compile_cubin(source(tile, "best", variant), architecture((9, 0)))
    assert compiled.cubin.startswith(b"\x7fELF")
    for name in ("winolab_gamma", "winolab_filter"):
        assert compiled.resources[name].spills == 0, (name, compiled.resources[name])


def test_a_refused_source_comes_with_the_compilers_log() -> None:
    with pytest.raises(CompileError, match="expected a"):
        compile_cubin("__global__ void f( {", "sm_90a")
