"""The constants of all timing models: device_model.toml, read into one value a physical quantity.

A family's model takes its own parameters from a field of ``MODEL`` and what every family shares
from ``MODEL.device``. ``python -m experiments.calibrate.device_model`` refits them from kept rows.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winolab.gpu.planner.device_sections import (
        Cublaslt,
        Depthwise,
        Direct,
        DirectSplit,
        Fused2d,
        Gamma,
        GammaFfma,
        GammaMma,
        GammaWgmma,
        Grouped,
        ImplicitGemm,
        ImplicitGemmWgmma,
        Nested,
        Overlap,
        Patches,
        Shared,
        Skinny,
        Thin,
        Walked,
        WgradDirect,
        WgradFfma,
        WgradGrouped,
        WgradMma,
        WgradThin,
        WgradWinograd,
    )

FILE = "device_model.toml"


@dataclass(frozen=True)
class DeviceModel:
    """All of device_model.toml that is a number; its sections are the fields.

    MODEL reads the file when a section is first asked for: a plan that was kept needs none, and a
    process's first call took a tenth longer.
    """

    device: Shared
    overlap: Overlap
    gamma: Gamma
    fused2d: Fused2d
    gamma_ffma: GammaFfma
    gamma_wgmma: GammaWgmma
    gamma_mma: GammaMma
    nested: Nested
    direct: Direct
    direct_split: DirectSplit
    implicit_gemm: ImplicitGemm
    implicit_gemm_wgmma: ImplicitGemmWgmma
    wgrad_ffma: WgradFfma
    wgrad_mma: WgradMma
    wgrad_winograd: WgradWinograd
    wgrad_direct: WgradDirect
    wgrad_im2col: Walked
    wgrad_im2col_split: Walked
    im2col: Walked
    im2col_split: Walked
    depthwise: Depthwise
    thin: Thin
    grouped: Grouped
    skinny: Skinny
    patches: Patches
    wgrad_grouped: WgradGrouped
    wgrad_thin: WgradThin
    cublaslt: Cublaslt

    if not TYPE_CHECKING:  # for which it would have any name

        def __getattr__(self, name: str) -> Any:
            if name not in DeviceModel.__dataclass_fields__:
                raise AttributeError(f"DeviceModel has no section {name}")
            vars(self).update(vars(model_of(text())))
            return vars(self)[name]


def model_of(text: str) -> DeviceModel:
    """The model of such a file's text.

    Raises ValueError that names an entry that is missing, misspelled, no number or not positive.
    """
    found = tomllib.loads(text)
    if unknown := sorted(found.keys() ^ _kinds().keys()):
        raise ValueError(f"{FILE} has or lacks sections {', '.join(unknown)}; DeviceModel has them")
    return DeviceModel(**{of: _section(kind, of, found[of]) for of, kind in _kinds().items()})


def _kinds() -> dict[str, type]:
    from winolab.gpu.planner import device_sections  # whose classes take as long as the file

    return {n: getattr(device_sections, kind) for n, kind in DeviceModel.__annotations__.items()}


def _section(kind: type, name: str, found: dict[str, Any]) -> Any:
    entries = {key: entry for key, entry in found.items() if isinstance(entry, dict)}
    known = {f.name for f in fields(kind)}
    if wrong := sorted(entries.keys() ^ known):
        said = f"has or lacks {', '.join(wrong)}; {kind.__name__} has them"
        raise ValueError(f"[{name}] of {FILE} {said}")
    for key, entry in entries.items():
        value = entry.get("value")
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name}.{key} of {FILE} is {value!r}; expected a positive number")
    return kind(**{key: float(entry["value"]) for key, entry in entries.items()})


def text() -> str:
    """The file's text."""
    return resources.files("winolab.gpu.planner").joinpath(FILE).read_text("utf-8")


MODEL = object.__new__(DeviceModel)
