"""What the report says of training."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.texts import Text
from experiments.training import processes, seeds

DATA = seeds.DATA


def _breaks(cells: Sequence[Cell]) -> list[str]:
    losses = {c.where: c.ours for c in cells if c.column == "last loss"}
    direct = {where.partition(",")[0]: v for where, v in losses.items() if "direct" in where}
    broken = [where for where, v in losses.items() if not v < 1.1 * direct[where.partition(",")[0]]]
    return [f"Losses over 1.1 times direct's: {'; '.join(broken) or 'none'}."]


TEXTS = {
    processes.TWO.key: processes.TEXT,
    "training simulated": Text(
        "WinRS trains in FP32 within 0.6 % of cuDNN's accuracy; Im2col-Winograd shows curves.",
        "Four 3×3 layers of 8 and 16 channels, images of 16², Adam, 100 steps of 32 images, five "
        f"seeds, on the CPU: by PyTorch, and by the reference in FP32. {DATA}",
        "ours: means over seeds, 90 % intervals.",
        seeds.said,
    ),
    "training breaks": Text(
        "No paper asks it.",
        "The same network, 40 steps: Γα forward and for data, Ωα for filter gradients, simulated "
        f"in FP32, TF32 and FP16 (loss scale 256). {DATA}",
        "ours: the loss in the end; what the first step's filter gradients err against FP64, all "
        "layers; the largest error that is predicted of a layer's three directions.",
        _breaks,
    ),
}
