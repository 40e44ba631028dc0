"""What docs/results.md says of waiting: for first calls, for kernels to be compiled."""

from __future__ import annotations

from experiments.gpu.rows import Row, stored
from experiments.gpu.samples import met
from winolab.gpu.warm import SLOW

# A first call has its name in rows, what it is called, the field, and aims by the cache's state.
FIRST = (
    ("import", "`import winolab`", "seconds", {"": 0.3}),
    ("import", "… and `winolab.conv_forward` looked up", "next_seconds", {}),
    ("plans", "planning Inception-v3 forward, a core's seconds, FP32", "fp32_seconds", {}),
    ("plans", "… and FP16", "fp16_seconds", {}),
    ("call", "`conv_forward`, first of a process", "seconds", {"filled": 0.1}),
    ("call", "… and of another shape", "next_seconds", {}),
    ("fp32", "Inception-v3 of 32, FP32: forward", "forward_seconds", {"empty": 10, "filled": 1}),
    ("fp32", "… and a training step", "step_seconds", {}),
    ("fp16", "Inception-v3 of 32, FP16: forward", "forward_seconds", {"empty": 10, "filled": 1}),
    ("fp16", "… and a training step", "step_seconds", {}),
)
COMPILING = "python -m experiments.measure.compiling"
FIRST_COUNTED = {"fp32": 466, "fp16": 379}  # units of all networks at 158db3bb
STATES = (("winolab", "empty"), ("winolab", "filled"), ("winolab", ""), ("torch", ""))


def first_calls() -> list[str]:
    """A line a first call: with an empty cache, with a filled one, without any, by PyTorch."""
    rows: dict[tuple[str, ...], Row] = {}
    for row in stored("first_calls"):  # a later one counts, which may lack the step
        key = row["first"], row["method"], row["cache"]
        same = key in rows and rows[key]["device"] == row["device"]
        rows[key] = rows[key] | row if same else row
    lines = []
    for name, title, field, aims in FIRST:
        of = {state: rows.get((name, *state)) for state in STATES}
        if any(of.values()):
            cells = [_seconds(row, field, aims.get(cache) if method == "winolab" else None)
                     for (method, cache), row in of.items()]  # fmt: skip
            lines.append(f"| {title} | {' | '.join(cells)} |")
    if not lines:
        return []
    places = " and ".join(dict.fromkeys(_place(row) for row in rows.values()))
    compiled = [f"{row['first'].upper()} {row[f'{part}_compiled']} for {named}, which take "
                f"{row[f'{part}_compiling_seconds']:.0f} s one by one, the longest "
                f"{row[slowest]:.1f} s (≤ {SLOW:.0f} {met(row[slowest] <= SLOW)})"
                for row in rows.values() for part, named in (("forward", "the forward pass"),
                                                             ("step", "the step"))
                for slowest in [f"{part}_slowest_seconds"]
                if f"{part}_compiled" in row]  # fmt: skip
    return [
        f"Seconds from a call to a GPU that is done, each in a fresh process, on {places}; the "
        "empty cache is filled by `winolab.torch.warmup` on all cores, whose time counts. Run "
        "again by `python -m experiments.measure.first_calls --again`."
        + (f" Kernels compiled: {'; '.join(compiled)}." if compiled else ""),
        "",
        "| | empty cache | filled cache | no cache | PyTorch |",
        "|---|---|---|---|---|",
        *lines,
    ]


def _seconds(row: Row | None, field: str, aim: float | None) -> str:
    if row is None or field not in row:
        return ""
    reached = f" (≤ {aim} {met(row[field] <= aim)})" if aim else ""
    return f"{row[field]:.2g}{reached}"


def _place(row: Row) -> str:
    if row["device"] == "CPU":
        return row["processor"]  # which says its cores
    return f"an {row['device']}, {row['cores']} cores"


def kernels() -> list[str]:
    """A line a network: how many units its layers need, and how long these take to compile."""
    rows = stored("compiling")
    if not rows:
        return []
    timed = any("each_seconds" in row for row in rows)
    lines = [
        "Distinct translation units that a network's layers load in three directions, batches of "
        f"1 and 32, channels last, planned for an H100. Run again by `{COMPILING}`, with "
        "`--compile` for seconds of a processor that NVRTC takes for each, which needs no GPU; "
        "rows name their commit.",
        "",
        *_fewer(rows),
        *_seconds_each(rows),
        "",
        "| network, precision | calls | units |" + " median s | most | over 2 s |" * timed,
        "|---|---|---|" + "---|---|---|" * timed,
    ]
    for row in rows:
        cells = [f"{row['network']}, {row['precision'].upper()}", row["calls"], row["kernels"]]
        if timed and (each := row.get("each_seconds")):
            cells += [f"{each['median']:.2f}", f"{each['longest']:.2f}", row["over_2_seconds"]]
        elif timed:
            cells += [""] * 3
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _fewer(rows: list[Row]) -> list[str]:
    """Whether there are fewer units than when they were first counted, and why not."""
    every = {row["precision"]: row for row in rows if row["network"] == "all"}
    now = {kind: row["kernels"] for kind, row in every.items()}
    known = [kind for kind in FIRST_COUNTED if kind in now]
    if not known:
        return []
    said = [
        f"{kind.upper()} {FIRST_COUNTED[kind]} then, {now[kind]} at {every[kind]['commit'][:8]}, "
        f"{met(now[kind] < FIRST_COUNTED[kind])}"
        for kind in known
    ]
    why = (
        " Note 102 took FP32's apart so that each compiles sooner and none twice: fallbacks, with "
        "which all took 335 instead of 605 seconds of a core, 13 instead of 106 of them over two, "
        "and filters of split products, 489 units instead of 459, then none of Γ or F over two."
    )
    more = any(now[kind] > FIRST_COUNTED[kind] for kind in known)
    return [f"There were to be fewer than at first (158db3bb): {'; '.join(said)}.{why * more}"]


def _seconds_each(rows: list[Row]) -> list[str]:
    """Whether each unit compiles in SLOW seconds, and the most of each family: of all networks
    together, or of those that have rows."""
    timed = [row for row in rows if "each_seconds" in row]
    aim = f"Each was to compile in under {SLOW:.0f} s:"
    if not timed:
        return ["", f"{aim} no row says it yet, `{COMPILING} --compile` does."]
    whole = [row for row in timed if row["network"] == "all"]
    mine = whole or timed
    said = [f"{row['network']}, {row['precision'].upper()}, {row['over_2_seconds']} of "
            f"{row['each_seconds']['units']} take longer, {met(not row['over_2_seconds'])}"
            for row in mine]  # fmt: skip
    most: dict[str, float] = {}
    for row in mine:
        for name, of in row["by_family"].items():
            most[name] = max(most.get(name, 0.0), of["longest"])
    families = sorted(most.items(), key=lambda pair: -pair[1])
    named = "; ".join(f"{name} {longest:.2f} s" for name, longest in families)
    rest = f" Others have no rows yet: `{COMPILING} --compile`." * (not whole)
    places = ", ".join(dict.fromkeys(f"{row['device']}, NVRTC {row['nvrtc']}" for row in mine))
    return ["", f"{aim} on {places}: {'; '.join(said)}. The most by family: {named}.{rest}"]
