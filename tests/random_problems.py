"""Random problems over the whole argument space of the three convolutions, against the definition.

    python -m tests.random_problems --seed 42 --count 20000 --workers 2

draws them (support/drawn.py), runs the reference on each, holds the result to exact sums
(support/definition.py) and appends a row to experiments/results/random_problems.jsonl. Exact
results are equal, mpmath's and floating-point ones within the proven bound and rounded once;
arrays lie anywhere in memory, outputs are poisoned, and what surrounds them keeps its bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.support.definition import FLOATS, exact, rounded
from tests.support.drawn import Case, draw, geometry_empty, unfit
from tests.support.elements import DTYPES
from tests.support.limits import limits_of, run_of
from winolab import (
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    prepare_filter,
)
from winolab.arguments.words import type_of
from winolab.cli import process
from winolab.cli.environment import provenance
from winolab.spread import spread

ROWS = Path(__file__).resolve().parents[1] / "experiments/results/random_problems.jsonl"
EACH = 0.045  # seconds of a core
SOME = 25  # problems of a task
LASTING = 100  # problems whose row is kept unasked
POISON = 0xA5
ERRSTATES: list[Any] = [{}, {}, {"all": "raise"}]
CALLS = {
    "forward": conv_forward,
    "backward_data": conv_backward_data,
    "backward_filter": conv_backward_filter,
}


class Wrong(AssertionError):
    """A result that is not what the definition says."""


class Laid:
    """An array somewhere in poisoned memory: any order of axes, gaps, negative strides, bytes."""

    def __init__(self, values: np.ndarray, rng: Random, memory: np.ndarray | None = None) -> None:
        """``memory``: where it lies, if it fits there."""
        axes = rng.sample(range(values.ndim), values.ndim)
        if rng.random() < 0.4:
            axes = list(range(values.ndim))
        plain = rng.random() < 0.3
        steps = [1 if plain else rng.choice([1, 1, 1, 2, 3, -1, -2]) for _ in axes]
        before, behind = ([0 if plain else rng.randint(0, 2) for _ in axes] for _ in range(2))
        dtype = values.dtype
        if dtype.kind in "iuf" and rng.random() < 0.2:
            dtype = dtype.newbyteorder()
        sizes = [
            lo + values.shape[axis] * abs(step) + hi
            for axis, step, lo, hi in zip(axes, steps, before, behind, strict=True)
        ]
        count = math.prod(sizes) + 3
        if memory is None or memory.nbytes < count * dtype.itemsize:
            memory = poisoned(count, dtype)
        self.memory = memory
        whole = memory.view(dtype)[: count - 3].reshape(sizes)
        cut = []
        for axis, step, lo in zip(axes, steps, before, strict=True):
            part = slice(lo, lo + values.shape[axis] * abs(step), abs(step))
            cut.append(part)
        view = whole[tuple(cut)]
        view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
        self.array = view.transpose([axes.index(axis) for axis in range(values.ndim)])
        self.array[...] = values

    def poison(self) -> None:
        """Nothing in it is a result."""
        values = self.array
        values[...] = None if values.dtype == object else poisoned(1, values.dtype)[0]

    def beside(self) -> Any:
        """What lies around the array."""
        kept, values = self.memory.copy(), self.array.copy()
        self.array[...] = values.dtype.type(0) if values.dtype != object else 0
        around = self.memory.tolist() if values.dtype == object else self.memory.tobytes()
        self.memory[...] = kept
        return around


def poisoned(count: int, dtype: np.dtype) -> np.ndarray:
    """Memory of NaN, or of a large pattern where the dtype has none."""
    memory = np.empty(count, dtype)
    if dtype.kind == "O":
        memory[:] = None
    elif dtype.name == "int4":
        memory[:] = 5
    elif dtype.kind in "iu":
        memory.view(np.uint8)[...] = POISON
    else:
        memory[:] = np.nan
    return memory


def axes_of(array: np.ndarray, layout: str) -> np.ndarray:
    """A channels-last array with the axes of the layout."""
    return np.moveaxis(array, -1, 1) if layout == "channels_first" else array


def on_numpy(case: Case) -> np.ndarray:
    """The reference's result, channels last. Raises Wrong where it wrote what is not its own."""
    rng, layout, how = case.rng("memory"), case.arguments["layout"], dict(case.arguments)
    a, b = (Laid(axes_of(v, layout), rng) for v in case.operands)
    x_shape, w_shape, _ = case.geometry.shapes("forward")
    shapes = {"backward_data": [x_shape], "backward_filter": [w_shape]}.get(case.direction, [])
    shapes = [(s[0], s[-1], *s[1:-1]) if layout == "channels_first" else s for s in shapes]
    out = None
    if case.out != "new":
        dtype = DTYPES[case.out_dtype or ("object" if case.unrounded else case.dtypes[0])]
        if whole_numbers(dtype) and not case.unrounded:
            dtype = np.dtype(np.float32)
        values = axes_of(np.zeros(case.geometry.shapes(case.direction)[2], dtype), layout)
        over = case.out == "over" and dtype == a.array.dtype
        out = Laid(values, rng, a.memory if over else None)
        if out.memory is a.memory:
            a.array[...] = axes_of(case.operands[0], layout)
        else:
            out.poison()
    elif case.out_dtype:
        how["out_dtype"] = DTYPES[case.out_dtype]
    kept = [v.array.copy() for v in (a, b)]
    around = [v.beside() for v in (a, b, out) if v]
    second: Any = b.array
    with warnings.catch_warnings(), np.errstate(**rng.choice(ERRSTATES)):
        warnings.simplefilter("error")
        if case.prepared:
            shape = shapes[0] if shapes else a.array.shape
            given: Any = {k: v for k, v in how.items() if k != "deterministic"}
            given["direction"] = case.direction
            second = prepare_filter(second, shape, **given)
        more = None if case.prepared else transposed(case)
        if more is not None:
            shapes, how["output_padding"] = [], more
        target = {} if out is None else {"out": out.array}
        y = CALLS[case.direction](a.array, second, *shapes, **target, **how)
    if out is not None and y is not out.array:
        raise Wrong("the result is not out")
    shared = out is not None and out.memory is a.memory
    for name, laid, before in zip("ab", (a, b), kept, strict=True):
        if not (shared and laid is a) and not same(laid.array, before):
            raise Wrong(f"operand {name} was written to")
    if not shared and around != [v.beside() for v in (a, b, out) if v]:
        raise Wrong("memory beside the arrays was written to")
    return np.moveaxis(y, 1, -1) if layout == "channels_first" else y


def transposed(case: Case) -> Any:
    """The output_padding with which backward data needs no input_shape, of some calls; or None."""
    g, rng = case.geometry, case.rng("transposed")
    if case.direction != "backward_data" or geometry_empty(g) or rng.random() < 0.4:
        return None
    if case.refusal or isinstance(case.arguments["padding"], str):
        return None
    spans = zip(g.input, g.output, g.filter, g.stride, g.padding, g.dilation, strict=True)
    more = [i - ((o - 1) * s - lo - hi + d * (r - 1) + 1) for i, o, r, s, (lo, hi), d in spans]
    if not all(0 <= m < max(s, d) for m, s, d in zip(more, g.stride, g.dilation, strict=True)):
        return None
    return more[0] if len(set(more)) == 1 and rng.random() < 0.5 else more


def whole_numbers(dtype: np.dtype) -> bool:
    """Whether it holds integers alone."""
    return dtype.kind in "iu" or dtype.name == "int4"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same elements, NaN too."""
    if a.dtype == object:
        return a.tolist() == b.tolist()
    return a.tobytes() == b.astype(a.dtype).tobytes()


def wanted(case: Case) -> np.dtype:
    """The dtype of the result."""
    given = case.dtypes[0]
    if case.out_dtype:
        return DTYPES[case.out_dtype]
    if case.unrounded:
        return DTYPES["object"]
    if whole_numbers(DTYPES[given]):
        return np.dtype(np.float32) if case.out != "new" else run_of(case).dtype  # pyright: ignore
    return DTYPES[given]


def check(case: Case, y: np.ndarray) -> int:
    """How many outputs have no bound. Raises Wrong for a result that is none of the case."""
    if y.shape != case.expected.shape:
        raise Wrong(f"shape {y.shape}, expected {case.expected.shape}")
    dtype = wanted(case)
    if y.dtype.newbyteorder("=") != dtype:
        raise Wrong(f"dtype {y.dtype}, expected {dtype}")
    limits: Any = limits_of(case)
    free = 0
    judged = np.ones(y.shape, bool)
    if case.special:
        judged = sheltered(case, y)
    name = case.out_dtype if case.out_dtype in DTYPES else dtype.name
    fmt = FLOATS.get("longdouble" if dtype == DTYPES["longdouble"] else str(name))
    for at in np.ndindex(y.shape):
        if not judged[at]:
            continue
        q, limit, got = case.expected[at], limits[at], y[at]
        if limit == math.inf:
            free += 1
            continue
        margin = Fraction(limit)
        low, high = q - margin, q + margin
        if fmt:
            low, high = rounded(low, *fmt), rounded(high, *fmt)
            if np.isnan(got):
                raise Wrong(f"NaN at {at}, expected {float(q):.6g}")
            value = exact(got) if np.isfinite(got) else float(got)
        else:
            if case.precision == "exact" and dtype.kind == "O" and type(got) not in (int, Fraction):
                raise Wrong(f"{got!r} at {at} is {type_of(got)}")
            value = exact(got)
        if not low <= value <= high:
            raise Wrong(f"{got!r} at {at}, expected {float(q):.17g} within {float(limit):.3g}")
    return free


def sheltered(case: Case, y: np.ndarray) -> np.ndarray:
    """Outputs that no NaN or infinity may reach; of direct sums all others are not finite.

    What the second operand holds of them meets padding too, so that it may reach any output.
    """
    direct = case.algorithm in (None, "direct")
    if direct and np.isfinite(y[case.touched].astype(np.float64)).any():
        raise Wrong("a finite sum of what is not finite")
    clean = np.zeros(y.shape, bool)
    if unfit(case.operands[1]).any():
        return clean
    if direct:
        return ~case.touched
    if case.direction != "backward_filter":
        clean[~unfit(case.operands[0]).reshape(len(y), -1).any(axis=1)] = True
    return clean


def attempt(seed: str, number: int) -> tuple[int, str | None, int]:
    """(number, what is wrong with it or None, outputs without a bound)."""
    try:
        case = draw(seed, number)
        if refused(case):
            return number, None, 0
        return number, None, check(case, on_numpy(case))
    except Exception:
        return number, traceback.format_exc(), 0


def refused(case: Case) -> bool:
    """Whether the call has to be refused, and is: by a sentence, of ValueError or TypeError.

    For arguments that cannot be served; NaN and infinity in exact arithmetic; results that the
    integers asked for do not hold.
    """
    dtype = DTYPES[case.out_dtype] if case.out_dtype else DTYPES["object"]
    due = case.refusal or (case.special and case.precision == "exact")
    if not due and dtype.kind in "iu" and case.precision == "exact":
        info = np.iinfo(dtype)
        values = case.expected.reshape(-1)
        due = not all(v.denominator == 1 and info.min <= v <= info.max for v in values)
    if not due:
        return False
    try:
        on_numpy(case)
    except (ValueError, TypeError) as error:
        if isinstance(error.__cause__, Exception) or "\n" in str(error) or not str(error):
            raise
        return True
    raise Wrong("a call was served that cannot be")


def run(
    seed: str, count: int, first: int = 0, workers: int = 1, dask: str | None = None
) -> Iterator[tuple]:
    """``attempt`` of each problem, in order, or as processes or Dask's workers finish some."""
    numbers = range(first, first + count)
    if workers <= 1 and not dask:
        yield from map(partial(attempt, seed), numbers)
        return
    some = [numbers[i : i + SOME] for i in range(0, count, SOME)]
    for _, found in spread(partial(_attempts, seed), some, workers, dask):
        yield from found


def _attempts(seed: str, numbers: range) -> list[tuple]:
    return [attempt(seed, number) for number in numbers]


def generator() -> str:
    """What draws: rows of another digest are of other problems."""
    sources = (Path(__file__).with_name("support") / f"{name}.py" for name in ("drawn", "elements"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def versions() -> dict[str, str | None]:
    """Where it ran, with what."""
    return {**provenance(), **{name: version(name) for name in ("ml_dtypes", "mpmath", "scipy")}}


def by(dask: str | None, workers: int) -> str:
    """Whose processes ran the problems: Dask's, of this machine or of others, or a pool's."""
    if dask:
        return "Dask, local" if dask == "local" else "Dask"
    return f"{workers} processes" if workers > 1 else "one process"


def main(arguments: list[str] | None = None) -> int:
    """The command. 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_problems", description=__doc__)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--dask", help='a scheduler of Dask, or "local"', metavar="ADDRESS")
    parser.add_argument(
        "--rows",
        type=Path,
        help=f"a file that receives a row, by default {ROWS.name} of 100 problems or more",
    )
    parser.add_argument("--show", action="store_true", help="print the problems, run nothing")
    given = parser.parse_args(arguments)
    if given.count >= LASTING and not given.rows:
        given.rows = ROWS
    if given.show:
        for number in range(given.first, given.first + given.count):
            print(draw(given.seed, number))
        return 0
    start, wrong, free = time.perf_counter(), 0, 0
    process.announce("problems", given.count, given.count * EACH / given.workers, given.workers)
    made = run(given.seed, given.count, given.first, given.workers, given.dask)
    done = process.Lines()
    task = done.add_task("problems", given.count)
    for number, error, unbounded in made:
        done.advance(task)
        free += unbounded
        if error:
            wrong += 1
            print(f"{error.rstrip()}\n  {draw(given.seed, number)}")
            again = f"--seed {given.seed} --first {number} --count 1"
            print(f"  python -m tests.random_problems {again}\n", flush=True)
    seconds = time.perf_counter() - start
    counts = {"seed": given.seed, "first": given.first, "count": given.count, "wrong": wrong,
              "by": by(given.dask, given.workers)}  # fmt: skip
    more = {"unbounded": free, "seconds": round(seconds, 1), "drawn": generator()}
    if given.rows:
        with given.rows.open("a") as file:
            file.write(json.dumps({**counts, **more, **versions()}) + "\n")
    print(f"{given.count} problems of seed {given.seed}, {wrong} wrong, {seconds:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
