"""What kernels with moduli beyond points were to reach: rows of nested kernels beside minimal ones,
picks and PyTorch, and 9×9 filters beside cuDNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.gpu.rows import Measured, Row, authors, where
from experiments.gpu.targets.aims import Part, anyone, gemm, ours, quotients, speeds
from experiments.harness.tables import Cell

NESTED = "python -m experiments.measure.nested"
SPEED = "python -m experiments.measure.throughput --lists dragon"
NINE, SIX = "F(6×6,3×3;9×9)", "F(4×4,3×3)"
DEEP_NINE, DEEP_SIX = "F(1×6×6,1×3×3;1×9×9)", "F(1×4×4,1×3×3)"
WIDE, HALF = (5, 7), 0.5  # taps; of a pick's error
PRODUCTS = {"fp32_split": "split FP32", "fp16": "FP16"}
CHANNELS = 256  # of a layer, and more, in which FP16 was to be faster than cuDNN


@dataclass(frozen=True)
class Beside:
    """A layer in a precision, and everybody who ran it in one run."""

    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        x, w = self.rows[0]["x"], self.rows[0]["w"]
        return f"{'x'.join(map(str, x))}:{'x'.join(map(str, w[:-1]))}"

    @property
    def taps(self) -> int:
        return self.rows[0]["w"][-2]

    @property
    def channels(self) -> int:
        return self.rows[0]["x"][-1]

    @property
    def ndim(self) -> int:
        return len(self.rows[0]["x"]) - 2

    @property
    def group(self) -> str:
        return self.rows[0]["group"]

    def fastest(self, accept: Callable[[Row], bool]) -> Row | None:
        return min(filter(accept, self.rows), key=lambda row: row["us"][1], default=None)

    def of(self, kernel: str, products: str) -> Row | None:
        return self.fastest(lambda r: (r.get("kernel"), r["products"]) == (kernel, products))

    @property
    def usual(self) -> Row | None:
        """What is picked; what is picked without nested kernels where that has moduli."""
        roles = ("picked", "picked without nested")
        found = [r for r in self.rows if r.get("role") in roles and ";" not in r["kernel"]]
        return min(found, key=lambda r: roles.index(r["role"]), default=None)

    def within(self, error: float) -> Row | None:
        """The fastest nested kernel with moduli of split products whose error is at most that."""
        return self.fastest(
            lambda r: (
                r["products"] == "fp32_split"
                and ";" in r["kernel"]
                and r["relative_rms_n01"] <= error
            )
        )

    @property
    def nested(self) -> Row | None:
        """The fastest nested kernel in 16 bits, whatever its error."""
        return self.fastest(lambda r: r["method"] == "winolab" and r["kernel"].startswith("F("))

    @property
    def torch(self) -> Row | None:
        return self.fastest(lambda r: (r["method"], r["products"]) == ("torch", self.group))


def layers(rows: Sequence[Row]) -> list[Beside]:
    """The rows of experiments.measure.nested by layer and precision."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        if "case" not in row and {"x", "w", "group", "us"} <= row.keys():
            place = str(row["x"]), str(row["w"]), str(row["padding"]), row["group"]
            found.setdefault(place, []).append(row)
    return [Beside(tuple(mine)) for mine in found.values()]


def moduli(rows: Sequence[Row], dragon: Sequence[Measured]) -> Iterator[Cell]:
    """The aims: nested kernels over minimal ones, over picks, over PyTorch; 9×9 over cuDNN."""
    every = layers(rows)
    part = Part("Moduli", f"{NESTED}; {where(row for c in every for row in c.rows)}")
    for ndim, mine, minimal in ((2, NINE, SIX), (3, DEEP_NINE, DEEP_SIX)):
        for products, name in PRODUCTS.items():
            both = [(c, c.of(mine, products), c.of(minimal, products))
                    for c in every if c.ndim == ndim]  # fmt: skip
            yield from _over(part, f"{mine} over {minimal}, {name}", both, 0.7)
    for taps in WIDE:
        mine = [c for c in every if (c.taps, c.group) == (taps, "fp32") and c.usual]
        both = [(c, c.within(HALF * usual["relative_rms_n01"]), usual)
                for c in mine if (usual := c.usual)]  # fmt: skip
        what = f"{taps}×{taps} with moduli at half of the error, over what is picked without"
        yield from part.over(what, _ratios(both), None, 1.0)
    wide = [c for c in every if (c.ndim, c.taps, c.group) == (2, 3, "fp16")]
    both = [(c, c.nested, c.torch) for c in wide if c.channels >= CHANNELS]
    what = f"FP16, 3×3 of {CHANNELS} channels and more, fastest nested over PyTorch"
    yield from part.over(what, _ratios(both), 1.25, None)
    found = {c.name: mine["relative_rms_n01"] for c, mine, _ in both if mine}
    yield part.shown(f"{what}, relative RMS", "largest", max(found.values(), default=math.nan))
    part = Part("Moduli", SPEED)
    theirs = {printed["layer"] for printed in authors()}
    nine = [c for c in dragon if c.name in theirs and c.layer.taps == 9]
    what = "9×9 of the authors, over any cuDNN FP32"
    yield part.smallest(what, 1.6, speeds(nine, ours, anyone))
    shares = quotients(nine, "relative_rms_u11", ours, gemm)
    yield part.largest("9×9 of the authors, relative RMS over cuDNN's GEMM", 1.0, shares)


Both = Sequence[tuple[Beside, Row | None, Row | None]]


def _over(part: Part, what: str, both: Both, error: float) -> Iterator[Cell]:
    """Speed, at least that of the other, at an error of at most so much of that one's."""
    yield from part.over(what, _ratios(both), None, 1.0)
    shares = {c.name: a["relative_rms_n01"] / b["relative_rms_n01"] for c, a, b in both if a and b}
    yield part.largest(f"{what}, relative RMS", error, shares)


def _ratios(both: Both) -> dict[str, float]:
    """Speed over speed, a layer each."""
    return {c.name: b["us"][1] / a["us"][1] for c, a, b in both if a and b}
