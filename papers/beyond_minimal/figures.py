"""The notebook's pictures: frontiers, errors of eight bits, what residues save, what a GPU took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from experiments.harness.facts import ROOT
from experiments.harness.jobs import Row
from experiments.report.figures import COLOURS, INK, panels_of, with_legend
from winolab.ref.algebra.transforms import transforms
from winolab.ref.quantized.residues import moduli
from winolab.ref.records.table import every

WIDTHS = (3, 5, 7, 9)
NESTED = ROOT / "experiments" / "results" / "nested.jsonl"
# Tiles beside minimal ones of the same layer.
KERNELS = ("4×4,3×3", "6×6,3×3", "7×7,3×3", "3×3,5×5", "6×6,5×5", "8×8,9×9", "3×3,3×3")


def frontier() -> Figure:
    """Noise gain against saving in one dimension, a panel a filter width."""
    figure, panels = panels_of(1, len(WIDTHS), (11, 3), sharey=True)
    for panel, r in zip(panels, WIDTHS, strict=True):
        mine = [c for c in every() if c.r == r]
        for more, colour, label in (
            (False, "#aaaaaa", "n + r − 1 states"),
            (True, COLOURS["best"], "more states"),
        ):
            some = [c for c in mine if (c.states > c.n + c.r - 1) == more]
            panel.plot([c.saving for c in some], [c.gain for c in some], ".", color=colour,
                       markersize=5, label=label)  # fmt: skip
        panel.axhline(1, color=INK, linewidth=0.8)
        panel.set(title=f"r = {r}", xlabel="multiplications saved", yscale="log", ylim=(0.8, 1e6))
    panels[0].set(ylabel="noise gain")
    return with_legend(figure, panels[0])


def plane(rows: Sequence[Row]) -> Figure:
    """Errors of nested algorithms against saving, by format, a line a filter width."""
    names = ("fp32", "fp32_split", "fp16", "int8:state")
    figure, panels = panels_of(1, len(names), (11, 3), sharey=False)
    colours = [COLOURS[c] for c in ("best", "typed", "direct", "program")]
    saved = {row["where"]: row["ours"][0] for row in rows if row["column"] == "saving"}
    for panel, name in zip(panels, names, strict=True):
        for r, colour in zip(WIDTHS, colours, strict=True):
            mine = [row for row in rows if (row["column"], row["r"]) == (name, r)]
            mine = [row for row in mine if not row["where"].startswith("F(2×2,")]
            panel.plot([saved[row["where"]] for row in mine],
                       [sum(row["ours"]) / len(row["ours"]) for row in mine],
                       ".-", color=colour, linewidth=1, label=f"{r}×{r}")  # fmt: skip
        panel.set(title=name, xlabel="multiplications saved", yscale="log")
        panel.set_ylim(top=min(1, panel.get_ylim()[1]))
    panels[0].set(ylabel="relative RMS error")
    return with_legend(figure, panels[0], columns=4)


def eight_bits(rows: Sequence[Row]) -> Figure:
    """Errors of inputs after ReLU by algorithm and precision."""
    shown = ("int8:tensor", "int8:state", "int10:state", "fp8_e4m3:state", "rns:tensor", "fp16")
    names = list(dict.fromkeys(row["where"] for row in rows))
    figure, (panel,) = panels_of(1, 1, (9, 4))
    for precision, colour in zip(shown, COLOURS.values(), strict=True):
        mine = [row for row in rows if row["column"] == f"{precision} relu"]
        panel.plot([names.index(row["where"]) for row in mine],
                   [sum(row["ours"]) / len(row["ours"]) for row in mine],
                   "o", color=colour, markersize=5, label=precision)  # fmt: skip
    panel.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], rotation=30)
    panel.set(ylabel="relative RMS error", yscale="log")
    return with_legend(figure, panel)


def residues(channels: int) -> Text:
    """What sums by residues save of 3×3 filters: n, primes, multiplications of one and of all."""
    lines = []
    for n in range(2, 17):
        of = transforms(n, 3).programs
        used = {op.constant.denominator for p in (of.AT, of.G, of.BT) for op in p.ops}
        primes = moduli(2 * 9 * channels * 127**2 + 1, used)
        saved = (3 * n / (n + 2)) ** 2
        lines.append(f"F({n}×{n},3×3): {len(primes)} primes, {primes[0]} to {primes[-1]}, saves "
                     f"{saved:.2f} a prime, {saved / len(primes):.2f} together")  # fmt: skip
    return Text(lines)


def speeds() -> Text:
    """Kept rows of nested kernels, PyTorch's best beside them, a line a layer and algorithm."""
    return Text(list(_speeds()))


def _speeds() -> Iterator[str]:
    rows = [json.loads(line) for line in NESTED.read_text().splitlines()]
    layers = dict.fromkeys((tuple(row["x"]), tuple(row["w"]), row["group"]) for row in rows)
    for x, w, group in layers:
        of = (list(x), list(w), group)
        mine = [row for row in rows if (row["x"], row["w"], row["group"]) == of]
        if group == "bf16":
            continue
        torch = min(row["us"][1] for row in mine if row["method"] == "torch"
                    and row["products"] == group)  # fmt: skip
        size, taps = "×".join(map(str, x[:-1])), f"{w[-2]}×{w[-2]}"
        yield f"{size}, {x[-1]} to {w[0]} channels, {taps}, {group}: PyTorch {torch:.0f} µs"
        for row in mine:
            name = row.get("kernel", "").replace("1×", "").replace(",1×", ",")
            if row["method"] == "winolab" and any(kernel in name for kernel in KERNELS):
                yield f"    {name:24} {row['us'][1]:8.0f} µs  error {row['relative_rms_n01']:.2e}"


class Text:
    """Lines that a notebook shows as they are."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def __repr__(self) -> str:
        return "\n".join(self.lines)
