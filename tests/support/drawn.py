"""What a random problem is: shapes, data, algorithm, precision and every other argument of a call.

All of it follows from a seed and a number, whatever it runs on; tests/random_problems.py runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from tests.support.definition import DIRECTIONS, Geometry, convolved
from tests.support.elements import FILLS, FLOATING, INTEGERS, OBJECTS, array_of

PRODUCTS, ELEMENTS = 2500, 700  # at most: of the definition, of an array
RANGES = ("fp64", "fp32", "tf32", "fp32_ffma", "exact", "mp")  # precisions that hold the data
UNIT = ("gamma", "winograd", "fft")  # algorithms for strides and dilation of 1
# Widths of filters that WinRS's kernels on Tensor Cores compute: multiples of 3, 5, 7, 9, or 1.
TENSOR_WIDTHS = (1, 3, 5, 6, 7, 9)

SMALL = ("float8_e5m2", "int4")  # without a precision of their own
LISTED = ["0", "1", "-1", "2", "-2", "1/2", "-1/2", "3", "-3/4", "4"]


@dataclass(frozen=True)
class Case:
    """One problem. ``arguments`` are those of conv_* behind the shape; ``out``: "new", "given" or
    "over" the first operand; ``special``: NaN or infinity is among the data; ``refusal``: some
    argument cannot be served."""

    seed: str
    number: int
    direction: str
    geometry: Geometry
    dtypes: tuple[str, str]
    fills: tuple[str, str]
    out: str
    out_dtype: str | None
    prepared: bool
    special: bool
    refusal: bool
    arguments: dict[str, Any] = field(hash=False)

    @property
    def algorithm(self) -> str | None:
        return self.arguments["algorithm"]

    @property
    def precision(self) -> str | None:
        return self.arguments["precision"]

    @property
    def unrounded(self) -> bool:
        """Whether results are objects: exact, or of mpmath."""
        return str(self.precision).startswith(("exact", "mp:"))

    def rng(self, of: str) -> Random:
        """What draws ``of``, apart from everything else."""
        return Random(f"{self.seed} {self.number} {of}")

    @cached_property
    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """The two arrays, channels last and contiguous."""
        shapes = self.geometry.shapes(self.direction)
        a, b = (
            array_of(self.rng(f"data {k}"), shapes[k], self.dtypes[k], self.fills[k])
            for k in range(2)
        )
        if self.special:
            rng = self.rng("special")
            one = rng.choice([array for array in (a, b) if array.size])
            for _ in range(rng.randint(1, 2)):
                one.reshape(-1)[rng.randrange(one.size)] = rng.choice([np.nan, np.inf, -np.inf])
        return a, b

    @cached_property
    def finite(self) -> tuple[np.ndarray, np.ndarray]:
        """The same with 0 in place of NaN and infinity."""
        return tuple(np.where(unfit(v), v.dtype.type(0), v) if self.special else v
                     for v in self.operands)  # fmt: skip  # pyright: ignore[reportReturnType]

    @cached_property
    def expected(self) -> np.ndarray:
        """Exact results of the finite data, channels last."""
        return convolved(self.direction, self.geometry, *self.finite)

    @cached_property
    def touched(self) -> np.ndarray:
        """Where a NaN or an infinity enters the sum."""
        marks = [unfit(v).astype(int) for v in self.operands]
        ones = [np.ones(v.shape, int) for v in self.operands]
        counts = convolved(self.direction, self.geometry, marks[0], ones[1])
        return (counts + convolved(self.direction, self.geometry, ones[0], marks[1])) > 0


def unfit(array: np.ndarray) -> np.ndarray:
    """Elements that are not finite."""
    return ~np.isfinite(array.astype(np.float64))


def draw(seed: str, number: int) -> Case:
    """Problem ``number`` of ``seed``."""
    rng = Random(f"{seed} {number}")
    direction = rng.choice(DIRECTIONS)
    kinds = ["direct", "direct", "winograd", "winograd", "dwm", "dwm", "fft"]
    kinds += ["omega", "winrs"] if direction == "backward_filter" else ["gamma", "gamma"]
    kind = rng.choice(kinds)
    precision, dtypes = _precision(rng, kind)
    tensor = any(f in str(precision or dtypes[0]) for f in ("16", "fp8", "split"))
    wide = str(precision or dtypes[0]).partition(":")[0] in (*RANGES, "float32", "float64")
    while True:
        algorithm, taps, outputs = _algorithm(rng, kind, direction, wide)
        geometry, padding = _geometry(rng, kind, taps, outputs, tensor)
        sizes = map(math.prod, geometry.shapes(direction))
        if geometry.products <= PRODUCTS and max(sizes) <= ELEMENTS:
            break
    if kind == "gamma" and rng.random() < 0.15 and _in_order(precision, dtypes):
        algorithm = f"{algorithm};variant=two_level:{rng.randint(1, 9)}"
    arguments = _spelled(rng, geometry, padding) | {"algorithm": algorithm, "precision": precision}
    arguments["layout"] = rng.choice(["channels_last", "channels_last", "channels_first"])
    arguments["deterministic"] = rng.random() < 0.8
    arguments["workspace_limit"] = rng.choice([None, None, 0, 1 << 20])
    split = precision == "fp32_split" and set(dtypes) == {"float32"}
    if split and direction != "backward_filter":
        arguments["scale"] = rng.choice([None, "3:-2", "peaks:4:4", "peaks:5", (2, 1), 0])
    least = -1 if "error=" in str(algorithm) else None  # of numbers too small, none keeps to it
    fills = (rng.choice(FILLS[:least]), rng.choice(FILLS[:least]))
    floats = dtypes[0] in FLOATING and dtypes[1] in FLOATING
    special = floats and not geometry_empty(geometry) and rng.random() < 0.06
    out, out_dtype = _exit(rng, precision, dtypes)
    prepared = direction != "backward_filter" and rng.random() < 0.15
    if refusal := rng.random() < 0.03:
        arguments |= rng.choice([{"stride": 2}] * 4 if kind in UNIT else _unserved(geometry))
    return Case(
        seed, number, direction, geometry, dtypes, fills, out, out_dtype, prepared, special,
        refusal, arguments,
    )  # fmt: skip


def _unserved(g: Geometry) -> list[dict[str, Any]]:
    """Arguments that no call takes."""
    ndim = len(g.filter)
    return [
        {"precision": "fp31"}, {"layout": "CHWN"}, {"algorithm": "gamma:8:5:3"}, {"groups": 0},
        {"algorithm": f"winograd:{'2x' * ndim}2:{'2x' * ndim}2"}, {"stride": 0}, {"padding": -1},
        {"algorithm": "winogard"}, {"dilation": [1] * (ndim + 1)}, {"padding": "sane"},
        {"deterministic": "no"}, {"workspace_limit": -1}, {"on_range": "ignore"}, {"stride": 1.0},
    ]  # fmt: skip


def geometry_empty(g: Geometry) -> bool:
    return 0 in (*g.x_shape, *g.w_shape, *g.y_shape)


def _precision(rng: Random, kind: str) -> tuple[str | None, tuple[str, str]]:
    """A precision, None for the arrays' own, and dtypes that it takes."""
    way = rng.choice(["own", "own", "named", "mixed", "mixed", "exact", "exact", "exact", "mp"])
    if kind == "fft" and way in ("exact", "mp"):
        way = "mixed"
    if way == "own":
        dtype = rng.choice(FLOATING)
        return None, (dtype, dtype)
    if way == "exact":
        kinds = [*FLOATING, *INTEGERS, *OBJECTS, *OBJECTS, "longdouble", *SMALL]
        return way, (rng.choice(kinds), rng.choice(kinds))
    if way == "mp":
        kinds = [*FLOATING, *INTEGERS[:5], *OBJECTS, "longdouble", *SMALL]
        return f"mp:{rng.choice([24, 53, 64, 100, 200])}", (rng.choice(kinds), rng.choice(kinds))
    kinds = [*FLOATING, *FLOATING, *INTEGERS[:4], *SMALL]
    dtypes = (rng.choice(kinds), rng.choice(kinds))
    if way == "named":
        names = ["fp64", "fp32", "tf32", "bf16", "fp16", "fp32_split", "fp32_split", "fp32_ffma"]
        name = rng.choice(names)
        split = name == "fp32_split" and rng.random() < 0.5
        return name, ("float32", "float32") if split else dtypes
    return _mixed(rng, kind), dtypes


def _mixed(rng: Random, kind: str) -> str:
    """A simulated arithmetic: another format, order of sums, or rounding, somewhere."""
    base = rng.choice(["fp32", "fp32", "tf32", "bf16", "fp16", "fp32_split"])
    changes = []
    wide = kind == "fft"  # whose transforms are FP32's
    if rng.random() < 0.3:
        storage = ["fp16", "bf16", "fp32", "tf32", "fp8_e5m2", "fp8_e4m3"]
        changes.append(f"storage={rng.choice(storage)}")
    if rng.random() < 0.25:
        changes.append(f"product={rng.choice(['fp16', 'bf16', 'tf32', 'fp8_e5m2', 'fp8_e4m3'])}")
    if base != "fp32_split" and not wide and rng.random() < 0.2:
        changes.append(f"transform={rng.choice(['fp16', 'bf16', 'fp64', 'tf32'])}")
    if rng.random() < 0.2:
        changes.append("fused=no")
    if rng.random() < 0.15:
        changes.append("accumulate=fp64,accumulation=unspecified")
    else:
        if base != "fp32_split" and rng.random() < 0.15:
            changes.append(f"accumulate={rng.choice(['fp16', 'bf16', 'tf32'])}")
        changes.append(f"accumulation={_order(rng)}")
    if base == "fp32_split":
        changes.append(f"parts={rng.choice([2, 2, 3])}")
        changes.append(rng.choice(["ahead=1", "ahead=0", "filters=fp64", "scale=none"]))
    elif rng.random() < 0.15:
        changes.append(f"filters={rng.choice(['fp64', 'fp16', 'bf16'])}")
    return ",".join([base, *changes])


def _order(rng: Random) -> str:
    kind = rng.choice(
        ["sequential", "pairwise", "kahan", "two_level", "tensor_core", "tensor_core"]
    )
    if kind == "two_level":
        return f"{kind}:{rng.randint(1, 9)}"
    if kind != "tensor_core":
        return kind
    block = rng.choice([1, 2, 4, 8, 16])
    text = f"{kind}:{block}:{rng.randint(0, 3)}:{rng.choice(['nearest', 'truncate'])}"
    if rng.random() < 0.4:
        intervals = [block * rng.randint(1, 4) for _ in range(rng.randint(1, 2))]
        text += ":" + "+".join(map(str, intervals))
    return text


def _in_order(precision: str | None, dtypes: tuple[str, str]) -> bool:
    """Whether sums are in one level and in order, so that two levels may be asked for."""
    if precision is None:
        return dtypes[0] in ("float32", "float64")
    return precision in ("fp32", "fp64", "exact", "mp:64", "fp32_ffma")


def _algorithm(
    rng: Random, kind: str, direction: str, wide: bool
) -> tuple[str | None, list[int], list[tuple[int, int]]]:
    """Its text, the filter's taps, and the least and the multiple of outputs a dimension.

    ``wide``: the precision's range leaves every cut of a dwm without overflow.
    """
    ndim = rng.choice([1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 6])
    longest = [0, 9, 5, 3, 2, 2, 2][ndim]
    taps = [rng.randint(1, longest) for _ in range(ndim)]
    free = [(1, 1)] * ndim
    options = _points(rng)
    if kind == "direct":
        return rng.choice([None, "direct"]), taps, free
    if kind == "gamma":
        alpha = rng.choice([2, 3, 4, 6, 8, 8, 10, 16] if ndim < 3 else [2, 4, 8])
        r = rng.randint(1, min(alpha, 9))
        taps[-1] = r + rng.choice([0, 0, 0, 1, r])
        options = _points(rng, alpha)
        return f"gamma:{alpha}:{alpha - r + 1}:{r}{options}", taps, free
    if kind == "winograd":
        most = [0, 6, 4, 3, 2, 2, 1][ndim]
        n = [rng.randint(1, most) for _ in taps]
        r = [rng.randint(1, min(t, most)) for t in taps]
        if direction == "backward_filter":
            r = [rng.randint(1, most) for _ in taps]  # pieces of dy
        options = _points(rng, n[0] + r[0] - 1)
        return f"winograd:{'x'.join(map(str, n))}:{'x'.join(map(str, r))}{options}", taps, free
    if kind == "fft":
        sizes = [max(taps) + rng.randint(0, 4)] if rng.random() < 0.3 else []
        power = [1 << rng.randint((t - 1).bit_length(), 4 if ndim < 3 else 2) for t in taps]
        sizes = sizes or (power if rng.random() < 0.7 else [t + rng.randint(0, 3) for t in taps])
        return f"fft:{'x'.join(map(str, sizes))}:{rng.choice([3, 4])}", taps, free
    if kind == "dwm":
        if wide and rng.random() < 0.2:
            return f"dwm;error={rng.choice(['1e-1', '1', '10'])}", taps, free
        most = 4 if ndim < 3 else 2
        count = rng.choice([1, ndim])
        piece, tile = ([rng.randint(1, most) for _ in range(count)] for _ in range(2))
        text = f"dwm:{'x'.join(map(str, piece))}:{'x'.join(map(str, tile))}{options}"
        return text + rng.choice(["", ";variant=balanced"]), taps, free
    segments = rng.choice(["", "", f";segments={rng.randint(1, 5)}"])
    if kind == "winrs":
        device = rng.choice(["", "", ";device=rtx4090"])
        return f"winrs{options}{segments}{device}", taps, free
    n, r = rng.choice([(2, 3), (3, 2), (2, 7), (3, 6), (4, 5), (5, 4), (7, 2), (9, 8)])
    taps[-1] = n
    return f"omega:{n + r - 1}:{n}:{r}{options}{segments}", taps, [*free[:-1], (r, 1)]


def _points(rng: Random, alpha: int = 0) -> str:
    """Points and scaling; of ``alpha`` the points may be a list."""
    points = rng.choice(["", "", "", "@paper", "@wincnn", "@best"])
    if 1 < alpha <= 8 and rng.random() < 0.15:
        points = "@" + ",".join(["inf", *rng.sample(LISTED, alpha - 1)])
    return points + rng.choice(["", "", "", "", ";scaling=l1", ";scaling=power_of_two"])


def _geometry(
    rng: Random, kind: str, taps: list[int], outputs: list[tuple[int, int]], tensor: bool
) -> tuple[Geometry, str | None]:
    """A layer, and how its padding is called where it has a name."""
    ndim = len(taps)
    free = kind in ("direct", "dwm", "winrs") and rng.random() < 0.6
    stride, dilation = (
        tuple(rng.choice([1, 1, 2, 2, 3, 5]) if free else 1 for _ in taps) for _ in range(2)
    )
    if kind == "winrs":
        stride, dilation = (*stride[:-1], 1), (*dilation[:-1], dilation[-1])
        if tensor:
            taps = [*taps[:-1], rng.choice(TENSOR_WIDTHS[: 6 if ndim < 3 else 2])]
    spans = [d * (r - 1) for d, r in zip(dilation, taps, strict=True)]
    name = rng.choice([None] * 4 + ["same", "same_upper", "same_lower", "valid"])
    more = [0, 20, 7, 4, 2, 1, 1][ndim]
    if name and name.startswith("same"):
        sizes = [least + rng.randint(0, more) for least, _ in outputs]
        padding = [_same(*of, name) for of in zip(sizes, spans, stride, strict=True)]
    else:
        padding = [(0, 0)] * ndim if name else _pairs(rng, ndim)
        sizes = []
        for d, span in enumerate(spans):
            least = max(1, span + 1 - sum(padding[d]) + (outputs[d][0] - 1) * stride[d])
            sizes.append(least + rng.randint(0, more))
    groups = rng.choice([1, 1, 1, 1, 2, 3, 4])
    per, outs = rng.choice([1, 1, 2, 3, 5]), rng.choice([1, 1, 2, 3])
    batch = rng.choice([1, 1, 2, 3])
    if rng.random() < 0.06:
        empty = rng.randrange(4)
        batch, per, outs = (0 if empty == k else v for k, v in enumerate((batch, per, outs)))
        if empty == 3:
            sizes[rng.randrange(ndim)] = 0
    geometry = Geometry(
        batch, per * groups, outs * groups, tuple(sizes), tuple(taps), stride, tuple(padding),
        dilation, groups,
    )  # fmt: skip
    return geometry, name


def _pairs(rng: Random, ndim: int) -> list[tuple[int, int]]:
    """Padding along each dimension, often the same everywhere."""
    if rng.random() < 0.3:
        both = rng.randint(0, 2)
        return [(both, both)] * ndim
    most = 4 if ndim < 3 else 1
    return [(rng.randint(0, most), rng.randint(0, most)) for _ in range(ndim)]


def _same(size: int, span: int, stride: int, name: str) -> tuple[int, int]:
    """What brings ⌈size / stride⌉ outputs, the odd element behind, or before."""
    total = max(0, (-(-size // stride) - 1) * stride + span + 1 - size)
    less = total // 2
    return (total - less, less) if name == "same_lower" else (less, total - less)


def _spelled(rng: Random, g: Geometry, padding: str | None) -> dict[str, Any]:
    """Stride, padding, dilation and groups in one of the forms that mean them."""

    def sizes(values: tuple[int, ...]) -> Any:
        forms = [values, list(values), np.array(values), tuple(map(np.int32, values))]
        if len(set(values)) == 1:
            forms += [values[0], np.int64(values[0])] * 2
        return rng.choice(forms)

    pads: list[Any] = [g.padding, [list(pair) for pair in g.padding], np.array(g.padding)]
    if all(low == high for low, high in g.padding):
        pads.append(tuple(low for low, _ in g.padding))
        if len(set(g.padding)) == 1:
            pads += [g.padding[0][0]] * 2
    named = padding or rng.choice(pads)
    return {
        "stride": sizes(g.stride), "padding": named, "dilation": sizes(g.dilation),
        "groups": rng.choice([g.groups, np.uint8(g.groups)]),
    }  # fmt: skip


def _exit(rng: Random, precision: str | None, dtypes: tuple[str, str]) -> tuple[str, str | None]:
    """Where the result goes, and a dtype asked for: None is what follows from the operands."""
    kinds: list[str] = list(FLOATING)
    if precision == "exact":
        kinds += ["object", "longdouble", "float8_e5m2", *INTEGERS]
    elif str(precision).startswith("mp:"):
        kinds += ["object", "longdouble", "float8_e5m2"]
    wanted = rng.choice([None, None, rng.choice(kinds)])
    return rng.choice(["new", "new", "given", "over"]), wanted
