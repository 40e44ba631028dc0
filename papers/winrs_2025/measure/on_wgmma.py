"""On paper: fused Ω in 16 bits were its products on wgmma: would it be faster than direct ones?

``python -m papers.winrs_2025.measure.on_wgmma`` prints, for an H100, cycles of a stage by what
binds it, on mma.sync and on wgmma, and the speed over direct products by filter and channels.
On wgmma products run at the full rate, and one instruction of 64 × N reads each state's rows once;
transforms, loads and stores stay. "Free" leaves out products and their reads altogether: more
no instruction can bring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import typer

from papers.winrs_2025.plans import CHANNELS, TAPS, layer, omega, products
from winolab.algorithm import Tile
from winolab.device import H100, Device
from winolab.gpu.families.wgrad_mma.config import KC, Config
from winolab.gpu.families.wgrad_mma.cost import stage_cycles, unit_cycles
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan
from winolab.gpu.planner.device_model import MODEL
from winolab.ref.algorithms.winrs.kernels import Kernel


def cycles(tile: Tile, v: Config, device: Device = H100, how: str = "mma") -> dict[str, float]:
    """Cycles of a unit by what binds it: "mma", as the kernel is; "wgmma"; "free"."""
    found = unit_cycles(tile, v, device)
    if how == "mma":
        return found
    read = 2 * tile.alpha * (v.sharers(tile.alpha) * v.bi + v.bo)
    spared = read - (2 * tile.alpha * (v.bi + v.bo) if how == "wgmma" else 0)
    return {
        **found,
        "products": found["products"] * MODEL.gamma_mma.hopper if how == "wgmma" else 0.0,
        "shared memory": found["shared memory"] - MODEL.wgrad_mma.shared * spared / 128,
    }


def stage(tile: Tile, v: Config, device: Device = H100, how: str = "mma") -> float:
    """Cycles of a stage of KC units, what the device model adds to each included."""
    return stage_cycles(v, cycles(tile, v, device, how))


@dataclass(frozen=True)
class Line:
    """Fused Ω over direct products on one layer: as it is, on wgmma, with products for nothing."""

    taps: int
    channels: int
    plan: WgradMmaPlan
    direct: float  # seconds

    def speed(self, how: str) -> float:
        """Times as fast as direct products, the share of a stage applied to the whole time."""
        p = self.plan
        gain = stage(p.tile, p.config) / stage(p.tile, p.config, how=how)
        return gain * self.direct / p.predicted


def lines() -> Iterator[Line]:
    """Layers of equal work, as in the table of where the paper's conclusion holds."""
    for taps in TAPS:
        for channels in CHANNELS:
            problem = layer(channels, taps)
            plan = omega(problem, H100, "fp16")
            assert isinstance(plan, WgradMmaPlan)
            yield Line(taps, channels, plan, products(problem, H100, "fp16").predicted)


def main() -> None:
    """Print what a stage takes, and the speeds."""
    shown = {}
    for line in lines():
        p = line.plan
        shown[p.tile] = p.config
        speeds = (f"{how} {line.speed(how):.2f}" for how in ("mma", "wgmma", "free"))
        print(f"{line.taps}×{line.taps} {line.channels:4} channels {p.kernel:9}", *speeds)
    for tile, v in shown.items():
        for how in ("mma", "wgmma", "free"):
            parts = ", ".join(f"{k} {KC * c:.0f}" for k, c in cycles(tile, v, how=how).items())
            print(f"{Kernel(tile)} {how:6} {stage(tile, v, how=how):.0f} cycles a stage: {parts}")


if __name__ == "__main__":
    typer.run(main)
