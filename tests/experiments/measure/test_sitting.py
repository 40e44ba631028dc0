"""A sitting runs its steps one after another, whatever becomes of one."""

from __future__ import annotations

import importlib.util
import os
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.measure import counters, layers, sitting
from experiments.measure.sitting import STEPS, Step, chosen, kept, sat
from experiments.networks import end_to_end
from papers.dwm_2021 import gpu_times
from papers.dwm_2021.measure import ranges


def test_every_step_is_a_command_that_exists() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert importlib.util.find_spec(step.command.split()[0]), step.command


def test_what_a_paper_s_folder_measures_on_a_gpu_is_a_step() -> None:
    """Not its tables, nor what is on paper."""
    mine = [step for step in STEPS if ".measure." in step.command and "papers" in step.command]
    of_winrs = {"winrs_fused", "winrs_plans", "winrs_remedies"}
    assert {step.name for step in mine} == {"dwm_ranges"} | of_winrs


def test_steps_are_taken_by_name() -> None:
    assert [step.name for step in chosen("nested, fused")] == ["nested", "fused"]
    assert [step.name for step in STEPS if step not in chosen("")] == ["two"]
    assert chosen("nested=7.5") == [replace(chosen("nested")[0], seconds=7.5)]
    with pytest.raises(ValueError, match="no step 'speed'; expected tests, "):
        chosen("speed")
    (two,) = chosen("two")
    assert two.line(60)[1:4] == ["-m", "torch.distributed.run", "--nproc-per-node"]
    assert two.line(60)[-2:] == ["--seconds", "60"]


def test_what_lacks_rows_is_said_without_a_gpu(monkeypatch, capsys) -> None:
    names = ["net_data", "compiled", "dwm", "dwm_ranges", "reasons", "counters", "tests"]
    for module in (layers, counters, end_to_end, gpu_times, ranges):
        name = "kept" if module is counters else "stored"
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(counters, "of_networks", lambda: list(counters.CASES[:3]))
    sitting.main(only=",".join(names), left=True)
    found = {line.split()[0]: int(line.split()[1]) for line in capsys.readouterr().out.splitlines()}
    listed = len(layers.LISTS["networks_backward_data"][0])
    assert found == {
        "net_data": 3 * listed,
        "compiled": 2 * 2 * 3 * 2 * 2,  # networks, batches, formats, orders, steps
        "dwm": sum(gpu_times.size(case[2], "fp32") <= gpu_times.BYTES
                   for case in gpu_times.cases("layers,networks")),
        "dwm_ranges": len(list(ranges.cases())),
        "reasons": 3,
    }  # fmt: skip
    case = next(ranges.cases())
    shapes = dict(zip(("network", "input", "filter", "stride"), ranges.key(*case), strict=True))
    monkeypatch.setattr(ranges, "stored", lambda *_: [shapes])
    (step,) = chosen("dwm_ranges")
    assert step.outstanding() == (found["dwm_ranges"] - 1, ranges.EACH)


def test_a_step_that_fails_or_hangs_ends_no_other(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sitting, "LEAST", 0.1)
    steps = [
        Step("fails", 30, "platform extra", limited=False),
        Step("hangs", 0.4, "http.server 0 --bind 127.0.0.1", limited=False),
        Step("works", 30, "this", limited=False),
    ]
    ended = list(sat(steps, 60, tmp_path / "logs"))
    assert [well for well, _ in ended[1:]] == [False, True]
    lines = [line for _, line in ended]
    assert lines[1].split(":")[0].endswith("stopped")
    assert ("  done: " in lines[2], "honking great idea" in lines[2]) == (True, True)
    gone = Step("gone", 30, "no_such_module", limited=False)
    ((well, missing),) = sat([gone], 60, tmp_path / "logs")
    assert not well
    assert "exit code 1: " in missing
    assert "No module named no_such_module" in missing
    assert all(line.endswith("left out: no time") for _, line in sat(steps, 0, tmp_path / "logs"))


def test_gpus_share_the_steps_and_torchrun_has_all(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sitting, "LEAST", 0.1)
    code = (
        "import os, pathlib, sys, time\n"
        "name = sys.argv[1]\n"
        "time.sleep(0.5)\n"
        "folder = pathlib.Path(__file__).parent\n"
        "shown = os.environ.get('CUDA_VISIBLE_DEVICES'), len(os.sched_getaffinity(0))\n"
        "(folder / name).write_text(repr(shown))\n"
    )
    (tmp_path / "shows.py").write_text(code)
    monkeypatch.setattr(sitting, "ROOT", tmp_path)
    monkeypatch.setattr(Step, "line", lambda self, _: [sys.executable, "-m", "shows", self.name])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    steps = [Step("all", 30, "shows", torchrun=True)]
    steps += [Step(name, 30, "shows", limited=False) for name in "abc"]
    ended = list(sat(steps, 60, tmp_path / "logs", gpus=2))
    assert [well for well, _ in ended] == [True] * 4
    assert ended[-1][1].startswith("all")
    cores = len(os.sched_getaffinity(0))
    found = {name: eval((tmp_path / name).read_text()) for name in ("a", "b", "c", "all")}
    assert {found[name][0] for name in "abc"} == {"0", "1"}
    assert all(n in (cores // 2, -(-cores // 2), cores) for _, n in found.values())
    assert found["all"] == (None, cores)


def test_a_sitting_in_which_a_step_fails_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sitting, "STEPS", (Step("gone", 30, "no_such_module", limited=False),))
    monkeypatch.setattr(
        sitting, "sat", lambda steps, seconds, gpus: sat(steps, seconds, tmp_path / "l")
    )
    with pytest.raises(SystemExit) as ended:
        sitting.main("gone", seconds=60, gpus=1, shown=False, changed=None)
    assert ended.value.code == 1


def test_rows_that_changed_are_kept(tmp_path: Path, monkeypatch) -> None:
    results, logs = tmp_path / "results", tmp_path / "logs"
    for folder in (results, logs):
        folder.mkdir()
    for name in ("new", "old"):
        (results / f"{name}.jsonl").write_text("{}\n")
    (logs / "tests.log").write_text("1 passed\n")
    now = time.time()
    os.utime(results / "old.jsonl", (now - 60, now - 60))
    for name, value in (("ROOT", tmp_path), ("RESULTS", results), ("LOGS", logs)):
        monkeypatch.setattr(sitting, name, value)
    assert kept(tmp_path / "back.tar.xz", now - 30) == 2
    with tarfile.open(tmp_path / "back.tar.xz") as tar:
        assert tar.getnames() == ["results/new.jsonl", "logs/tests.log"]
