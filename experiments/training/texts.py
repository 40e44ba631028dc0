"""What the report says of training."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.texts import Text
from experiments.training import on_gpu

DATA = "Images are generated, ten classes of textures (experiments/training/images.py)."


def _simulated(cells: Sequence[Cell]) -> list[str]:
    apart = [c for c in cells if c.where.startswith("the difference")]
    spread = [c.high - c.low for c in cells if c.column == "test accuracy" and c not in apart]
    return [
        f"Test accuracy differs by {_percent(c.ours)} ({_percent(c.low)} to {_percent(c.high)}, "
        f"{c.where.partition(', ')[2]}); a method's own interval is {100 * max(spread):.1f} % "
        "wide. WinRS's 0.6 % cannot be told apart from seeds here."
        for c in apart
    ]


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _breaks(cells: Sequence[Cell]) -> list[str]:
    losses = {c.where: c.ours for c in cells if c.column == "last loss"}
    direct = {where.partition(",")[0]: v for where, v in losses.items() if "direct" in where}
    broken = [where for where, v in losses.items() if not v < 1.1 * direct[where.partition(",")[0]]]
    return [f"Losses over 1.1 times direct's: {'; '.join(broken) or 'none'}."]


TEXTS = {
    **on_gpu.TEXTS,
    "training simulated": Text(
        "WinRS trains in FP32 within 0.6 % of cuDNN's accuracy; Im2col-Winograd shows curves.",
        "Four 3×3 layers of 8 and 16 channels, images of 16², Adam, 100 steps of 32 images, five "
        f"seeds, on the CPU: by PyTorch, and by the reference in FP32. {DATA}",
        "ours: means over seeds, 90 % intervals.",
        _simulated,
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
