"""What the report says of moduli."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.harness.verdicts import AIMS, Verdict
from experiments.report.texts import Text

DO = (
    "The modulus of F(n, r) gets factors x²+1 and x²±x+1 beside points, each in three products, "
    "one more than its degree. Proved, counted, and simulated on zero-mean data over 64 channels, "
    "ten seeds, FP32 and FP16 data. Each twice: with Karatsuba's products at 0, 1 and infinity, "
    "and with those of least noise gain, which are the default."
)
READ = "ours: states of a tile, multiplications saved, noise gain, relative RMS error by format."


def _found(cells: Sequence[Cell]) -> list[str]:
    aims = [c for c in cells if c.verdict in AIMS]
    reached = sum(c.verdict is Verdict.REACHED for c in aims)
    return [f"{reached} of {len(aims)} aims of ours are reached."]


TEXTS = {
    "moduli lines": Text(
        "Barabasz & Gregg (1905.05233) take factors of higher degree for accuracy.",
        DO,
        READ,
        _found,
    ),
    "moduli nested": Text("As above, in two dimensions.", DO, READ, _found),
}
