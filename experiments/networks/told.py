"""What docs/results.md says of whole networks beside their times: memory, deviations, layers."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.gpu.rows import Row, mean, stored

METHODS = ("winolab", "torch", "tf32")
Cases = dict[tuple, dict[str, Row]]  # a case's rows by method


def by_case(rows: Iterable[Row]) -> Cases:
    """The rows of each case, by method."""
    fields = ("network", "batch", "format", "order", "mode", "step")
    found: Cases = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in fields), {})[row["method"]] = row
    return found


def networks() -> list[str]:
    """A line a network and format: whose its layers are, memory, deviations from FP64."""
    of: dict[tuple[str, str], list[dict[str, Row]]] = {}
    for case, methods in by_case(stored("end_to_end")).items():
        if {"winolab", "torch"} <= methods.keys():
            of.setdefault((case[0], case[2]), []).append(methods)
    if not of:
        return []
    lines = [
        "The same networks and rows: convolutions that `convert` has put on winolab, of all; the "
        "most memory of a training step, over PyTorch's, a geometric mean over memory orders and "
        "batches, in brackets that of the largest; and by how much outputs and gradients of two "
        "images deviate from FP64 at most, the largest difference over the largest value: ours, "
        "PyTorch's and TF32's. Where batches are normalized, two images make gradients sensitive, "
        "whoever computes them.",
        "",
        "| network, format | layers | memory | logits | gradients |",
        "|---|---|---|---|---|",
    ]
    for (network, kind), cases in sorted(of.items()):
        layers = " or ".join(sorted({case["winolab"]["converted"] for case in cases}))
        cells = (layers, _memory(cases), _largest(cases, "logits"), _largest(cases, "gradients"))
        lines.append(f"| {network}, {kind.upper()} | {' | '.join(cells)} |")
    return lines


def _memory(cases: list[dict[str, Row]]) -> str:
    """Our peak over PyTorch's in training, and the largest of ours."""
    trained = [case for case in cases if case["winolab"]["step"] == "training"]
    if not trained:
        return ""
    ours, theirs = ([case[who]["peak_mb"] for case in trained] for who in METHODS[:2])
    ratio = mean([a / b for a, b in zip(ours, theirs, strict=True)])
    return f"{ratio:.2f} ({max(ours):,.0f} MB)"


def _largest(cases: list[dict[str, Row]], field: str) -> str:
    """The largest deviation of each method."""
    found = []
    for who in METHODS:
        values = [case[who][field] for case in cases if field in case.get(who, {})]
        if values:
            found.append(f"{max(values):.1e}")
    return ", ".join(found)
