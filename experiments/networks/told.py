"""What docs/results.md says of whole networks beside their times: memory, deviations, layers."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.gpu.rows import Row, mean, stored

METHODS = ("winolab", "torch", "tf32")
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "inception_v3": 23_834_568,
    "densenet121": 7_978_856,
    "convnext_tiny": 28_589_128,
    "efficientnet_b0": 5_288_548,
    "unet2d": 31_031_810,
    "unet3d": 5_599_779,
    "video_decoder": 59_744_643,
}
# Commits by which all contenders had been trained when the memory of the first was looked at.
ALL_TRAINED = {"74fc64cb", "4368f3a1"}
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
        "most memory that network and training step take, over PyTorch's, a geometric mean over "
        "memory orders and batches, in brackets that of the largest; and by how much outputs and "
        "gradients of two images (of a video's corner) deviate from FP64 at most, the largest "
        "difference over the largest value: ours, PyTorch's and TF32's. Where batches are "
        "normalized, two images make gradients sensitive, whoever computes them.",
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
    """Ours over PyTorch's in training, and the largest of ours."""
    trained = [case for case in cases if case["winolab"]["step"] == "training"]
    if not trained:
        return ""
    ours, theirs = ([_took(case, who) for case in trained] for who in METHODS[:2])
    ratio = mean([a / b for a, b in zip(ours, theirs, strict=True)])
    return f"{ratio:.2f} ({max(ours):,.0f} MB)"


def _took(case: dict[str, Row], who: str) -> float:
    """MB that a contender's network, images and step take.

    ``peak_mb`` of rows without ``memory_mb`` has, beside these, the parameters of the other
    contenders and of the network whose copies they are, and gradients and momentum of those that
    had been trained by then.
    """
    row = case[who]
    if "memory_mb" in row:
        return row["memory_mb"]
    names = [name for name in METHODS if name in case]
    trained = len(names) - 1 if row["commit"] in ALL_TRAINED else names.index(who)
    return row["peak_mb"] - 4e-6 * PARAMETERS[row["network"]] * (len(names) + 2 * trained)


def _largest(cases: list[dict[str, Row]], field: str) -> str:
    """The largest deviation of each method."""
    found = []
    for who in METHODS:
        values = [case[who][field] for case in cases if field in case.get(who, {})]
        if values:
            found.append(f"{max(values):.1e}")
    return ", ".join(found)
