"""What algorithms cost for a layer: operations, memory and traffic, counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from winolab.algorithm import Algorithm, direct, parse_algorithm
from winolab.api import picture
from winolab.arguments.arrays import DtypeLike, flag, precision_of_shapes
from winolab.arguments.shapes import nonempty
from winolab.arguments.values import Padding, Sizes, layer_shapes, whole
from winolab.kind import ShowsText
from winolab.problem import Direction, Layout, Problem
from winolab.ref.arithmetic.simulated import Arithmetic, Float
from winolab.ref.cost.blocks import Operations
from winolab.ref.cost.complexity import recursed
from winolab.ref.cost.count import Cost
from winolab.ref.cost.count import cost as counted
from winolab.ref.operands import arithmetic_of
from winolab.ref.tolerance.cheapest import usual

Row = dict[str, Any]
MOST_LEVELS = 64
SHOWN = ("flops", "speedup", "multiplications", "workspace_bytes", "traffic_bytes")


@dataclass(frozen=True, eq=False)
class Costs(ShowsText):
    """What ``winolab.cost`` found, a row an algorithm; ``print`` shows them as a table.

    A row has the multiplications of the products, the additions (Strassen's too), multiplications,
    shifts and FMAs of the transforms, ``flops`` of all, an FMA being two, ``speedup`` (direct's
    FLOP over it), workspace and traffic in bytes of stages that are not fused (WinRS: its buckets),
    and FLOP a byte of these and of fused ones, which read every tensor once; None where there is
    nothing to divide by. ``left_out`` says which of the usual algorithms have none, and why.
    """

    problem: Problem
    direction: str
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Operations of the first row, an FMA being two."""
        return self.rows[0]["flops"]

    @property
    def cheapest(self) -> str:
        """The algorithm of the fewest operations."""
        return min(self.rows, key=lambda row: row["flops"])["algorithm"]

    def to_dict(self) -> dict[str, Any]:
        """The question and the rows, as JSON has them."""
        p = self.problem
        return {
            "direction": self.direction,
            "x": p.x_shape,
            "w": p.w_shape,
            "stride": p.stride,
            "padding": p.padding,
            "dilation": p.dilation,
            "groups": p.groups,
            "rows": list(self.rows),
            "left_out": self.left_out,
        }

    def plot(self, axes: Any = None) -> Any:
        """Bars of the algorithms' operations, on matplotlib's axes or new ones."""
        values = {row["algorithm"]: row["flops"] for row in self.rows}
        return picture.bars(values, "FLOP", f"{self.direction} x{self.problem.x_shape}", axes)

    def __str__(self) -> str:
        heads = ("algorithm", *SHOWN)
        lines = [(row["algorithm"], *(_cell(row[name]) for name in SHOWN)) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        made = []
        for line in (heads, *lines):
            first, *rest = zip(line, widths, strict=True)
            cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
            made.append("  ".join(cells))
        return "\n".join(made + [f"left out: {reason}" for reason in self.left_out])


def _cell(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def cost(
    input_shape: Sequence[int],
    filter_shape: Sequence[int],
    *,
    direction: Direction = "forward",
    algorithm: str | Algorithm | Sequence[str | Algorithm] | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    precision: str | DtypeLike | Arithmetic | None = "fp32",
    levels: int = 0,
    compare: bool = False,
) -> Costs:
    """What algorithms cost for a layer, counted before anything runs.

    ``algorithm`` is one or several, None is direct; ``compare`` adds the usual ones of every kind
    and ranks all, the cheapest first. ``precision``, None is fp32, says how wide a number
    is in memory; ``levels`` of Strassen halve the products' sizes. The other arguments are those
    of :func:`winolab.predict`.

    The result prints, ``to_dict()`` has it as JSON has it, ``plot()`` draws the operations.

    Raises ValueError, in one line, for what is unknown or does not fit, and where products do not
    divide by 2**levels, TypeError for values of other types.

    >>> found = winolab.cost((1, 28, 28, 128), (128, 7, 7, 128), padding=3, compare=True)
    >>> found.cheapest, f"{found.rows[0]['speedup']:.1f}"
    ('winograd:6x6:7x7', '8.2')
    """
    problem = nonempty(
        Problem.of(
            *layer_shapes(input_shape, filter_shape),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
    )
    named = algorithm if isinstance(algorithm, Iterable) else [algorithm]
    named = [algorithm] if isinstance(algorithm, str) else list(named)
    if not named:
        raise ValueError("algorithm is an empty list; expected one or several, or None")
    chosen = [direct() if each is None else parse_algorithm(each) for each in named]
    width = _bytes(arithmetic_of(precision_of_shapes(precision)))
    return of_problem(problem, chosen, direction, width, levels, flag(compare, "compare"))


def of_problem(
    problem: Problem,
    algorithms: Sequence[Algorithm],
    direction: str,
    width: int = 4,
    levels: int = 0,
    compare: bool = False,
) -> Costs:
    """The same, of a problem; ``width``: bytes of a number."""
    if not 0 <= whole(levels, "levels") <= MOST_LEVELS:
        raise ValueError(f"levels = {levels}; expected 0 to {MOST_LEVELS}")
    rows = [row(problem, counted(problem, a, direction), levels, width) for a in algorithms]
    left_out = []
    if compare:
        for each in usual(problem, direction):
            if each in algorithms:
                continue
            try:
                rows.append(row(problem, counted(problem, each, direction), levels, width))
            except ValueError as error:
                left_out.append(str(error))
        rows.sort(key=lambda r: r["flops"])
    return Costs(problem, direction, tuple(rows), tuple(left_out))


def row(problem: Problem, found: Cost, levels: int = 0, width: int = 4) -> Row:
    """The figures of one algorithm, flat; ``width``: bytes of a number.

    Raises ValueError where a product's sizes do not divide by 2^levels.
    """
    work = found.transforms
    inner = Operations(fmas=found.products)
    if levels:
        inner = recursed(problem, found.algorithm, levels, found.direction)
    flops = inner.flops + work.flops
    traffic, compulsory = width * found.traffic, width * found.compulsory
    return {
        "algorithm": str(found.algorithm),
        "direction": found.direction,
        "multiplications": inner.fmas,
        "additions": inner.additions + work.additions,
        "transform_multiplications": work.multiplications,
        "shifts": work.shifts,
        "fmas": work.fmas,
        "flops": flops,
        "speedup": 2 * problem.macs / flops if flops else None,
        "workspace_bytes": width * found.workspace,
        "traffic_bytes": traffic,
        "intensity": flops / traffic if traffic else None,
        "fused_intensity": flops / compulsory if compulsory else None,
    }


def _bytes(run: Arithmetic) -> int:
    """Bytes of a number of the arithmetic's storage format; 8 where it has none."""
    if not isinstance(run, Float):
        return 8
    fmt = run.storage
    bits = fmt.precision + (fmt.emax * 2 + 1).bit_length()
    return 1 << max(0, (bits - 1).bit_length() - 3)
