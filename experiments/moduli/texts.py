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
    "moduli quantized": Text(
        "Tap-wise quantisation (2209.12982) gives every state a scale; Liu & Mattina (2007.12216) "
        "sum INT8 products exactly by residues; SFC (2407.02913) takes transforms of additions.",
        "Direct convolution and Winograd with operands of eight bits: transforms and results FP32, "
        "scales the data's, one a tensor, an output channel, a state (pow2: powers of two), 64 "
        "channels, 12 × 12 outputs, 16 filters, five seeds. u11 uniform on [-1, 1); relu "
        "normal inputs after ReLU; wide heavy-tailed, normal times 2^U[-20, 0].",
        "ours: relative RMS error against FP64; the aim: direct INT8's of residues, and that of "
        "fewer factors at the same saving.",
        _found,
    ),
    "moduli plane": Text(
        "SFC (2407.02913) states 3.68 multiplications saved of 3×3 at errors like F(2×2,3×3)'s.",
        "Of the record table, nested with itself, what no other has at more saving and less noise "
        "gain; proved, and simulated on zero-mean data over 64 channels, two seeds.",
        "ours: multiplications saved, noise gain of both dimensions, relative RMS error by format; "
        "the aim is SFC's saving, at F(2×2,3×3)'s noise gain.",
        _found,
    ),
    "moduli nested": Text("As above, in two dimensions.", DO, READ, _found),
}
