"""What the fused kernel's other policies make of openCNN's layers, what bank conflicts counters
find, what each step of the kernel takes, how much it errs, what wgmma could make of it: measured
here, nothing judged."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import equal, near
from experiments.measure.fused.beside import SQUARE_BOX
from papers.opencnn_2021.layouts import of
from papers.opencnn_2021.machine import BATCHES, LAYERS, counted
from papers.opencnn_2021.speeds import PAPER
from winolab.gpu.families.fused2d.config import Config

FIFTH = near(1, 0.2)
NOTHING = "nothing is judged: the paper has no such table"
PLAIN = Config()
CHANNELS_FIRST = Config(order="nchw", layout="sts64_final", buffers=2)
# A policy, and the config that it is measured beside.
POLICIES: dict[str, tuple[Config, Config]] = {
    "boxes of 4 × 8 tiles over tiles in a row": (Config(**SQUARE_BOX), PLAIN),
    "the same, NCHW": (
        Config(order="nchw", layout="sts64_final", **SQUARE_BOX),
        CHANNELS_FIRST,
    ),
    "128 filters at a time over all": (Config(group=2), PLAIN),
    "two buffers over one": (Config(buffers=2), PLAIN),
    "NCHW over NHWC": (CHANNELS_FIRST, PLAIN),
    "loads ahead over not": (Config(ahead=True), PLAIN),
}


def _speed(rows: Sequence[Row], config: Config, layer: str, batch: int) -> float | None:
    """TFLOPS of a config, whatever its vectors and parts."""
    wanted = _told(str(config))
    for row in rows:
        if (row["list"], row["layer"], row["batch"]) == ("opencnn", layer, batch) and (
            row.get("output_layout") and _told(row["plan"]) == wanted
        ):
            return float(row["tflops"])
    return None


def _told(plan: str) -> str:
    """A config's text without what the arrays decide."""
    own = ("xvec", "yvec", "split_k", "stages")
    return " ".join(word for word in plan.split() if word.partition("=")[0] not in own)


def cells_policies(rows: Sequence[Row]) -> list[Cell]:
    """Speeds of policies over the same kernel without, geometric means of a layer's batches; what
    two parts of a sum run is among them where both have it."""
    found = []
    for name, (config, beside) in POLICIES.items() if rows else ():
        for layer in LAYERS:
            ratios = []
            for batch in BATCHES:
                mine, other = (_speed(rows, c, layer, batch) for c in (config, beside))
                if mine and other:
                    ratios.append(mine / other)
            if ratios:
                note = f"{min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} batches"
                found.append(one(name, layer, None, geometric_mean(ratios), note=note))
    return found


def cells_banks(rows: Sequence[Row]) -> list[Cell]:
    """Bank conflicts by ncu's counter, beside the model's of the output transform."""
    found = []
    for where, row, _ in counted(rows):
        filters, name = int(row["plan"].split("x")[0]), row["plan"].split()[1]
        batch, height, width, _ = map(int, row["layer"].partition(":")[0].split("x"))
        channels = int(row["layer"].partition(":")[2].partition("x")[0])
        tiles = -(-batch * -(-height // 2) * -(-width // 2) // 32)
        work_tiles = tiles * -(-channels // filters)
        share = 100 * row["bank_conflicts"] / row["shared_wavefronts"]
        found += [
            one(where, "conflicts, % of wavefronts", None, share),
            one(where, "conflicts a work tile", None, row["bank_conflicts"] / work_tiles),
            one(where, "wavefronts a work tile", None, row["shared_wavefronts"] / work_tiles),
        ]
        if filters == 64:
            cost = of(name)
            conflicts = cost.stores.conflicts + cost.loads.conflicts
            found.append(one(where, "conflicts a work tile, model", None, float(conflicts)))
    return found


def cells_left_out(rows: Sequence[Row]) -> list[Cell]:
    """Shares of 2.25 × SGEMM × useful outputs, of the kernel and of what lacks steps."""
    return [
        one(
            f"{row['layer']} N = {row['batch']}",
            f"without {' and '.join(row['left_out'])}" if row["left_out"] else "the kernel",
            None,
            row["share"],
            note="its results are wrong" if row["results"] == "wrong" else "",
        )
        for row in rows
    ]


def cells_errors(rows: Sequence[Row]) -> list[Cell]:
    """Errors of the kernel, over what is predicted of it, and over what is simulated, from which
    they were to differ by a fifth at most; and whether bits are the reference's."""
    found = []
    for row in rows:
        parts = row["plan"].partition("split_k=")[2].partition(" ")[0]
        where = f"{row['layer']} N = {row['batch']}, {row['direction']}, {row['kernel']} "
        where += row["products"] + (f" in {parts} parts" if parts not in ("", "1") else "")
        where += f", {row['plan'].split('x')[0]} filters" * ("x32x8" in row["plan"])
        of = "[1, 2)" if row["data"] == "u12" else "[-1, 1)"
        for name, title in (("rms", "relative RMS"), ("mare", "MARE")):
            if name in row:
                found.append(one(where, f"{title}, {of}", None, row[name]))
            for other, said in (("predicted", "prediction"), ("simulated", "simulation")):
                value = row.get(f"{other}_{name}")  # "nan" where it fails
                if name in row and isinstance(value, float):
                    column = f"{title}, {of}, over the {said}"
                    aim = {"accepted": FIFTH, "aim": 1.0} if other == "simulated" else {}
                    found.append(one(where, column, None, row[name] / value, **aim))
        if "equal" in row:
            bits = f"bits of the reference's, {of}"
            found.append(one(where, bits, None, float(row["equal"]), accepted=equal(1), aim=1.0))
    return found


def cells_loop(rows: Sequence[Row]) -> list[Cell]:
    """Times of today's choice over those of the wgmma loop that transforms and loads nothing."""
    return [
        one(f"{row['precision']}, {row['layer']}", column, None, row[value], note=row["pick"])
        for row in rows
        if row["transforms"]
        for column, value in (
            ("TFLOPS picked", "pick_tflops"), ("of the loop", "loop_tflops"), ("gain", "gain"),
        )
    ]  # fmt: skip


LOOP = Table(
    PAPER, "loop", "A fused kernel on wgmma at best: its loop without loads", none, cells_loop,
    NOTHING, sources=("fused2d_wgmma_loop",), values=("gain",),
)  # fmt: skip
ERRORS = Table(
    PAPER, "errors", "Errors of the fused kernel beside prediction and simulation", none,
    cells_errors, "aims: within a fifth of the simulation, and its bits where the order is stated",
    sources=("fused2d_errors",), values=("rms",),
)  # fmt: skip
POLICY = Table(
    PAPER, "policies", "Superblocks, groups of filters, memory orders", none, cells_policies,
    NOTHING, sources=("fused2d",), values=("tflops",),
)  # fmt: skip
BANKS = Table(
    PAPER, "banks", "Bank conflicts, counted and by the model", none, cells_banks,
    NOTHING, sources=("counters",), values=("bank_conflicts",),
)  # fmt: skip
STEPS = Table(
    PAPER, "steps", "Shares of the ceiling without a step of the kernel", none, cells_left_out,
    NOTHING, sources=("fused2d_left_out",), values=("share",),
)  # fmt: skip
