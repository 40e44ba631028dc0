"""Plans that are kept on disk: the same ones, made anew where what decides them differs."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import winolab
from experiments.measure.planning import shapes
from tests.gpu.support.pretended import Array, Library
from winolab import calls
from winolab.arguments.tolerance import Tolerance
from winolab.device import H100, datasheet
from winolab.gpu import machine
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import DIRECTIONS, Plan, Request
from winolab.gpu.runtime.cache import plans
from winolab.problem import Problem

PROBLEM = Problem.of((2, 12, 12, 32), (32, 3, 3, 32), padding=1)
REQUEST = Request(PROBLEM, "forward", H100)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plans are kept, which begins empty."""
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("WINOLAB_PLANS", "1")
    plans._planned.cache_clear()
    return tmp_path / "plans"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What the planner itself is asked."""
    found: list[Request] = []

    def made(request: Request, apart: bool) -> Plan:
        found.append(request)
        return planner.plan(request, apart)

    monkeypatch.setattr(plans, "_made", made)
    return found


def another_process() -> None:
    """What a process remembers is forgotten."""
    plans._planned.cache_clear()


def test_another_process_reads_the_plan_and_knows_its_source(folder, asked, monkeypatch) -> None:
    first = plans.planned(REQUEST)
    known = plans.source_of(first)
    assert known is not None
    another_process()
    again = plans.planned(REQUEST)
    assert asked == [REQUEST]
    assert again == first
    assert again is not first
    text = first.source()
    monkeypatch.setattr(type(again), "source", lambda plan: pytest.fail("it is printed"))
    assert plans.source_of(again) == known == plans.Source.of(text)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


@pytest.mark.parametrize("precision", ["fp32", "fp32_ffma", "fp16", "bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_plan_that_is_read_is_the_one_that_was_made(direction: str, precision: str) -> None:
    """All members, the kernels' text among them: the same bits."""
    rng = random.Random(direction + precision)
    served = 0
    for problem in rng.sample(list(shapes()), 4):
        request = Request(problem, direction, H100, precision=precision)
        try:
            made = planner.plan(request)
        except ValueError:
            continue
        read = plans._unpacked(plans.packed(made))
        assert read is not None
        assert (read, str(read), read.predicted) == (made, str(made), made.predicted)
        assert (read.source(), read.shared()) == (made.source(), made.shared())
        assert plans.described(read) == plans.described(made)
        served += 1
    assert served > 1


def test_what_decides_a_plan_is_told_apart(asked) -> None:
    requests = [
        REQUEST,
        replace(REQUEST, problem=replace(PROBLEM, batch=3)),
        replace(REQUEST, direction="backward_data"),
        replace(REQUEST, device=datasheet("h200")),
        replace(REQUEST, device=replace(H100, multiprocessors=114)),
        replace(REQUEST, algorithm=winolab.gamma(8, 6, 3)),
        replace(REQUEST, algorithm=winolab.gamma(8, 6, 3, points="0,1,-1,2,-2,1/2,-1/2,inf")),
        replace(REQUEST, precision="fp16"),
        replace(REQUEST, aligned=False),
        replace(REQUEST, workspace_limit=1 << 30),
        replace(REQUEST, tolerance=Tolerance.of("direct:4")),
        replace(REQUEST, finished=True),
    ]
    first = [plans.planned(request) for request in requests]
    another_process()
    assert [plans.planned(request) for request in requests] == first
    assert asked == requests  # each once
    assert len({plans.described(request) for request in requests}) == len(requests)


def test_a_filter_apart_is_another_question(asked) -> None:
    request = replace(REQUEST, algorithm=winolab.gamma(8, 6, 3), precision="fp32_split")
    whole = {apart: planner.plan(request, apart) for apart in (False, True)}
    assert whole[True].prepared_size > 0
    for apart in (False, True, False, True):
        another_process()
        assert plans.planned(request, apart) == whole[apart]
    assert asked == [request] * 2


@pytest.mark.parametrize("change", ["cut", "flipped", "faster", "empty", "foreign", "pickle"])
def test_a_damaged_plan_is_made_anew_and_written_over(folder, asked, change) -> None:
    first = plans.planned(REQUEST)
    (path,) = folder.iterdir()
    sound = path.read_bytes()
    evil = pickle.dumps(os.getcwd, protocol=5)
    path.write_bytes(
        {
            "cut": sound[:-1],
            "faster": sound.replace(struct.pack(">d", first.predicted), struct.pack(">d", 1e-9)),
            "flipped": sound[:-1] + bytes([sound[-1] ^ 1]),
            "empty": b"",
            "foreign": plans.digest(b"x").encode() + b"x",
            "pickle": plans.digest(evil).encode() + evil,
        }[change]
    )
    assert path.read_bytes() != sound
    another_process()
    assert plans.planned(REQUEST) == first
    assert asked == [REQUEST, REQUEST]
    assert path.read_bytes() == sound
    another_process()
    plans.planned(REQUEST)
    assert len(asked) == 2


def test_a_plan_s_file_makes_nothing_but_plans() -> None:
    for value in (os.getcwd, Path("x"), Exception("x"), plans.planned):
        assert plans._unpacked(pickle.dumps(value)) is None


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_plan_that_others_can_write_is_not_read(folder, asked, mode) -> None:
    plans.planned(REQUEST)
    (path,) = folder.iterdir()
    path.chmod(mode)
    another_process()
    plans.planned(REQUEST)
    assert len(asked) == 2
    folder.chmod(0o777)
    another_process()
    plans.planned(REQUEST)
    assert len(asked) == 3


def test_other_sources_plan_anew(asked, monkeypatch, tmp_path) -> None:
    (tmp_path / "root" / "torch").mkdir(parents=True)
    model = tmp_path / "root" / "device_model.toml"
    model.write_text("launch = 1")
    monkeypatch.setattr(plans, "ROOT", tmp_path / "root")
    found = []
    for text in ("launch = 1", "launch = 2", "launch = 1"):
        model.write_text(text)
        (tmp_path / "root" / "torch" / "modules.py").write_text(text)
        plans.sources.cache_clear()
        another_process()
        plans.planned(REQUEST)
        found.append(len(asked))
    plans.sources.cache_clear()
    assert found == [1, 2, 2]
    model.rename(model.with_name("other.toml"))
    another_process()
    plans.planned(REQUEST)
    assert len(asked) == 3
    plans.sources.cache_clear()


def test_sources_that_did_not_change_are_not_read_again(folder, monkeypatch, tmp_path) -> None:
    root = tmp_path / "root"
    (root / "gpu").mkdir(parents=True)
    model = root / "gpu" / "model.toml"
    model.write_text("launch = 1")
    monkeypatch.setattr(plans, "ROOT", root)
    read: list[str] = []

    def opened(path: str, *how: Any, **more: Any) -> Any:
        read.append(path)
        return open(path, *how, **more)

    monkeypatch.setattr(plans, "open", opened, raising=False)

    def found(settled: int) -> tuple[str, int]:
        monkeypatch.setattr(plans, "SETTLED", settled)
        plans.sources.cache_clear()
        read.clear()
        return plans.sources(), len(read)

    anew = found(10**18)  # what changed a moment ago may change once more at the same time
    assert found(-(10**18)) == anew == (anew[0], 1)
    assert found(-(10**18)) == (anew[0], 0)
    times = model.stat()
    model.write_text("launch = 2")  # of the same size, and its time set back
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    other = found(-(10**18))
    assert other[0] != anew[0]
    assert other[1] == 1
    (kept,) = (path for path in folder.parent.glob("*.sources") if path.read_text() == other[0])
    kept.chmod(0o644)
    kept.write_text(anew[0])
    assert found(-(10**18)) == other
    plans.sources.cache_clear()


def test_what_the_package_has_decides_a_plan() -> None:
    names = {name for name, _ in plans._files(plans.ROOT)}
    assert {"gpu/planner/device_model.toml", "problem.py", "gpu/families/registry.py"} <= names
    assert any(name.endswith(".cuh") for name in names)
    assert "ref/algebra/data/best_points.json" in names
    assert not [name for name in names if name.partition("/")[0] in plans.ABOVE]


def test_a_plan_of_a_library_that_is_not_there_is_made_anew(asked, monkeypatch) -> None:
    problem = Problem.of((32, 17, 17, 768), (768, 1, 1, 768))
    request = Request(problem, "forward", H100, precision="fp16")
    there = [True]

    def has() -> bool:
        return there[0]

    monkeypatch.setattr(machine, "driver_cuda", lambda: (12, 4))
    monkeypatch.setattr(machine, "has_cublaslt", has)
    named = replace(request, algorithm=winolab.direct(variant="cublaslt"))
    for of, counts in ((named, [1, 2, 2]), (REQUEST, [3, 3, 3])):
        found = []
        for there[0] in (True, False, False):
            another_process()
            plans.planned(of)
            found.append(len(asked))
        assert found == counts
    there[0] = False
    another_process()
    without = replace(REQUEST, finished=True)
    plans.planned(without)
    there[0] = True  # installed since
    another_process()
    plans.planned(without)
    assert len(asked) == 5


def test_what_has_no_fields_of_ours_is_planned_as_ever(folder, asked, monkeypatch) -> None:
    class Foreign(str):
        pass

    odd = replace(REQUEST, precision="fp32")
    object.__setattr__(odd, "precision", Foreign("fp32"))
    assert plans.planned(odd) == planner.plan(odd)
    with pytest.raises(plans.Unkept, match="Foreign"):
        plans.described(odd)
    monkeypatch.setattr(planner, "FAMILIES", (*planner.FAMILIES,))
    planner.plan.cache_clear()
    plans.planned(REQUEST)  # by families that may not be the package's
    assert not folder.exists()


def test_a_refusal_is_not_kept(folder) -> None:
    refused = replace(REQUEST, direction="backward_filter", config=None, algorithm=winolab.fft())
    for _ in range(2):
        with pytest.raises(ValueError, match="fft"):
            plans.planned(refused)
    assert not folder.exists()


def test_where_nothing_can_be_written_calls_run(folder, monkeypatch) -> None:
    folder.parent.chmod(0o777)  # this user's own lies in it
    own = folder.parent / f"user-{os.getuid()}"
    own.mkdir()
    (own / "plans").write_text("no folder")
    assert plans.planned(REQUEST) == planner.plan(REQUEST)
    monkeypatch.setenv("WINOLAB_PLANS", "0")
    folder.parent.chmod(0o755)
    assert plans.planned(REQUEST) == planner.plan(REQUEST)
    assert not folder.exists()


def test_processes_at_once_write_the_same(folder) -> None:
    code = (
        "import pickle, sys; from winolab.gpu.runtime.cache import plans;"
        "plan = plans.planned(pickle.loads(bytes.fromhex(sys.argv[1])));"
        "print(plans.source_of(plan).digest)"
    )

    def run(_: int) -> str:
        command = [sys.executable, "-c", code, pickle.dumps(REQUEST).hex()]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(3) as pool:
        said = set(pool.map(run, range(3)))
    assert len(said) == 1
    assert len(list(folder.iterdir())) == 2  # and nothing half written
    known = plans.source_of(plans.planned(REQUEST))
    assert known
    assert said == {f"{known.digest}\n"}


def test_a_call_runs_a_plan_that_is_read(library: Library, asked, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype("f4") for s in ((1, 6, 9, 8), (8, 3, 3, 8)))
    results: list[Any] = []
    for _ in range(2):
        another_process()
        monkeypatch.setattr(calls, "kept", {})
        y = winolab.conv_forward(Array(x), Array(w), padding=1)
        results.append(y.values.copy())
    assert len(asked) == 1
    assert np.isfinite(results[0]).all()
    assert results[0].tobytes() == results[1].tobytes()
