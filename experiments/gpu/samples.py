"""What docs/results.md says of samples on GPUs: layers of networks, and whole ones.

Each is a part of all that there is, drawn or as far as time allowed, and says how large a part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from experiments.calibrate.gone import apart
from experiments.gpu import counters
from experiments.gpu.rows import Row, mean, stored
from experiments.harness import machines
from experiments.harness.facts import ROOT
from experiments.measure import layer_rows
from winolab.arguments.words import plural
from winolab.bench import networks as listed

DIRECTIONS = ("forward", "backward_data", "backward_filter")
PRECISIONS = ("fp32", "fp16", "bf16")
GROUPS = ("dense", "1x1", "strided", "dilated", "grouped", "depthwise", "stem")
# Aims of ours: of the geometric mean over a list's layers, and of all but a twentieth of them.
MEANS, LEAST = {"fp32": 2.0, "fp16": 1.15, "bf16": 1.15}, {"fp32": 1.0, "fp16": 0.95, "bf16": 0.95}
TF32 = 0.95  # FP32 over TF32
PEERS = "torch", "tf32"  # of whole networks
TURNS = 4  # slow layers of each kind that are counted before others
# Times its prediction that a layer takes, and microseconds, from which on it says that a model or a
# kernel is wrong: the model's spread is 0.02 to 0.25.
UNFORESEEN, LONG = 1.4, 40.0
MEASURE = (
    "python -m experiments.measure.layers networks_forward (…_backward_data, …_backward_filter)"
)
EARLY = " Timed after three steps, before calls are CUDA graphs (docs/notes/056)."
RESULTS = ROOT / "experiments" / "results"


@dataclass(frozen=True)
class Speeds:
    """A direction and precision: speeds over PyTorch's by kind of layer, and over TF32's."""

    direction: str
    precision: str
    devices: frozenset[str]
    torch: dict[str, list[float]]
    tf32: list[float]

    @property
    def every(self) -> list[float]:
        return [value for values in self.torch.values() for value in values]

    @property
    def slow(self) -> float:
        """The part of the layers below the least."""
        return sum(value < LEAST[self.precision] for value in self.every) / len(self.every)


def speeds(rows: Iterable[Row], clock: bool = False) -> list[Speeds]:
    """Speeds of what is picked over the fastest of others (layer_rows.ratios), and over TF32's;
    ``clock``: of what a clock picked."""
    rows = list(rows)
    tf32: dict[tuple, float] = {}
    for row in rows:
        if row["method"] == "tf32":
            case = layer_rows.key(row)
            tf32[case] = min(row["us"], tf32.get(case, math.inf))
    devices: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        devices.setdefault((row["direction"], row["precision"]), set()).add(row["device"])
    found: dict[tuple[str, str], Speeds] = {}
    for own, torch, _ in layer_rows.ratios(rows, clock):
        way = own["direction"], own["precision"]
        mine = found.setdefault(way, Speeds(*way, frozenset(devices[way]), {}, []))
        mine.torch.setdefault(own["group"], []).append(torch)
        if layer_rows.key(own) in tf32:
            mine.tf32.append(tf32[layer_rows.key(own)] / own["us"])
    return list(found.values())


def latest() -> list[Row]:
    """The rows of networks' layers that were added last."""
    every = [row for way in DIRECTIONS
             for row in machines.stored(RESULTS / f"networks_{way}.jsonl")]  # fmt: skip
    return layer_rows.latest(every)


def current() -> list[Row]:
    """Those of cases whose pick is today's."""
    return apart(latest())[0]


def peers(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows without cuDNN's fastest, and all rows of the cases that have it."""
    every = list(rows)
    judged = layer_rows.judged(every)
    return (
        [row for row in every if row["method"] != "cudnn"],
        [row for row in every if layer_rows.key(row) in judged],
    )


def regret() -> str:
    """How much longer picks took than the fastest of their rivals (experiments.measure.picks)."""
    times = {layer_rows.key(row): ({name: us for name, *_, us in row["plans"]}, row["pick"])
             for row in stored("rivals")}  # fmt: skip
    ratios = [of[pick] / min(of.values()) for of, pick in times.values() if len(of) > 1]
    if not ratios:
        return ""
    longer = f"{mean(ratios) - 1:.1%} longer than the fastest of what was timed beside them"
    of = plural(len(ratios), "call")
    return f"The picks of {of} took {longer}, up to {max(ratios):.2f} times as long. "


def batches() -> str:
    """The batches of networks: those of most, and what others have, whose tensors would have more
    elements than kernels count."""
    others = [
        f"{name} {' and '.join(map(str, network['batches']))}"
        for name, network in listed.networks().items()
        if network["batches"] != [1, 32]
    ]
    return f"1 and 32 ({', '.join(others)}: of 32 images a tensor would have 2³¹ elements or more)"


def networks() -> list[str]:
    """A line a direction and precision of the layers of networks that were drawn, and one of those
    where cuDNN was timed, too."""
    every = latest()
    rows, lost = apart(every)
    torch, both, *once = ({(each.direction, each.precision): each for each in speeds(some)}
                          for some in (*peers(rows), *peers(every)))  # fmt: skip
    timed = {layer_rows.key(row) for row in rows if "rivals" in row}
    some = [row for row in rows if layer_rows.key(row) in timed]
    picked, clock = ({(each.direction, each.precision): each for each in speeds(some, by)}
                     for by in (False, True))  # fmt: skip
    if not torch:
        return []
    left_out = Counter((row["direction"], row["precision"]) for row in lost)
    gpus = ", ".join(sorted(frozenset().union(*(each.devices for each in torch.values()))))
    lines = [
        f"A random sample of the {len(listed.distinct()):,} distinct convolutions of fourteen "
        f"networks at batches {batches()}, on an {gpus}: speed of what a call picks over PyTorch's "
        "in the same precision (benchmark mode, the faster memory order), cold L2 cache; and of "
        "the cases where all algorithms of cuDNN were timed, over the fastest of these and "
        "PyTorch. Aims count any algorithm: they are judged by those cases where there are any. "
        "Geometric means, in brackets the least and how many layers; aims are "
        f"{MEANS['fp32']:.2f} in FP32 and {MEANS['fp16']:.2f} in 16 bits, {TF32:.2f} over TF32, "
        f"and at most 5 % of the layers below {LEAST['fp32']:.2f} and {LEAST['fp16']:.2f}. "
        f"{len(lost):,} more cases were measured and count nowhere, as today's pick is not that of "
        "their rows (`python -m experiments.calibrate.gone` plans all): these wait, and are the "
        "first to be measured. What is reached without them and missed with them, as they were, "
        "counts as missed. Of cases whose rivals were timed (`--clock`, by all peers that were "
        "timed beside) the last two lines have the pick and what `warmup(measure=True)` takes. "
        f"{regret()}Run again by "
        f"`{MEASURE}`; `--summary` names the slowest layers.",
        "",
        f"| | all | aim | over TF32 | below the least | picks gone | {' | '.join(GROUPS)} |",
        "|---|---|---|---|---|---|" + "---|" * len(GROUPS),
    ]
    for way in ((direction, precision) for precision in PRECISIONS for direction in DIRECTIONS):
        if way in torch:
            name = f"{way[1].upper()}, {way[0].replace('_', ' ')}"
            alone = " over PyTorch alone" * bool(both)
            aims = _aims(torch[way], once[0][way], alone) if way not in both else None
            tf32 = _over_tf32(torch[way], once[0][way])
            lines.append(_line(name, torch[way], aims, tf32, str(left_out[way])))
        if way in both:
            lines.append(_line("… over cuDNN's, too", both[way], _aims(both[way], once[1][way])))
        if way in clock:
            lines.append(_line("… of these as picked", picked[way], None))
            lines.append(_line("… and by a clock", clock[way], _aims(clock[way], clock[way])))
    return lines


def _aims(of: Speeds, once: Speeds, told: str = "") -> tuple[str, str]:
    """Verdicts on the mean and on what is below the least; ``once``: with picks that are gone."""
    aim = MEANS[of.precision]
    middle, former = mean(of.every), mean(once.every)
    return (
        f"{aim:.2f} {_verdict(middle >= aim, former >= aim, f'{former:.2f}')}{told}",
        f" {_verdict(of.slow <= 0.05, once.slow <= 0.05, f'{once.slow:.1%}')}",
    )


def _over_tf32(of: Speeds, once: Speeds) -> str:
    if not of.tf32:
        return ""
    value, former = mean(of.tf32), mean(once.tf32)
    return f"{value:.2f} {_verdict(value >= TF32, former >= TF32, f'{former:.2f}')}"


def _verdict(reached: bool, once: bool, shown: str) -> str:
    """Whether an aim is met, without picks that are gone and with them, as they were."""
    return met(reached and once) + f" ({shown} with picks that are gone)" * (reached and not once)


def _line(
    name: str, of: Speeds, aims: tuple[str, str] | None, tf32: str = "", gone: str = ""
) -> str:
    """A line of the table, without verdicts where another line has them."""
    aim, slow = aims or ("", "")
    cells = [_shown(of.torch.get(group, [])) for group in GROUPS]
    first = name, _shown(of.every), aim, tf32, f"{of.slow:.1%}{slow}", gone
    return f"| {' | '.join([*first, *cells])} |"


def below() -> list[Row]:
    """Rows of networks' layers that are below LEAST, by what is picked, furthest first, with the
    fastest of PyTorch's as ``torch_us``."""
    found = []
    for own, speed, _ in layer_rows.ratios(current()):
        if speed < LEAST[own["precision"]]:
            found.append((speed, {**own, "torch_us": speed * own["us"]}))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def unforeseen() -> list[Row]:
    """Rows of networks' layers that take UNFORESEEN times their prediction, and LONG, or more,
    furthest first."""
    found = [
        (row["us"] / row["predicted_us"], row)
        for row in current()
        if row.get("chosen") and row["us"] >= LONG
    ]
    ranked = sorted(found, key=lambda pair: -pair[0])
    return [row for ratio, row in ranked if ratio >= UNFORESEEN]


def slowest() -> list[tuple[str, str, str, None, str, str]]:
    """What is picked for them, in the order in which they are counted: layer, direction, products,
    no algorithm, kernel and config. What nobody foresaw, and TURNS of each direction, precision and
    kind of layer, come before others."""
    turns: Counter[tuple[str, ...]] = Counter()
    ranked = [(False, _picked(row)) for row in unforeseen()]
    for one in below():
        kind = one["direction"], one["precision"], one["group"]
        ranked.append((turns[kind] >= TURNS, _picked(one)))
        turns[kind] += 1
    return list(dict.fromkeys(what for _, what in sorted(ranked, key=lambda pair: pair[0])))


def _picked(row: Row) -> tuple[str, str, str, None, str, str]:
    return row["layer"], row["direction"], row["products"], None, row["kernel"], row["plan"]


def reasons() -> list[str]:
    """What counters say of networks' layers below the least: a line a layer that was counted, and
    how many of each kind of layer there are. Then, of those that nobody foresaw."""
    counted = {
        _picked(row): plan
        for plan in counters.plans(stored("counters_networks"))
        for row in plan.rows[:1]
    }
    slow, late = below(), unforeseen()
    if not counted or not slow:
        return []
    kinds = Counter((row["precision"].upper(), row["direction"].replace("_", " "), row["group"])
                    for row in slow)  # fmt: skip
    lines = [
        f"{len(slow)} measured layers are below the least. Of those that were counted, by "
        "`python -m experiments.measure.counters --networks`: the unit that is busiest, the share "
        "of the multiprocessors' cycles that they work, what warps wait for, in one launch with "
        "warm caches.",
        "",
        "| layer | speed | µs | kernel | what holds it |",
        "|---|---|---|---|---|",
    ]
    for row in slow:
        if plan := counted.get(_picked(row)):
            speed = f"{row['torch_us'] / row['us']:.2f} | {row['us']:.1f}"
            lines.append(f"| {_named(row)} | {speed} | {row['kernel']} | {_held(plan)} |")
    rest = ", ".join(f"{' '.join(kind)} {n}" for kind, n in kinds.most_common())
    lines += ["", f"All of them by kind: {rest}."]
    if late:
        lines += [
            "",
            f"{len(late)} layers of {LONG:.0f} µs and more take {UNFORESEEN} times what the "
            "planner predicts, or more; what holds those that were counted:",
            "",
            "| layer | µs | predicted | kernel | what holds it |",
            "|---|---|---|---|---|",
        ]
    for row in late:
        plan = counted.get(_picked(row))
        took = f"{row['us']:.1f} | {row['predicted_us']:.1f}"
        held = _held(plan) if plan else "not counted yet"
        lines.append(f"| {_named(row)} | {took} | {row['kernel']} | {held} |")
    return lines


def _named(row: Row) -> str:
    return f"{row['layer']} {row['precision'].upper()} {row['direction'].replace('_', ' ')}"


def _held(plan: counters.Counted) -> str:
    """The busiest unit, the share of cycles at work, the first causes of waiting, launches."""
    row = plan.main
    units = {"issue slots": row["issue"], "shared memory": row["shared_pipe"], "L2": row["l2"],
             "DRAM": row["dram"]}  # fmt: skip
    # Products of TF32 parts are not counted, and 16 bits' on FMA units are no Tensor Cores'.
    if done := sum(counters.work(r) * r["calls"] for r in plan.mains):
        name = "Tensor Cores" if plan.tensor else "FMA units"
        units[name] = 100 * done / (plan.peak * plan.spent)
    busiest = max(units, key=units.__getitem__)
    waits = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in plan.stalls[:2])
    active = row["cycles_active"] / row["cycles"]
    launches = sum(row["calls"] for row in plan.rows)
    several = f"; {launches} launches, {plan.spent / plan.seconds:.0%} in the main one"
    return f"{busiest} {units[busiest]:.0f} %, at work {active:.0%}, {waits}" + several * (
        launches > 1
    )


def met(reached: bool) -> str:
    return "reached" if reached else "missed"


def _shown(values: Sequence[float]) -> str:
    """The geometric mean, the least and how many."""
    return f"{mean(values):.2f} ({min(values):.2f}, {len(values)})" if values else ""


def whole() -> list[str]:
    """A line a step, format and memory order of whole networks."""
    times: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    rows = stored("end_to_end")
    for row in rows:
        where = row["step"], row["format"], row["order"], row["mode"]
        of = times.setdefault(where, {}).setdefault(f"{row['network']} of {row['batch']}", {})
        of[row["method"]] = row["ms"]
        if row["method"] == "clock":
            of |= {f"{who} beside": row[f"{who}_ms"] for who in PEERS if f"{who}_ms" in row}
    if not times:
        return []
    gpus = ", ".join(sorted({row["device"] for row in rows}))
    lines = [
        "Whole networks that `winolab.torch.convert` has put on winolab, random images, on an "
        f"{gpus}: a step's speed over the same network by PyTorch in benchmark mode, by the clock, "
        "so that what the host takes counts where it is longer. Geometric means, in brackets the "
        "least and its network. Run again by `python -m experiments.networks.end_to_end`, with "
        "plans that a clock picks by `--clock`." + EARLY * any("warm" not in row for row in rows),
        "",
        "| step, format, memory order | networks | over PyTorch | over TF32 |",
        "|---|---|---|---|",
    ]
    for (step, kind, order, mode), networks in sorted(times.items()):
        compiled = f", {mode}" * (mode != "eager")
        name = f"{step}, {kind.upper()}, channels {order}{compiled}"
        lines += _over_peers(name, networks, "winolab", "{}")
        lines += _over_peers("… plans by a clock", networks, "clock", "{} beside")
    return lines


def _over_peers(
    name: str, networks: dict[str, dict[str, float]], who: str, beside: str
) -> Iterator[str]:
    """A line of a step's speeds over PyTorch's and TF32's, where ``who`` took it; ``beside`` names
    the peers' times of the same sittings."""
    taken = {network: of for network, of in networks.items() if who in of}
    if not taken:
        return
    cells = []
    for peer in map(beside.format, PEERS):
        ratios = {network: of[peer] / of[who] for network, of in taken.items() if peer in of}
        least = min(ratios, key=ratios.__getitem__, default="")
        cells.append(f"{mean([*ratios.values()]):.2f} ({ratios[least]:.2f}, {least})"
                     if ratios else "")  # fmt: skip
    yield f"| {name} | {len(taken)} | {' | '.join(cells)} |"
