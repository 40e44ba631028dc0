"""The judge on a GPU, as far as a processor shows it: sources, the table, the exit code."""

from __future__ import annotations

import ast
import ctypes
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments.harness.facts import ROOT
from experiments.judged import on_gpu
from experiments.judged.kernels_gpu import sources
from experiments.judged.on_gpu import FOLDER, KERNELS, Kernel, well
from tests.gpu.support.host_compiler import compiler
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import nvrtc
from winolab.judge import native
from winolab.judge.claim import Claim
from winolab.judge.judgement import Fault, Judgement, judge
from winolab.judge.loading import load
from winolab.judge.trial import CHECKS, Case, Finding
from winolab.problem import Problem

CASE = Case(Problem.of((1, 4, 4, 1), (1, 3, 3, 1)))
# Issue 50, section 4.
FAULTS = {
    *("unwritten_tile", "off_by_one_pad", "race", "tf32", "swallowed_nan", "wrong_stream"),
    *("reads_outside", "stale_workspace", "transposed_filter", "overflow"),
}


@pytest.mark.parametrize("macros", sources.MACROS, ids=" ".join)
def test_every_source_compiles(macros: tuple[str, ...]) -> None:
    found = nvrtc.compile_cubin(sources.source(*macros), "sm_90a")
    assert found.cubin.startswith(b"\x7fELF")
    assert not found.resources["conv"].spills


def ptx(source: str, *options: str) -> str:
    """What NVRTC makes of it with these options."""
    library, program, size = nvrtc.library(), ctypes.c_void_p(), ctypes.c_size_t()
    created = library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"direct.cu", 0, None, None
    )
    given = [option.encode() for option in ("--gpu-architecture=compute_90", *options)]
    array = (ctypes.c_char_p * len(given))(*given)
    assert not created
    try:
        assert not library.nvrtcCompileProgram(program, len(given), array)
        assert not library.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        assert not library.nvrtcGetPTX(program, text)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return text.value.decode()


@pytest.mark.parametrize("macros", sources.MACROS, ids=" ".join)
def test_no_source_loses_subnormal_numbers_as_cupy_compiles_it(macros: tuple[str, ...]) -> None:
    """CuPy adds -ftz=true, which flushes them in all arithmetic that is no PTX of our own."""
    assert "fma.rn.ftz.f32" in ptx('extern "C" __global__ void k(float* x) '
                                   "{ x[0] = fmaf(x[1], x[2], x[3]); }", "-ftz=true")  # fmt: skip
    found = ptx(sources.source(*macros), "-ftz=true")
    assert "fma.rn.f32" in found
    flushed = set(re.findall(r"\b[\w.]+\.ftz[\w.]*", found))
    assert all(each.startswith("setp.") for each in flushed), flushed  # a NaN is none all the same


@pytest.mark.parametrize(
    "macros",
    [(), ("ONE_TURN",), ("SCRATCH",), ("BAKED_IN", "INPUT_H 5", "INPUT_W 7")],
    ids=" ".join,
)
def test_the_stranger_s_source_is_compiled_and_keeps_subnormal_numbers(macros) -> None:
    text = (ROOT / FOLDER / "stranger.cu").read_text()
    found = ptx("".join(f"#define {name}\n" for name in macros) + text, "-ftz=true")
    assert "fma.rn.f32" in found
    assert ".ftz" not in found


def test_macros_are_those_of_the_source_and_change_it() -> None:
    used = set(re.findall(r"#ifn?def (\w+)", sources.FILE.read_text()))
    assert used == {name for macros in sources.MACROS for name in macros}
    text = (ROOT / FOLDER / "with_cupy.py").read_text()
    assert used == set(re.findall(r'_made\("(\w+)"', text)) | {"HALF_SUMS"}
    assert len({nvrtc.compile_cubin(sources.source(*m), "sm_90a").cubin
                for m in sources.MACROS}) == len(sources.MACROS)  # fmt: skip


def test_the_signature_has_the_kernel_s_arguments(tmp_path: Path) -> None:
    said = native._signature(tmp_path / "direct.cubin", sources.SIGNATURE, "forward")
    given = re.search(r"(?s)\nconv\((.*?)\)", sources.FILE.read_text())
    assert given
    names = [part.split()[-1].lstrip("*") for part in given[1].split(",")]
    assert [each.rpartition(" ")[2] for each in said["arguments"]] == names


def test_every_kernel_is_there_and_every_fault_planted() -> None:
    names = [kernel.name for kernel in KERNELS]
    assert len(set(names)) == len(names)
    assert {kernel.name for kernel in KERNELS if not kernel.right} >= FAULTS
    assert {kernel.library for kernel in KERNELS if kernel.right} == {"cupy", "torch"}
    assert [kernel.name for kernel in KERNELS if kernel.right is None] == ["torch_cudnn"]
    by = {kernel.name: kernel.check for kernel in KERNELS if kernel.check}
    assert by.items() >= {"swallowed_nan": "nan", "unwritten_tile": "unwritten"}.items()
    assert {*by.values()} <= {*CHECKS}
    assert {name for name in by if "stranger" not in name} <= FAULTS
    for kernel in KERNELS:
        Claim(kernel.algorithm, kernel.precision)
        file, _, name = kernel.where.partition(":")
        if file.endswith(".py"):
            body = ast.parse((ROOT / file).read_text()).body
            targets = [t.id for node in body if isinstance(node, ast.Assign)
                       for t in node.targets if isinstance(t, ast.Name)]  # fmt: skip
            functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
            assert name in (*targets, *functions)


def stand_in(monkeypatch: pytest.MonkeyPatch, verdicts: dict[str, Any]) -> None:
    """Judgements of kernels by name: a check that refuses, "" for none, or an error."""

    def judge_apart(where: str, claim: Claim, *_: Any, **__: Any) -> tuple[Judgement, list]:
        said = verdicts[where.rpartition(":")[2]]
        if isinstance(said, Exception):
            raise said
        found = Judgement(where, claim, {}, [{"outcome": "accepted"}] * 20)
        if said:
            found.faults.append(Fault(Finding(said, "so it is"), CASE, CASE))
        return found, []

    monkeypatch.setattr(on_gpu, "judge_apart", judge_apart)
    monkeypatch.setattr(on_gpu.bench, "context", lambda: {"device": "a GPU"})
    kernels = [
        Kernel(
            name, f"x.py:{name}", "cupy", right=None if name == "picked" else "right" in name,
            check="nan" if name == "swallowed" else "",
        )
        for name in verdicts
    ]  # fmt: skip
    monkeypatch.setattr(on_gpu, "KERNELS", kernels)


def test_a_table_in_which_all_is_as_expected(tmp_path: Path, monkeypatch, capsys) -> None:
    stand_in(monkeypatch, {"right": "", "fault": "values", "other": "repeat"})
    output = tmp_path / "rows.jsonl"
    on_gpu.main(60, "", output)
    assert "3 of 3 kernels judged, 0 otherwise than expected" in capsys.readouterr().out
    rows = [json.loads(row) for row in output.read_text().splitlines()]
    assert [row["name"] for row in rows] == ["right", "fault", "other"]
    assert [row["found"] for row in rows] == ["accepted", "refused", "refused"]
    assert [row["checks"] for row in rows] == [[], ["values"], ["repeat"]]
    assert all(row["device"] == "a GPU" and row["winolab"] for row in rows)


@pytest.mark.parametrize("check", ["", "nan"])
def test_what_a_library_picks_is_shown_and_not_counted(
    tmp_path: Path, monkeypatch, capsys, check: str
) -> None:
    stand_in(monkeypatch, {"right": "", "picked": check})
    output = tmp_path / "rows.jsonl"
    on_gpu.main(60, "", output)
    printed = capsys.readouterr().out
    assert "2 of 2 kernels judged, 0 otherwise than expected" in printed
    assert re.search(f"expected either +found {'refused' if check else 'accepted'}", printed)
    assert ("nan: so it is" in printed) == bool(check)
    assert [json.loads(row)["checks"] for row in output.read_text().splitlines()] == [
        [], [check] if check else [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "verdicts",
    [
        {"right": "values", "fault": "values"},
        {"right": "", "fault": ""},
        {"right": "", "fault": "crash"},
        {"right": ValueError("does not\nload"), "fault": "nan"},
        {"right": "", "fault": OSError("gone")},
        {"right": "", "swallowed": "subnormal"},
        {"right": "", "picked": "hang"},
        {"right": "", "picked": OSError("gone")},
    ],
)
def test_what_is_otherwise_ends_with_1_and_no_other(
    tmp_path: Path, monkeypatch, capsys, verdicts: dict
) -> None:
    stand_in(monkeypatch, verdicts)
    output = tmp_path / "rows.jsonl"
    with pytest.raises(SystemExit) as error:
        on_gpu.main(60, "", output)
    assert error.value.code == 1
    printed = capsys.readouterr().out
    assert "2 of 2 kernels judged, 1 otherwise than expected" in printed
    assert printed.count("WRONG") == 2  # as it was found, and in the end
    assert len(output.read_text().splitlines()) == 2


def test_rows_of_other_kernels_stay(tmp_path: Path, monkeypatch) -> None:
    stand_in(monkeypatch, {"right": "", "fault": "values"})
    output = tmp_path / "rows.jsonl"
    on_gpu.main(60, "fault", output)
    on_gpu.main(60, "right", output)
    assert [json.loads(row)["name"] for row in output.read_text().splitlines()] == [
        "right", "fault",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no kernel nothing"):
        on_gpu.main(60, "nothing", output)


def test_what_no_time_is_left_for_is_said(tmp_path: Path, monkeypatch, capsys) -> None:
    stand_in(monkeypatch, {"right": ""})
    with pytest.raises(SystemExit):
        on_gpu.main(1, "", tmp_path / "rows.jsonl")
    assert re.search(r"right +left out: no time", capsys.readouterr().out)


def test_without_a_gpu_one_line_says_so(tmp_path: Path, monkeypatch) -> None:
    def context() -> None:
        raise MachineError("there is no GPU")

    monkeypatch.setattr(on_gpu.bench, "context", context)
    with pytest.raises(SystemExit, match=r"^there is no GPU$"):
        on_gpu.main(60, "", tmp_path / "rows.jsonl")


def test_a_fault_is_caught_by_its_results_alone() -> None:
    for check in CHECKS:
        row = {"expected": "refused", "found": "refused", "checks": [check], "by": ""}
        assert well(row) == (check not in ("crash", "hang", "declined"))
        assert well({**row, "by": "nan"}) == (check == "nan")
    assert not well({**row, "checks": []})  # served too few


# direct.cu as C++: a block is one thread, and one block follows another.
HOST = """
#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(n)
#include <math.h>
static void __syncthreads() {}
static int min(int a, int b) { return a < b ? a : b; }
static thread_local struct { int x, y, z; } blockIdx, threadIdx;
"""
LAUNCH = f"""
extern "C" int run(const float* x, const float* w, float* y,
                   {", ".join(f"int {name}" for name in sources.SIZES.split())}) {{
  for (int g = 0; g < G; ++g)
    for (int at = 0; at < N * OH * OW; ++at) {{
      blockIdx.x = at, blockIdx.y = g;
      conv(x, w, y, y, {", ".join(sources.SIZES.split())});
    }}
  return 0;
}}
"""
FEW = "channels=1-8 batch=1-3 out_channels=1-8 groups=1|2 dilation=1"  # what is quick


@pytest.mark.parametrize(
    ("macros", "check"),
    [
        ((), ""),
        (("UNWRITTEN_TILE",), "unwritten"),
        (("OFF_BY_ONE_PAD",), "values"),
        (("SWALLOWED_NAN",), "nan"),
        (("READS_OUTSIDE",), "outside"),
        (("TRANSPOSED_FILTER",), "values"),
    ],
)
def test_the_source_on_a_processor(tmp_path: Path, macros: tuple[str, ...], check: str) -> None:
    text = sources.source(*macros).replace(f"THREADS = {sources.THREADS}", "THREADS = 1")
    assert "THREADS = 1," in text
    library = tmp_path / "direct.so"
    command = [*compiler(), "-x", "c++", "-O1", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=HOST + text + LAUNCH, text=True, check=True)
    arguments = ["x", "w", "y", *(f"int {name}" for name in sources.SIZES.split())]
    signature = f'name = "run"\narguments = {arguments}\nserves = "{FEW}"'
    candidate = load(str(library), signature=signature)
    skip = frozenset({"declined"})  # arrays that are not contiguous
    found = judge(candidate, Claim(), count=4, first=True, seconds=0.05, skip=skip)
    assert [fault.finding.check for fault in found.faults] == ([check] if check else [])
    assert bool(found) == (not check), found.verdict
