"""The rows that were measured on a GPU, by case, and who was the fastest of each kind in it.

Files hold rows of several GPUs; tables and figures are of the one that was measured last, unless
they name another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import geometric_mean
from typing import Any

from experiments.harness import tables
from experiments.harness.facts import entries, tables_of
from experiments.measure import cases as throughput_cases
from winolab.algorithm import Tile, parse_algorithm
from winolab.bench.layers import Layer, parse_square
from winolab.device import Device, datasheet
from winolab.ref.algorithms.winrs.plan import data_size

Row = dict[str, Any]
# A result whose relative RMS on U[-1, 1) is above this is wrong, whoever's it is: no algorithm here
# loses as much by rounding in FP32 and TF32, or in 16 bits. BF16's was 0.3 until Ω16 was measured:
# 0.37 to 0.43, eight times its 0.046 to 0.053 in FP16, as the unit roundoffs are.
WRONG = {"fp32": 5e-3, "fp16": 0.3, "bf16": 0.5}


def stored(name: str = "throughput") -> list[Row]:
    """The rows of a file of experiments/results, none where there is none."""
    return tables.stored(name)


@dataclass(frozen=True)
class Measured:
    """One case: a layer, a direction, a precision of the arrays, and everybody who ran it."""

    list: str
    layer: Layer
    kernel_of: str | None
    direction: str
    group: str
    rows: tuple[Row, ...]
    sgemm: float  # TFLOPS: the best of all runs on the device

    @property
    def name(self) -> str:
        return str(self.layer)

    @property
    def device(self) -> Device:
        """The GPU. Raises ValueError for one of which winolab.device knows no data sheet."""
        return datasheet(self.rows[0]["device"])

    def fastest(self, accept: Callable[[Row], bool], wrong_too: bool = False) -> Row | None:
        """The fastest row that is accepted and, unless ``wrong_too``, not wrong; or None."""
        found = (row for row in self.rows if accept(row) and (wrong_too or not wrong(row)))
        return max(found, key=lambda row: row["tflops"], default=None)

    @cached_property
    def ffma(self) -> Row | None:
        """Ours on FFMA, the kernel that the list names where it names one."""
        return self.of_products("fp32")

    @cached_property
    def fastest_ffma(self) -> Row | None:
        """Ours on FFMA, whichever kernel it is."""
        return self.of_products("fp32", named=False)

    def of_products(self, products: str, prepared: bool = False, named: bool = True) -> Row | None:
        """Ours with these products; FFMA: the kernel that the list names where it names one, unless
        ``named`` is False."""
        return self.fastest(
            lambda r: (
                r["method"] == "winolab"
                and r["products"] == products
                and r.get("prepared", False) == prepared
                and (products != "fp32" or not named or self.kernel_of in (None, r["kernel"]))
            )
        )

    @cached_property
    def split(self) -> Row | None:
        """Ours with products of split parts on Tensor Cores."""
        return self.of_products("fp32_split")

    @cached_property
    def fused(self) -> Row | None:
        """Ours with such products whose transforms are all within one kernel, Γ."""
        return self.fastest(
            lambda r: (
                (r["method"], r["products"]) == ("winolab", "fp32_split")
                and r["kernel"].startswith("Γ")
                and not r.get("prepared")
            )
        )

    @cached_property
    def ours(self) -> Row | None:
        """What ``conv_*`` picks by itself."""
        return self.fastest(lambda r: r["method"] == "winolab" and r["chosen"])

    @cached_property
    def ours_any(self) -> Row | None:
        """The fastest of ours, whatever its error."""
        return self.fastest(lambda r: r["method"] == "winolab" and not r.get("prepared"))

    def cudnn(self, *kernels: str, **labels: Any) -> Row | None:
        """cuDNN's fastest of these algorithms (all, where none is named), TF32 forbidden."""
        wanted = {"method": "cudnn", "products": self.group, **labels}
        return self.fastest(
            lambda r: (
                all(r.get(k) == v for k, v in wanted.items())
                and (not kernels or r["kernel"] in kernels)
            )
        )

    @cached_property
    def frugal(self) -> Row | None:
        """cuDNN's fastest algorithm whose workspace does not grow with the data."""
        return self.cudnn(frugal=True)

    @cached_property
    def any(self) -> Row | None:
        """cuDNN's fastest algorithm of any workspace."""
        return self.cudnn()

    @cached_property
    def tf32(self) -> Row | None:
        """The fastest implicit GEMM with TF32, cuDNN's or PyTorch's choice."""
        return self.fastest(
            lambda r: r["products"] == "tf32" or (r["products"] == "tf32 allowed" and r["frugal"])
        )

    @cached_property
    def library(self) -> Row | None:
        """The fastest of cuDNN and PyTorch in the arrays' own precision that is not wrong."""
        return self.fastest(self._of_library)

    @cached_property
    def library_any(self) -> Row | None:
        """The fastest of them, whatever its error."""
        return self.fastest(self._of_library, wrong_too=True)

    def _of_library(self, row: Row) -> bool:
        return row["method"] != "winolab" and row["products"] == self.group

    @property
    def limit(self) -> float:
        """Φ·SGEMM of the list's kernel."""
        alpha, n, r = kernel(self.kernel_of or "")
        return n * r / alpha * self.sgemm


def wrong(row: Row) -> bool:
    """Whether a row's result was wrong: far off, or not finite."""
    error = row.get("relative_rms_u11", 0.0)
    return not isinstance(error, float) or not error <= WRONG[row["precision"]]


def kernel(name: str) -> tuple[int, int, int]:
    """α, n, r of "Γ8(6,3)" or "Ω8(3,6)"; 1, 1, 1 of anything else, WinRS's Ω2(1,1) too, which
    is direct."""
    if name[:1] not in "ΓΩ" or "(" not in name:
        return 1, 1, 1
    alpha, rest = name[1:].split("(")
    n, r = map(int, rest.rstrip(")").split(","))
    return (int(alpha), n, r) if n * r > 1 else (1, 1, 1)


def tiles(name: str) -> list[Tile]:
    """The tiles of "F(4×4,3×3)", one a dimension, with their states where those are more than
    inputs, "F(8×8,9×9;19×19)"; of "Γ8(6,3)" or "Ω8(3,6)"; none of others."""
    if name.startswith("F("):
        sides = (map(int, side.split("×")) for side in re.split("[,;]", name[2:].rstrip(")")))
        return [Tile(*numbers) for numbers in zip(*sides, strict=True)]
    _, n, r = kernel(name)
    return [Tile(n, r)] if n * r > 1 else []


def paper_alpha(name: str) -> int:
    """The α among the papers' 4, 8 and 16 whose errors a kernel is held to: 8 for 7 to 10."""
    alpha = kernel(name)[0]
    return 4 if alpha < 7 else 8 if alpha < 11 else 16


def where(rows: Iterable[Row]) -> str:
    """The GPUs and commits of rows: "NVIDIA H200 at a8044b8, c8e0883"."""
    commits: dict[str, set[str]] = {}
    for row in rows:
        commits.setdefault(row["device"], set()).add(row["commit"][:7])
    return "; ".join(f"{gpu} at {', '.join(sorted(mine))}" for gpu, mine in commits.items())


def devices(rows: Iterable[Row]) -> list[str]:
    """The GPUs of these rows by name, the one that was measured last first."""
    last: dict[str, str] = {}
    for device, run in dict.fromkeys((row["device"], row.get("run", "")) for row in rows):
        last[device] = max(last.get(device, ""), run)
    return sorted(last, key=lambda name: last[name], reverse=True)


def of_last(rows: Sequence[Row]) -> list[Row]:
    """The rows of the GPU that was measured last; none of none."""
    gpu = next(iter(devices(rows)), None)
    return [row for row in rows if row["device"] == gpu]


def cases(rows: Iterable[Row], device: str | None = None) -> list[Measured]:
    """The rows of ``device``, by default the one that was measured last, by case, in the order of
    experiments.measure.throughput; the last run of a case counts.

    A run's SGEMM can only be slowed down by what else was on the GPU: the fastest run's counts for
    all.
    """
    measured = [row for row in rows if "tflops" in row]
    rows = [row for row in measured if row["device"] == device] if device else of_last(measured)
    sgemm = max((row["sgemm_tflops"] for row in rows if "sgemm_tflops" in row), default=math.nan)
    grouped: dict[tuple, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.get("run", "")):
        mine = grouped.setdefault(tuple(row["case"]), [])
        if mine and mine[0].get("run") != row.get("run"):
            mine.clear()
        mine.append(row)
    return [
        Measured(
            mine[0]["list"],
            parse_square(layer),
            mine[0]["kernel_of"],
            direction,
            group,
            tuple(mine),
            sgemm,
        )
        for (layer, direction, group), mine in sorted(grouped.items(), key=_place)
    ]


@cache
def _places() -> dict[tuple[str, str, str], int]:
    return {case.key: place for place, case in enumerate(throughput_cases.cases())}


def _place(case: tuple[tuple, list[Row]]) -> int:
    """Behind all for a case that no list has."""
    return _places().get(case[0], len(_places()))


def ratio(ours: Row | None, theirs: Row | None) -> float:
    """Speed over speed; NaN where one of them is missing."""
    return ours["tflops"] / theirs["tflops"] if ours and theirs else math.nan


def known(values: Iterable[float]) -> list[float]:
    """Without NaN."""
    return [value for value in values if not math.isnan(value)]


def mean(values: Sequence[float]) -> float:
    """Geometric mean; NaN of none."""
    return geometric_mean(values) if values else math.nan


# What a paper prints of the shapes and kernels that the lists of forward layers are.
MARE = "mean relative error against FP64, data and filters uniform on [1, 2]"
# cuDNN's algorithms of filter gradients by kind, as WinRS's paper groups them.
GRADIENT_KINDS = {
    "gemm": ("ALGO_0", "ALGO_1", "ALGO_3"),
    "fft": ("FFT", "FFT_TILING"),
    "winograd": ("WINOGRAD_NONFUSED",),
}


def authors() -> list[Row]:
    """Layers with the speed and the error of papers' own kernels, where these were measured."""
    return [row for entry in entries("h100_speed") for row in entry["rows"]]


def printed_errors() -> list[Row]:
    """Columns of papers' tables of MARE: kernels, and errors by shape."""
    return [column for table in tables_of(MARE) for column in table["columns"]]


def name_of(text: str) -> str:
    """ "gamma:8:6:3" as Γ8(6,3)."""
    (tile,) = parse_algorithm(text).tiles
    return f"Γ{tile.alpha}({tile.n},{tile.r})"


def of_kernel(found: Iterable[Measured], name: str) -> list[Measured]:
    """Forward FP32 cases of a kernel's list."""
    return [c for c in found if (c.kernel_of, c.direction, c.group) == (name, "forward", "fp32")]


def gradients(rows: Iterable[Row], group: str) -> list[Measured]:
    """The sampled cases of WinRS's grid."""
    return [c for c in cases(rows) if (c.list, c.group) == ("winrs", group)]


def uniform(rows: Iterable[Row]) -> list[Row]:
    """Rows of experiments.measure.errors on U[1, 2]."""
    return [row for row in rows if row.get("data", "u12") == "u12"]


def data_bytes(c: Measured) -> int:
    """Bytes of x, w and y in the arrays' type."""
    return data_size(c.layer.problem) // (1 if c.group == "fp32" else 2)
