"""Random problems that are accumulated: which come next, and what is counted."""

from __future__ import annotations

import json

from tests.gpu import accumulate
from tests.gpu.guarded import Mold
from winolab.device import H100


def test_the_next_call_goes_on_and_wrong_ones_are_counted(monkeypatch, tmp_path, capsys) -> None:
    few = [Mold("direct", "direct", "fp16", n) for n in range(3)]
    ran: list[tuple[Mold, int]] = []

    def run(mold: Mold, number: int) -> float:
        ran.append((mold, number))
        assert number != 3, "wrong"
        return 0.5

    monkeypatch.setattr(accumulate, "molds", lambda: list(few))
    monkeypatch.setattr(accumulate, "compiled", lambda some, numbers: None)
    monkeypatch.setattr(accumulate, "run", run)
    monkeypatch.setattr(accumulate.driver, "device", lambda index: H100)
    rows = tmp_path / "rows.jsonl"
    assert accumulate.main(["--problems", "2", "--rows", str(rows)]) == 0
    assert sorted(ran, key=str) == [(m, n) for m in few for n in (0, 1)]
    ran.clear()
    assert accumulate.main(["--problems", "2", "--rows", str(rows)]) == 1
    assert {number for _, number in ran} == {2, 3}
    assert "12 problems of 3 kernels, 3 wrong" in capsys.readouterr().out
    assert all(json.loads(line)["worst"] == 0.5 for line in rows.read_text().splitlines())


def test_every_kernel_has_molds() -> None:
    found = accumulate.molds()
    assert len({str(m) for m in found}) == len(found) > 250
