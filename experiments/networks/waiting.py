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
    """A line a network: how many units its layers need."""
    rows = stored("compiling")
    if not rows:
        return []
    return [
        "Distinct translation units that a network's layers load in three directions, batches of "
        "1 and 32, channels last, planned for an H100; what compiling them takes is under First "
        "calls. Run again by `python -m experiments.measure.compiling`; rows name their commit.",
        "",
        "| network, precision | calls | units |",
        "|---|---|---|",
        *(
            f"| {row['network']}, {row['precision'].upper()} | {row['calls']} | {row['kernels']} |"
            for row in rows
        ),
    ]
