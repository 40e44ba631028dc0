"""What GPUs checked, and which kernels had no such run."""

from __future__ import annotations

from experiments.gpu.targets import checked


def test_kernels_that_were_not_checked_are_named(monkeypatch) -> None:
    assert checked.lacking(["a x 0", "b x 0"], {"a x 0", "b x 0", "c"}) == "none of 2 kernels"
    due = ["a x 0", "a x 1", "b.c x 0", "c x 0"]
    assert checked.lacking(due, {"a x 1", "c x 0"}) == "2 of 4 kernels: a 1 of 2, b c 1 of 1"
    every = checked.guarded()
    assert len(every) == len({*every}) > 700
    seen, _ = checked.sanitized([])
    assert {kernel.split()[0] for kernel in seen} <= {kernel.split()[0] for kernel in every}
    rows = [{"kernel": seen[0], "tool": tool} for tool in ("memcheck", "initcheck", "synccheck")]
    assert checked.sanitized(rows) == (seen, set())  # one tool has not run
    last = {"kernel": seen[0], "tool": "racecheck"}
    assert checked.sanitized([*rows, last]) == (seen, {seen[0]})
    problems = [{"mold": mold, "count": 16, "wrong": 0, "gpu": "NVIDIA H"} for mold in every[2:]]
    kept = {"guarded_problems": problems, "sanitizer": [*rows, last]}
    monkeypatch.setattr(checked, "stored", lambda name: kept[name])
    first, _, rest = checked.problems()
    count = 16 * len(every[2:])
    assert first.startswith(
        f"{count:,} random problems of {len(every) - 2} kernels, 0 wrong, on an"
    )
    family = every[0].split()[0]
    of = sum(mold.split()[0] == family for mold in every)
    assert f"No problem has run on 2 of {len(every)} kernels: {family} 2 of {of}. " in rest
    assert f"have not all run on {len(seen) - 1} of {len(seen)} kernels: " in rest
    kept["guarded_problems"] = []
    assert checked.problems() == []
