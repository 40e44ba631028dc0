from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gpu.families.gamma_ffma.tiles import TILES
from winolab.algorithm import Tile
from winolab.gpu.families.gamma_ffma.config import CONFIGS
from winolab.gpu.families.gamma_ffma.source import source
from winolab.gpu.families.wgrad_ffma import config as wgrad_ffma
from winolab.gpu.families.wgrad_ffma.source import source as wgrad_ffma_source
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime.nvrtc import CompileError, architecture, compile_cubin
from winolab.ref.algorithms.winrs.kernels import TILES as WINRS_TILES

CASES = [
    (TILES[alpha], replace(config, **changes))
    for alpha, configs in CONFIGS.items()
    for config, changes in [
        *((v, {"xvec": v.cpt}) for v in configs),
        (configs[0], {"split_k": 2, "xvec": 1, "bm": configs[0].bm * 5 // 8}),
        *((v, {"xvec": 1, "cpt": 1}) for v in configs if alpha > 1),
    ]
]


@pytest.mark.parametrize(("tile", "config"), CASES, ids=lambda v: str(v).replace(" ", "_"))
def test_kernels_compile_without_spills(tile, config, compiled) -> None:
    resources = compiled(source(tile, "best", config), architecture((9, 0)))
    for name in ("winolab_gamma_ffma", "winolab_gamma_ffma_filter"):
        assert resources[name].spills == 0, (name, resources[name])


# Every tile in the largest block, and every block in each of its ways of loading.
OMEGA_CASES = [
    *((tile, wgrad_ffma.CONFIGS[tile.alpha][0]) for tile in WINRS_TILES["fp32"]),
    *(
        (tile, replace(config, **changes))
        for tile in (Tile(3, 2), Tile(3, 6), Tile(9, 8))
        for config in wgrad_ffma.CONFIGS[tile.alpha]
        for changes in ({"wrap": 1}, {"vector": 0, "dwvec": 1})
    ),
]


@pytest.mark.parametrize(("tile", "config"), OMEGA_CASES, ids=lambda v: str(v).replace(" ", "_"))
def test_filter_gradients_compile_without_spills(tile, config, compiled) -> None:
    source = wgrad_ffma_source(tile, "best", config)
    resources = compiled(source, architecture((9, 0)))["winolab_wgrad_ffma"]
    assert resources.spills == 0, resources
    # What setmaxnreg hands out has to be allocated by the launch, or the warps wait for ever.
    asked = 256 * config.consumer_registers + 128 * config.producer_registers
    assert asked <= config.threads * resources.registers


def test_a_source_becomes_an_elf_file_and_what_its_kernels_take() -> None:
    made = compile_cubin('extern "C" __global__ void one(float* x) { *x = 1; }', "sm_90a")
    assert made.cubin.startswith(b"\x7fELF")
    assert made.resources["one"].registers > 0
    assert made.resources["one"].spills == made.resources["one"].stack == 0


def test_functions_that_are_not_inlined_are_no_kernels() -> None:
    function = "__device__ __noinline__ float square(float x) { return x * x; }\n"
    kernel = 'extern "C" __global__ void NAME(float* x) { *x = square(*x); }\n'
    source = function + kernel.replace("NAME", "one") + kernel.replace("NAME", "two")
    assert sorted(compile_cubin(source, "sm_90a").resources) == ["one", "two"]


def test_a_refused_source_comes_with_the_compilers_log() -> None:
    with pytest.raises(CompileError, match="expected a"):
        compile_cubin("__global__ void f( {", "sm_90a")


def test_an_unknown_architecture_names_the_known_ones() -> None:
    with pytest.raises(MachineError, match=r"does not compile for sm_35, only for .*8\.0.*9\.0"):
        compile_cubin("", "sm_35")
