"""The fused kernel's policies beside each other: what is planned compiles, what does not run is
left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.measure.fused import beside, own
from winolab.device import H100
from winolab.gpu.families.fused2d.plan import Fused2dPlan
from winolab.gpu.runtime import nvrtc

LISTS = ("layouts", "gradients", "vgg_e_16")


@pytest.mark.parametrize("name", LISTS)
def test_every_case_has_plans_of_its_own(name: str) -> None:
    for case in own.cases([name]):
        names = [own.name(p) for p in own.planned(case, H100)]
        assert len({*names}) == len(names) > 1, case


def test_gradients_are_made_by_one_team_and_two() -> None:
    """Every policy of the list, of a layer whose vectors are full: the sources compile."""
    case = next(case for case in own.cases(["gradients"]) if case.layer == "conv 3.2")
    found = [p for p in own.planned(case, H100) if isinstance(p, Fused2dPlan)]
    assert [(p.config.teams, p.config.ahead) for p in found if p.split_k > 1] == [
        (2, False), (1, False), (1, True),
    ]  # fmt: skip
    for source in {p.source() for p in found if p.split_k > 1}:
        assert "winolab_fused2d" in nvrtc.compile_cubin(source, "sm_90a").resources


def test_what_does_not_run_ends_no_other(monkeypatch, capsys) -> None:
    stream = SimpleNamespace(synchronize=lambda: None)
    host = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
    monkeypatch.setattr(beside.driver, "cupy", lambda: host)

    def broken() -> None:
        raise nvrtc.CompileError("NVRTC could not compile for sm_90a:\nstatic assertion failed")

    def outside() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    def right() -> None:
        pass

    assert beside.running({"one": right, "two": broken, "three": right}).keys() == {"one", "three"}
    said = "two does not run: NVRTC could not compile for sm_90a: static assertion failed\n"
    assert capsys.readouterr().out == said
    with pytest.raises(RuntimeError, match="illegal"):
        beside.running({"one": outside, "two": right})


def test_a_case_of_which_nothing_runs_has_no_rows(monkeypatch) -> None:
    case = next(own.cases(["gradients"]))
    host = SimpleNamespace(empty=lambda size, dtype: SimpleNamespace(data=SimpleNamespace(ptr=0)))
    monkeypatch.setattr(own.driver, "cupy", lambda: host)
    monkeypatch.setattr(own, "Arrays", lambda *of: SimpleNamespace(fill=lambda low, high: None))
    monkeypatch.setattr(beside, "running", lambda calls: {})
    assert own.run(case, own.planned(case, H100)) == []
