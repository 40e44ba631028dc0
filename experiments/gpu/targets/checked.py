"""What docs/results.md says of kernels that GPUs checked: random problems, compute-sanitizer, and
which kernels neither has had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from experiments.gpu.rows import Row, stored
from winolab.gpu.families.registry import FAMILIES


def problems() -> list[str]:
    """How many random problems GPUs have had, how many were wrong, and what was not checked."""
    rows = stored("guarded_problems")
    if not rows:
        return []
    count, wrong = (sum(row[name] for row in rows) for name in ("count", "wrong"))
    had = {row["mold"] for row in rows}
    gpus = ", ".join(sorted({row["gpu"] for row in rows}))
    return [
        f"{count:,} random problems of {len(had)} kernels, {wrong} wrong, on an {gpus}: any "
        "dimension, stride, dilation, groups, padding, memory order and direction that the kernel "
        "serves, outputs filled with NaN beforehand, guards around every array, held to the "
        "proven bound. Run on by `python -m tests.gpu.accumulate`; `--summary` counts.",
        "",
        f"No problem has run on {lacking(guarded(), had)}. Compute-sanitizer's four tools, a "
        "small problem of one form of each kernel (`make sanitize`), have not all run on "
        f"{lacking(*sanitized(stored('sanitizer')))}.",
    ]


def guarded() -> list[str]:
    """The kernels that random problems are drawn for."""
    from tests.gpu.accumulate import molds  # what runs them

    return [str(mold) for mold in molds()]


def sanitized(rows: Iterable[Row]) -> tuple[list[str], set[str]]:
    """The kernels that compute-sanitizer is to see, and those that every tool has seen."""
    from tests.gpu.sanitize import TOOLS, molds

    tools: dict[str, set[str]] = {}
    for row in rows:
        tools.setdefault(row["kernel"], set()).add(row["tool"])
    due = [str(mold) for mold in molds([family.name for family in FAMILIES])]
    return due, {kernel for kernel, ran in tools.items() if ran.issuperset(TOOLS)}


def lacking(due: Collection[str], had: Collection[str]) -> str:
    """How many kernels had nothing, by family: the first word of a kernel's text."""
    every = Counter(kernel.split()[0] for kernel in due)
    missing = Counter(kernel.split()[0] for kernel in due if kernel not in had)
    if not missing:
        return f"none of {len(due)} kernels"
    each = ", ".join(f"{family.replace('.', ' ')} {n} of {every[family]}"
                     for family, n in missing.items())  # fmt: skip
    return f"{missing.total()} of {len(due)} kernels: {each}"
