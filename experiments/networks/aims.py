"""What docs/results.md says of whole networks beside their means: aims, what has no rows yet, rows
of kernels that have changed since, and every case that is slower than PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from experiments.gpu.rows import Row, stored
from experiments.gpu.targets import calls, layers
from experiments.networks.told import METHODS, Cases, by_case
from experiments.training.runs import EARLIER, earlier

# Batches of each network, as end_to_end has them, and what each of them is run in.
BATCHES = {
    "resnet18": (1, 32),
    "resnet50": (1, 32),
    "vgg16": (1, 32),
    "inception_v3": (1, 32),
    "densenet121": (1, 32),
    "convnext_tiny": (1, 32),
    "efficientnet_b0": (1, 32),
    "unet2d": (1, 8),
    "unet3d": (1, 2),
    "video_decoder": (1,),
}
FORMATS, ORDERS, STEPS = ("fp32", "fp16", "bf16"), ("first", "last"), ("forward", "training")
# Without normalization gradients of split FP32 were computed twice (docs/notes/113).
BARE = ("vgg16", "unet2d", "unet3d", "video_decoder")
# Why cases are slower, by what their rows have in common: the first that fits.
REASONS: tuple[tuple[dict[str, object], str], ...] = (
    ({"mode": "compiled", "step": "forward", "order": "first"}, "the host's time: note 125"),
    ({"mode": "compiled", "step": "forward"},
     "not looked into since note 125, whose change is of maps that lie channels first"),
    ({"mode": "compiled"}, "not looked into; note 125 leaves compiled training as it was"),
    *(
        ({"network": name, "batch": 1, "format": "fp32", "order": "first", "mode": "eager"},
         "copies between memory orders: note 078")
        for name in ("resnet50", "inception_v3")
    ),
)  # fmt: skip
UNKNOWN = "not looked into"


def older(row: Row) -> bool:
    """Whether a row is of kernels that have changed since in a way that moved such cases."""
    case = row["network"] in BARE and (row["format"], row["step"]) == ("fp32", "training")
    return case and earlier(row)


def lines() -> list[str]:
    """The aims, and what stands behind them."""
    cases = by_case(stored("end_to_end"))
    compared = {key: of for key, of in cases.items() if {*METHODS[:2]} <= of.keys()}
    if not compared:
        return []
    every = [row for of in cases.values() for row in of.values()]
    return [*_aims(every), *_missing(compared), *_older(compared), *_slower(compared)]


def _aims(rows: list[Row]) -> Iterator[str]:
    for part, make, mine in calls.parts(rows):
        if part.name == calls.NETWORKS:
            yield from (
                "",
                "Aims that were set beforehand, eager and compiled: training in FP32 "
                f"{calls.STEPS['fp32']:.2f} times PyTorch's speed, {calls.STEP_TF32:.2f} times "
                "TF32's where more than nine tenths of the products are in filters of 3×3 and "
                f"larger ({', '.join(calls.WIDE)}); in 16 bits {calls.STEPS['fp16']:g} times, none "
                f"below {calls.STEP_LEAST['fp16']:g}; and no network slower than PyTorch's in "
                "either memory order.",
                *layers.shown(part, [*make(part, mine)]),
            )


def every_eager() -> Iterator[tuple]:
    """Every eager case, as ``by_case`` has it."""
    for name, batches in BATCHES.items():
        for batch, kind, order, step in product(batches, FORMATS, ORDERS, STEPS):
            yield name, batch, kind, order, "eager", step


def _missing(cases: Cases) -> Iterator[str]:
    """How many eager cases have rows, and by network and batch which have none."""
    every = [*every_eager()]
    absent = [case for case in every if case not in cases]
    of: dict[str, list[str]] = {}
    for name, batch in dict.fromkeys(case[:2] for case in absent):
        kinds = []
        for kind in FORMATS:
            mine = [(case[3], case[5]) for case in absent if case[:3] == (name, batch, kind)]
            if len(mine) == len(ORDERS) * len(STEPS):
                kinds.append(kind.upper())
            elif mine:
                which = ", ".join(f"{order} {step}" for order, step in mine)
                kinds.append(f"{kind.upper()} ({which})")
        what = "everything" if kinds == [kind.upper() for kind in FORMATS] else ", ".join(kinds)
        of.setdefault(what, []).append(f"{name} ({batch})")
    said = f"Of {len(every)} eager cases {len(every) - len(absent)} have rows."
    named = "; ".join(f"{what} of {', '.join(names)}" for what, names in of.items())
    yield from ("", said + f" Missing: {named}." * bool(of))


def _older(cases: Cases) -> Iterator[str]:
    """Cases whose rows are of kernels that have changed."""
    found = [f"{named(key)} ({_over_tf32(of)}{of['winolab']['commit'][:8]})"
             for key, of in cases.items() if older(of["winolab"])]  # fmt: skip
    if found:
        yield from (
            "",
            f"{len(found)} cases are of commits before {EARLIER}: of networks without "
            "normalization gradients in FP32 were computed twice until then; without, a step of "
            f"vgg16 of 32 went from 28.5 to 19.7 ms (note 113): {'; '.join(found)}. The same "
            "command measures them again.",
        )


def _over_tf32(of: dict[str, Row]) -> str:
    return f"{of['tf32']['ms'] / of['winolab']['ms']:.2f} of TF32's speed, " if "tf32" in of else ""


def _slower(cases: Cases) -> Iterator[str]:
    """A line a case below 1, the slowest first."""
    speeds = {key: of["torch"]["ms"] / of["winolab"]["ms"] for key, of in cases.items()}
    below = sorted((speed, key) for key, speed in speeds.items() if speed < 1)
    yield from ("", f"{len(below)} of {len(speeds)} cases are slower than PyTorch's.")
    if not below:
        return
    yield from ("", "| case | over PyTorch | quartiles, ms: ours, PyTorch's | why |",
                "|---|---|---|---|")  # fmt: skip
    for speed, key in below:
        mine, theirs = (cases[key][who].get("quartiles_ms") for who in METHODS[:2])
        spans = ", ".join(f"{low:.2f}–{high:.2f}" for low, high in filter(None, (mine, theirs)))
        apart = "" if not (mine and theirs) or mine[0] > theirs[1] else " (they overlap)"
        yield f"| {named(key)} | {speed:.3f} | {spans}{apart} | {reason(key)} |"


def named(key: tuple) -> str:
    """A case in words."""
    network, batch, kind, order, mode, step = key
    compiled = ", compiled" * (mode == "compiled")
    return f"{network} of {batch}, {kind.upper()} {step}, channels {order}{compiled}"


def reason(key: tuple) -> str:
    """Why a case is slower, where a note says it."""
    case = dict(zip(("network", "batch", "format", "order", "mode", "step"), key, strict=True))
    fits: Iterable[str] = (why for of, why in REASONS if of.items() <= case.items())
    return next(iter(fits), UNKNOWN)
