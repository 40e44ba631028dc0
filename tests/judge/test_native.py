"""Compiled kernels: ten planted faults in C++ are caught; signatures say what is passed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gpu.support.host_compiler import compiler
from winolab.gpu import driver
from winolab.judge import native
from winolab.judge.claim import Claim
from winolab.judge.judgement import Judgement, judge
from winolab.judge.loading import load
from winolab.problem import Problem

SOURCE = Path(__file__).with_name("direct.cpp")
SIZES = "N H W C K R S OH OW SH SW PH PW LH LW G"
ARGUMENTS = ["x", "w", "y", *(f"int {name}" for name in SIZES.split())]
SIGNATURE = f'name = "right"\narguments = {ARGUMENTS}\n'
FLAGS = ("-x", "c++", "-O1", "-shared", "-fPIC", "-g0", "-fno-exceptions", "-fno-rtti")
FEW = "channels=1-8 batch=1-3 out_channels=1-8 groups=1 dilation=1"  # what is quick
# Issue 50, section 4: the ten faults, in C++ on the CPU.
FAULTS = {
    "unwritten_tile": ("unwritten", "column 8, 9"),
    "off_by_one_pad": ("values", "it is the result of padding [(1, 1), (0, 2)]"),
    "race": ("repeat", "equal call"),
    "tf32_products": ("values", "is what TF32 products have"),
    "swallowed_nan": ("nan", "not the NaN or infinity"),
    "late_write": ("stream", "written after the call returned"),
    "reads_outside": ("outside", "right where zeros lie around the operands"),
    "stale_workspace": ("stale", "other numbers without another call before"),
    "transposed_filter": ("values", "a filter reversed along all dimensions"),
    "overflow": ("values", "results are not finite"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "direct.so"
    subprocess.run([*compiler(), *FLAGS, "-o", str(path), str(SOURCE)], check=True)
    path.with_suffix(".toml").write_text(SIGNATURE)
    return path


def judged(path: Path, symbol: str = "", serves: str = "") -> Judgement:
    candidate = load(f"{path}:{symbol}" if symbol else str(path), serves=serves)
    return judge(
        candidate, Claim(), count=0, first=True, seconds=0.05, skip=frozenset({"declined"})
    )


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_named(library: Path, name: str) -> None:
    found = judged(library, name, FEW)
    check, said = FAULTS[name]
    assert [fault.finding.check for fault in found.faults] == [check], found.verdict
    assert said in found.verdict


def test_a_right_function_of_c_is_accepted(library: Path) -> None:
    found = judged(library, serves=FEW)
    assert found, found.verdict
    assert found.kernel == f"{library}:right"
    assert found.served >= 60
    assert "its signature has no strides" in found.left


def test_arguments_are_expressions_of_the_sizes() -> None:
    p = Problem.of((2, 9, 7, 6), (8, 3, 5, 3), stride=(2, 1), padding=(1, 2), groups=2)
    names = native.names_of(p)
    assert (names["D"], names["H"], names["W"], names["G"]) == (1, 9, 7, 2)
    assert (names["OH"], names["OW"], names["SH"], names["PW"], names["PD"]) == (5, 7, 2, 2, 0)
    assert native.value("ceildiv(N*OH*OW, 128) + max(K, -C) % 5", names) == 1 + 3
    assert native.value(0.5, names) == 0.5
    for wrong in ("N + ", "Q", "N.real", "__import__('os')", "'a'", "N // 0", "min(N, [1])"):
        with pytest.raises(ValueError, match="expected \\+ - \\* // % of N, C"):
            native.value(wrong, names)


def test_a_cubin_is_launched_as_its_signature_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is handed to CuPy, which stands in: the launch itself needs a GPU."""
    launches: list[Any] = []

    class Kernel:
        max_dynamic_shared_size_bytes = 0

        def __call__(self, *given: Any, **named: Any) -> None:
            launches.append((given, named))

    kernel = Kernel()
    pointer = SimpleNamespace(ptr=7)
    cupy = SimpleNamespace(
        RawModule=lambda path: SimpleNamespace(get_function=lambda name: kernel),
        cuda=SimpleNamespace(get_current_stream=lambda: pointer),
        empty=np.empty,
    )
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    path = tmp_path / "mine.cubin"
    path.write_bytes(b"")
    path.with_suffix(".toml").write_text(
        'name = "conv"\narguments = ["w", "x", "y", "workspace", "stream", "int N*OH", "float 0.5",'
        ' "int64 C", "double K"]\ngrid = ["ceildiv(OW, 4)", "K"]\nblock = [64]\nshared = 65536\n'
        'workspace = "4*N*K"\nserves = "filter=3"\n'
    )
    candidate = load(str(path))
    assert (candidate.name, candidate.out, candidate.arrays.name) == (f"{path}:conv", True, "cupy")
    assert candidate.serves.said == "filter=3 symmetric"
    x, w, y = (np.zeros(shape, np.float32) for shape in ((2, 5, 6, 4), (8, 3, 3, 4), (2, 3, 4, 8)))
    candidate(x, w, Problem.of(x.shape, w.shape), y)
    ((grid, block, arguments), named) = launches[0]
    assert (grid, block, named) == ((1, 8, 1), (64, 1, 1), {"shared_mem": 65536})
    assert kernel.max_dynamic_shared_size_bytes == 65536
    assert [v.dtype.name for v in arguments] == (
        ["uint64"] * 5 + ["int32", "float32", "uint64", "float64"]
    )
    assert arguments[:3] == (w.ctypes.data, x.ctypes.data, y.ctypes.data)
    assert arguments[4:] == (7, 6, 0.5, 4, 8.0)


LAUNCH = 'name = "conv"\ngrid = [1]\nblock = [1]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "is no TOML"),
        ('name = "conv"', "has no arguments, grid, block; expected name"),
        (f"{LAUNCH}arguments = []\ncolour = 3", "unknown key colour"),
        (f'{LAUNCH}arguments = ["z"]', "argument 'z'; expected x, w, y, workspace"),
        (f'{LAUNCH}arguments = ["int Q"]', "expression 'Q'"),
        (f'{LAUNCH}arguments = []\nworkspace = "Q"', "expression 'Q'"),
        (f"{LAUNCH}arguments = []\ndims = 4", "dims 4; expected 2, 1, 3"),
        (f'{LAUNCH}arguments = []\nlayout = "HWNC"', "layout 'HWNC'; expected channels_last"),
        (f'{LAUNCH}arguments = []\nserves = "rain"', "there is no file"),
    ],
)
def test_a_wrong_signature_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    """Before a GPU is looked for."""
    path = tmp_path / "mine.cubin"
    path.with_suffix(".toml").write_text(text)
    with pytest.raises(ValueError, match=f"(?s).*{re.escape(said)}") as error:
        load(str(path))
    assert "\n" not in str(error.value)


def test_a_missing_file_signature_or_function_is_one_line(library: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs a signature: write .*none\.toml, or pass"):
        load(str(tmp_path / "none.so"))
    with pytest.raises(ValueError, match=r"there is no file .*none\.so"):
        load(str(tmp_path / "none.so"), signature=SIGNATURE)
    with pytest.raises(
        ValueError, match=r"signature 'no\.toml' of math:sqrt; one is of a compiled"
    ):
        load("math:sqrt", signature="no.toml")
    with pytest.raises(ValueError, match="has no function 'wrong'"):
        load(f"{library}:wrong")
