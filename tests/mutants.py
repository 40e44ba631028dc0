"""Mutants of the reference and of the kernels' planning, and the tests that should kill them.

    python -m tests.mutants [--only TEXT] [--workers N] [--all]

Each is a text of a file with another in its place. In a copy of the checkout the tests run that are
named behind it, until one fails; a mutant that none kills survives, and 1 is returned. One whose
text is not in its file any more is stale: say what took its place, or delete it. ``--all`` runs
all of tests/ref and tests/gpu on survivors.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 600  # seconds for the tests of one mutant: what loops for ever is killed
PYTEST = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header")
EVERYTHING = ("tests/ref", "tests/gpu", "tests/conv", "tests/test_random_problems.py")


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new`` in ``file``, and one of ``tests`` should fail."""

    file: str
    old: str
    new: str
    tests: str  # separated by spaces

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()!r} -> {self.new.strip()!r}"


def copied(folder: Path) -> None:
    """The checkout's files, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def tried(folder: Path, mutant: Mutant, tests: tuple[str, ...]) -> str:
    """ "killed", "survives" or "stale"; the copy in ``folder`` is as before."""
    path = folder / mutant.file
    text = path.read_text() if path.is_file() else ""
    if text.count(mutant.old) < 1:
        return "stale"
    path.write_text(text.replace(mutant.old, mutant.new, 1))
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        done = subprocess.run(
            [sys.executable, *PYTEST, *tests],
            cwd=folder, env=environment, capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        path.write_text(text)
    if done.returncode not in (0, 1, 2):  # 2: it cannot even be imported
        raise RuntimeError(f"{mutant}: {' '.join(tests)}\n{done.stdout.decode()[-2000:]}")
    return "killed" if done.returncode else "survives"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose description has this text")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="everything, on survivors")
    given = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if given.only in str(m)]
    with tempfile.TemporaryDirectory() as made:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.workers):
            folders.put(Path(made) / str(number))
            copied(Path(made) / str(number))

        def outcome(mutant: Mutant) -> str:
            folder = folders.get()
            try:
                found = tried(folder, mutant, tuple(mutant.tests.split()))
                if given.all and found == "survives":
                    found = tried(folder, mutant, EVERYTHING)
            finally:
                folders.put(folder)
            print(f"{found:9}{mutant}", flush=True)
            return found

        with ThreadPoolExecutor(given.workers) as pool:
            outcomes = list(pool.map(outcome, chosen))
    counts = {word: outcomes.count(word) for word in ("killed", "survives", "stale")}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(counts["survives"] + counts["stale"] > 0)


def _of(file: str, others: str, *pairs: tuple[str, str]) -> list[Mutant]:
    """Mutants of one file, whose tests are those that mirror it, if any, and ``others``."""
    path = Path(file)
    mirror = Path("tests", *path.parts[1:-1], f"test_{path.name}")
    tests = " ".join([*others.split(), *([str(mirror)] if (ROOT / mirror).is_file() else [])])
    return [Mutant(file, old, new, tests) for old, new in pairs]


GAMMA_FFMA, GAMMA_WGMMA = (f"tests/gpu/families/{name}" for name in ("gamma_ffma", "gamma_wgmma"))
REACHED = "tests/ref/error/test_bounds_reached.py"
# Those of issue 42, then others; those of one file together.
MUTANTS = [
    *_of(
        "winolab/ref/error/roundings.py",
        f"{REACHED} tests/ref/error/test_bounds.py",
        ("(c if whole else c + 1)", "c"),
        ("((c + 1) * fine + 1) * eta", "(c * fine + 1) * eta"),
        ("max(lengths) * (math.log1p(aligned)", "min(lengths) * (math.log1p(aligned)"),
        ("growth += (len(lengths) - 1) * math.log1p(u)", "growth += 0"),
        ('"pairwise": 1 + (k - 1).bit_length()', '"pairwise": (k - 1).bit_length()'),
        ("-(-k // max(1, order.block)) - 1", "-(-k // max(1, order.block)) - 2"),
        ("product = 0.0 if run.fused else u", "product = 0.0"),
    ),
    *_of(
        "winolab/ref/kinds/fft.py",
        REACHED,
        ("2 + 2 * math.sqrt(2)", "2.0"),
        ("1 + crossed * math.expm1(growth)", "1 + math.expm1(growth)"),
        ("math.exp(storage) * (1 + e) ** 2", "(1 + e) ** 2"),
    ),
    *_of(
        "winolab/ref/error/bounds.py",
        f"{REACHED} tests/ref/error/test_proven.py",
        ("growth += added * Units.of(run).transform.growth", "growth += 0"),
        ("4 * cost.units.transform.absolute if any(scale)", "0.0 if any(scale)"),
        ("math.expm1(growth) + oracle * FP64.unit_roundoff", "math.expm1(growth)"),
        ("costing.pieces * v for v in (floor, oracle, under)", "v for v in (floor, oracle, under)"),
        ("(0.0 if stored else cost.storage)", "0.0"),
    ),
    *_of("winolab/lines.py", "", ("os.fsync(self._file.fileno())", "pass")),
    *_of(
        "winolab/gpu/runtime/cache/__init__.py",
        "tests/gpu/runtime/cache/test_cache.py",
        ('f"{arch} {major}', 'f"{major}'),
    ),
    *_of(
        "winolab/gpu/runtime/cache/plans.py",
        "",
        ("{sources()} {what}", "{what}"),
        ("if hashed == digest(content).encode():", "if hashed:"),
        ('f"{described(request)} {apart}"', "described(request)"),
        ("own(path.parent) and own(path)", "own(path)"),
        ("return library_there() == library", "return True"),
    ),
    *_of("winolab/arguments/arrays.py", "", ("65520.0", "65536.0")),
    *_of(
        "winolab/ref/arithmetic/accumulate.py",
        "",
        ("np.maximum(size.max(axis=0), np.abs(acc))", "size.max(axis=0)"),
        ("2.0 ** (fmt.emax + 1)", "2.0 ** (fmt.emax + 2)"),
        ("tiny = np.abs(self.sum) < self.normal", "tiny = np.abs(self.sum) < 0"),
        ("self.shift = 11 + fmt.precision", "self.shift = 12 + fmt.precision"),
    ),
    *_of(
        "winolab/ref/arithmetic/split.py",
        "tests/ref/arithmetic/test_simulated.py tests/ref/error/test_bounds.py",
        ("if ahead >= len(inside):", "if ahead > len(inside):"),
        ("(products(parts) - parts) * fmt", "(products(parts) - parts - 1) * fmt"),
        ("while Fraction(2) ** power < q:", "while Fraction(2) ** power <= q:"),
    ),
    *_of(
        "winolab/ref/arithmetic/formats.py",
        "tests/ref/arithmetic/test_simulated.py",
        ("(np.abs(y) > self.max) & np.isfinite(x)", "(np.abs(y) >= self.max) & np.isfinite(x)"),
        ("max(exponent, self.emin) - self.precision + 1", "exponent - self.precision + 1"),
    ),
    *_of(
        "winolab/ref/error/predict.py",
        "tests/ref/error/test_forms.py",
        ("AWAY**2 * (tile.power - tile.mean**2)", "AWAY**2 * tile.power"),
        ("relative**2 * (self.a.roundoff + self.b.roundoff)", "relative**2 * self.a.roundoff"),
        ("done if e < d else current", "waiting if e < d else current"),
        ("total[..., 1, 1] = 0", "total[..., 1, 1] *= 1"),
        ("9 * CONSTANT**2 * dropped_square", "0 * CONSTANT**2 * dropped_square"),
    ),
    *_of(
        "winolab/ref/error/ranges.py",
        "tests/ref/algorithms/dwm/test_choose.py",
        (
            "np.minimum((self.steps * eta * eta / 12)",
            "np.minimum((0 * self.steps * eta * eta / 12)",
        ),
        ("np.where(self.bare, 0.0, rounded)", "rounded"),
        ("finite = finite + _through(np.log1p(-chance)", "_ = finite + _through(np.log1p(-chance)"),
        ("both**2 * sums_underflow", "0 * sums_underflow"),
    ),
    *_of(
        "winolab/ref/error/edges.py",
        "tests/ref/error/test_edges.py",
        ("(enters[row] <= begin[:, None]) & (begin", "(begin"),
        ("(first - size) // segment", "(first - size + 1) // segment"),
    ),
    *_of(
        "winolab/ref/error/partial_sums.py",
        "tests/ref/error/test_predict.py",
        ("chunks * (chunks + 1) * (2 * chunks + 1) / 6", "chunks * (chunks + 1) / 2"),
        ("np.minimum(np.maximum(q, finest), spacing)", "np.minimum(q, spacing)"),
    ),
    *_of(
        "winolab/ref/algorithms/dwm/choose.py",
        "tests/ref/algorithms/dwm/test_decompose.py",
        (
            "if not kept or choice.gain < kept[-1].gain",
            "if not kept or choice.gain <= kept[-1].gain",
        ),
        ("0.0 if of_filter else sum(list(accumulate(weights))[1:]) / share", "0.0"),
        ("max(0, first - RIPPLES)", "first"),
        ("-(-len(c.outputs) // n) for c, n in pairs", "len(c.outputs) // n for c, n in pairs"),
    ),
    *_of(
        "winolab/ref/algorithms/winrs/gradient.py",
        "tests/ref/algorithms/winrs/test_plan.py",
        ("lost = run.sub(run.sub(new, total), term)", "lost = run.sub(new, new)"),
        ("end = min(reads, -((first - size) // step))", "end = reads"),
    ),
    *_of(
        "winolab/ref/algorithms/winrs/plan.py",
        "tests/ref/algorithms/winrs/test_model.py",
        ("min(2 ** math.ceil(math.log2(z)), 8)", "min(2 ** math.ceil(math.log2(z)), 16)"),
        ("z < 2 and b2 >=", "z < 2 or b2 >="),
        (
            "count = min(count - 1, max(1, count * workspace_limit",
            "count = max(1, min(count - 1, 1 *",
        ),
    ),
    *_of(
        "winolab/ref/algorithms/winrs/kernels.py",
        "tests/ref/algorithms/winrs/test_plan.py",
        ("slowness[second] < slowness[first]", "slowness[second] > slowness[first]"),
    ),
    *_of(
        "winolab/ref/cost/complexity.py",
        "",
        ("7 * (m * n // 4)", "6 * (m * n // 4)"),
    ),
    *_of(
        "winolab/ref/arithmetic/order.py",
        "",
        ("steps * rank // self.split_k", "steps // self.split_k * rank"),
    ),
    *_of(
        "winolab/gpu/planner/planner.py",
        "tests/gpu/planner/test_gradient_workspace.py",
        ("fastest.predicted <= WORTH * lean.predicted", "fastest.predicted <= lean.predicted"),
        ("parts.predicted <= WORTH * direct.predicted", "parts.predicted <= direct.predicted"),
        ("FLAGS + f.workspace > limit for f", "f.workspace > limit for f"),
    ),
    *_of(
        "winolab/gpu/planner/ranking.py",
        f"tests/gpu/planner {GAMMA_WGMMA}",
        ("(lost := loss(first)) > 1", "(lost := loss(first)) > 2"),
        ("most = WORTH * min(lean", "most = min(lean"),
        ("first = min(close, key=_states)", "first = fastest"),
        ("math.sqrt(filled_up * taps / math.prod", "(filled_up * taps / math.prod"),
    ),
    *_of(
        "winolab/gpu/families/scale.py",
        "",
        ("counts[1] // SINGLE + counts[2] // PAIR", "counts[1] // SINGLE"),
        ("if gap or merged[-1] * merged[axis] >= 1 << 31", "if gap"),
        ("min(0, stride) * (size - 1)", "min(0, stride) * size"),
    ),
    *_of(
        "winolab/gpu/runtime/array_layout.py",
        "tests/gpu/runtime/test_arrays.py tests/gpu/runtime/test_options.py",
        ("max(self.strides[-2:]) <= MAX_STRIDE", "True"),
        ("self.strides[0] + image.span <= MOST", "image.span <= MOST"),
        ("offset + self._low < high * size", "offset + self._low < high"),
    ),
    *_of(
        "winolab/gpu/families/gamma_ffma/config.py",
        f"{GAMMA_FFMA}/test_plan.py {GAMMA_FFMA}/test_cost.py tests/gpu/planner/test_planner.py",
        ("and stages(shape, tile, correlation) > longest(shape)", "and True"),
        ("fold % shape.kc", "fold % 2"),
        ("for count in (blocks, blocks + 1)", "for count in (blocks,)"),
    ),
    *_of(
        "winolab/gpu/families/wgrad.py",
        "tests/gpu/families/wgrad_winograd/test_kernel.py tests/gpu/planner",
        ("segments == 1 else segments - first", "segments == 1 else segments"),
        ("tile.inputs <= pitch < self.whole_pitch(tile)", "pitch < self.whole_pitch(tile)"),
        ("NEAR_FASTEST * min(s.seconds for s in fitting)", "min(s.seconds for s in fitting)"),
    ),
    *_of(
        "winolab/gpu/families/wgrad_direct/chunks.py",
        "tests/gpu/families/wgrad_direct/test_columns.py",
        ('begins, side="right"', 'begins, side="left"'),
        ("seconds = max(seconds, waves.loads[-1])", "seconds = waves.loads[-1]"),
    ),
    *_of(
        "winolab/gpu/families/nested/tiles.py",
        "tests/gpu/families/nested/test_plan.py tests/gpu/families/nested/test_cost.py",
        ("if r == taps or r % n == 0", "if r == taps or n % r == 0"),
        ("(pieces(tile, taps) - 1) * (", "pieces(tile, taps) * ("),
    ),
    *_of(
        "winolab/gpu/planner/fallback.py",
        "tests/gpu/planner/test_fallback_room.py",
        ("room = p.workspace - found.header", "room = p.workspace"),
        ("self.header + self.fallback.workspace)", "self.fallback.workspace)"),
    ),
    *_of(
        "winolab/gpu/planner/recast/stacked.py",
        "tests/gpu/planner/recast/test_stacked.py",
        ("shift, read = low - step * before", "shift, read = low"),
        ("a.stacked, a.step, a.phases, a.shift", "a.stacked, a.step, a.step, a.shift"),
        ("one and whole and dense else", "one and whole else"),
        ("one and whole and dense else", "one and dense else"),
    ),
    *_of(
        "winolab/gpu/codegen/kernels/stack.cuh",
        "tests/gpu/planner/recast/test_stacked.py",
        ("phases && at >= 0 && at < axis.size ?", "phases ?"),
        ("return phase < axis.phases && at >= 0", "return at >= 0"),
        ("pixel < axis.stacked && phase < axis.phases;", "pixel < axis.stacked;"),
        ("shifted >= 0 && pixel < axis.stacked &&", "shifted >= 0 &&"),
        ("source.w + w >= 0 && source.w + w", "source.w + w"),
        ("return {p.map, -p.width.stacked * p.width.step};", "return {p.map, 0};"),
        ("min(held, vectors - first)", "held"),
        ("(of_depth * p.height.phases + of_height)", "of_height"),
    ),
    *_of(
        "winolab/gpu/families/direct/split.cuh",
        "tests/gpu/families/direct/test_split.py",
        ("return sum > __fmul_rn(CHECKED_OUTPUTS, f.least)", "return sum > 0.0f"),
        ("max(at, at / 16 * 16 + CHECKED_OUTPUTS - 1)", "at | 7"),
        ("if (!flags[ZERO] && !told(params, work, channel, at, f)) ", ""),
        ("  __syncwarp();  // lanes will read", "  // lanes will read"),
    ),
    *_of(
        "winolab/gpu/planner/fallback.py",
        "tests/gpu/planner/recast/test_stacked.py",
        ("few = p.checks_accuracy and few_products(p.problem, p.direction)", "few = False"),
        ("math.prod(problem.filter) < FEW_PRODUCTS", "math.prod(problem.filter) < 0"),
    ),
    *_of(
        "winolab/ref/arithmetic/elements.py",
        "tests/conv/test_carriers.py",
        (" and not isinstance(v, bool)", ""),
        ("_check_bits(max(abs(exponent), abs(exponent + bits)))", "pass"),
        ("return x.astype(known, copy=False)", "return x"),
        ("if all(type(v) in CARRIED for v in flat)", "if True"),
    ),
    *_of(
        "winolab/ref/arithmetic/formats.py",
        "tests/conv/test_carriers.py",
        ("or (2 * rest == unit and whole % 2)", "or 2 * rest == unit"),
        ("if whole else sign * 0.0", "if whole else 0.0"),
        ("inexact = np.abs(wide) >= 2.0**53", "inexact = np.abs(wide) < 0"),
        ("inexact = (wide != x) & ~np.isnan(wide)", "inexact = np.isinf(wide)"),
        ("(1 << self.precision) - (1 if self.infinities else 2)", "(1 << self.precision) - 1"),
    ),
    *_of(
        "winolab/ref/arithmetic/exact.py",
        "tests/conv/test_carriers.py",
        ("return -1.0 if negative else 1.0", "return 1.0"),
        ("if _all_finite(a) and _all_finite(b)", "if True"),
        ("if any(type(v) is float for v in x.reshape(-1))", "if False"),
    ),
    *_of(
        "winolab/ref/operands.py",
        "tests/conv/test_carriers.py",
        (" or q.denominator != 1", ""),
        ("limits.min <= q <= limits.max", "q <= limits.max"),
        ("FORMAT_OF[kind].nearest(y).astype(dtype)", "y.astype(dtype)"),
        ("_longdouble(y).astype(dtype, copy=False)", "y.astype(dtype)"),
        ("if largest >= FLOAT16_INFINITE:", "if largest > 65504:"),
    ),
    *_of(
        "winolab/ref/dispatch.py",
        "tests/conv/test_carriers.py",
        ("return quiet(lambda", "return (lambda"),
    ),
    *_of(
        "winolab/ref/algorithms/fft.py",
        "",
        ("\n            return _complex(real, imag)", "\n            return real + 1j * imag"),
    ),
]

if __name__ == "__main__":
    sys.exit(main())
