"""What a person is shown: nothing is cut, what is missing is named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from tests.support.points import points_of
from winolab.cli import environment
from winolab.cli.screen import tables
from winolab.cli.sweep import cases, run
from winolab.gpu.machine import install
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.search import score


def shown(table: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [90, 200])
def test_numbers_are_never_cut(width: int) -> None:
    rows = run(
        cases(
            algorithm=["gamma:8:6:3@0,1,-1,2,-2,1/2,-1/2,inf", "fft:4:3"],
            input=["1x8x8x4"],
            filter=["2x3x3"],
            precision=["fp32", "tf32"],
            sample=["full"],
        )
    )
    text = shown(tables.accuracy(rows), width)
    assert "…" not in text
    for row in rows:
        assert f"{row['relative_rms']:.3g}" in text
        assert f"{row['max_abs']:.3g}" in text
    assert f"{rows[0]['bound']:.3g}" in text
    assert "none" not in text


def test_named_points_are_shown_however_far_down() -> None:
    tile = transforms(2, 3).tile
    others = [score(points_of(transforms(2, 3, f"0,{p},-{p},inf")), tile) for p in (2, 3, 4)]
    rows = tables.leaders([*others, score(points_of(transforms(2, 3, "paper")), tile)])
    assert [bool(row["name"]) for row in rows] == [False, False, False, True]
    text = shown(tables.points(rows, shown=1), 120)
    assert "0, 2, -2, inf" in text
    assert "0, 3, -3, inf" not in text
    assert "paper" in text


def test_doctor_says_how_to_get_what_is_missing() -> None:
    report = {
        **dict.fromkeys(("winolab", "commit", "checkout", "python", "device"), "x"),
        "core": {"numpy": "2.1.0"},
        "extras": {"gpu": {"cupy": None}, "torch": {"torch": "2.5.0"}},
        "gpus": [],
        "compilers": environment.compilers(),
        "cuda": {**CUDA, "driver": None, "cupy": None, "cudnn": None},
    }
    text = shown(tables.doctor(report), 120)
    assert " ".join(install("gpu").split()) in " ".join(text.split())
    assert "none: winolab bench compares without it" in text
    assert ".[torch]" not in text
    assert "none found" in text


CUDA = {
    "driver": "12.4", "cupy": "12", "cupy_wheels": ["cupy-cuda12x"], "cudnn": "9.1.0",
    "cache": "/c", "cache_writable": True,
}  # fmt: skip
BOTH = ["cupy-cuda12x", "cupy-cuda13x"]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({}, "CuPy for CUDA 12\n"),
        ({"cupy": "12.9"}, "CuPy for CUDA 12.9\n"),
        ({"cupy": "13"}, "for CUDA 13, which the driver does not run: update the driver, or pip"),
        ({"cupy": "13", "driver": None}, "CuPy for CUDA 13\n"),
        (
            {"cupy": "13", "cupy_wheels": BOTH},
            "CuPy cupy-cuda12x and cupy-cuda13x overwrite each other's files: pip uninstall "
            "cupy-cuda12x cupy-cuda13x, then pip install '.[gpu]' in winolab's checkout for CUDA ",
        ),
        ({}, "cuDNN 9.1.0\n"),
        ({}, "driver runs CUDA up to 12.4\n"),
        ({}, "kernels kept in /c\n"),
        ({"cache": "/a[/b]:smile:[red]"}, "kernels kept in /a[/b]:smile:[red]\n"),
        ({"cache_writable": False}, "kept in /c, which cannot be written to: set WINOLAB_CACHE"),
        ({"cache": None}, "kernels kept nowhere, without a home directory: set WINOLAB_CACHE"),
    ],
)
def test_doctor_says_what_kernels_need(found: dict, line: str) -> None:
    report = dict.fromkeys(("winolab", "commit", "checkout", "python", "device"), "x")
    report |= {"core": {}, "extras": {}, "gpus": [], "compilers": {}, "cuda": {**CUDA, **found}}
    text = shown(tables.doctor(report), 300)
    assert line in "".join(f"{' '.join(row.split())}\n" for row in text.splitlines())


def test_what_a_format_does_not_hold_is_flagged() -> None:
    one = {"input": ["1x4x30x8"], "filter": ["2x3x3"], "sample": ["full"]}
    rows = run(cases(algorithm=["gamma:16:14:3", "direct"], precision=["fp16"], **one))
    assert [row["range"] for row in rows] == ["underflow", ""]
    text = shown(tables.accuracy(rows), 160)
    assert text.count("underflow") == 2  # the flag, and what it means
    assert "range" in text
    assert "Range" not in shown(tables.accuracy(rows[1:]), 160)
