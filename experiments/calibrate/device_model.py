"""Refits the planner's device model to kept rows: ``python -m experiments.calibrate.device_model``.

Every family's parameters are fitted to the logarithms of modelled over measured times, by robust
least squares, from their kept values on. What matters is which plan is picked: a plan weighs the
less the slower it is against the fastest that was timed beside it, and what a plan differs by from
those beside it counts as much as what all are off by. Entries with ``fitted = false`` are measured
otherwise and stay. ``--write`` replaces values, and what is said of the fit, in the file.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import least_squares

from experiments.calibrate.plans import plan_of
from experiments.calibrate.rows import Timed, rows
from experiments.harness.facts import ROOT
from winolab.gpu.families.cublaslt import cost as cublaslt
from winolab.gpu.families.depthwise import cost as depthwise
from winolab.gpu.families.direct import cost as direct
from winolab.gpu.families.fused2d import cost as fused2d
from winolab.gpu.families.gamma_ffma import cost as gamma_ffma
from winolab.gpu.families.gamma_mma import cost as gamma_mma
from winolab.gpu.families.gamma_wgmma import cost as gamma_wgmma
from winolab.gpu.families.grouped import cost as grouped
from winolab.gpu.families.im2col import cost as im2col
from winolab.gpu.families.implicit_gemm import cost as implicit_gemm
from winolab.gpu.families.nested import cost as nested
from winolab.gpu.families.patches import cost as patches
from winolab.gpu.families.skinny import cost as skinny
from winolab.gpu.families.thin import cost as thin
from winolab.gpu.families.wgrad_direct import cost as wgrad_direct
from winolab.gpu.families.wgrad_ffma import cost as wgrad_ffma
from winolab.gpu.families.wgrad_grouped import cost as wgrad_grouped
from winolab.gpu.families.wgrad_im2col import cost as wgrad_im2col
from winolab.gpu.families.wgrad_mma import cost as wgrad_mma
from winolab.gpu.families.wgrad_thin import cost as wgrad_thin
from winolab.gpu.families.wgrad_winograd import cost as wgrad_winograd
from winolab.gpu.planner.device_model import FILE, MODEL, DeviceModel, text

PATH = ROOT / "winolab" / "gpu" / "planner" / FILE
NEAR = 0.1  # by so much more than the fastest a plan's time weighs half
ROBUST = 0.05  # residuals beyond which they count linearly
CHANGED = 1e-3  # of a parameter, less than which it stays
Predict = Callable[[Any, DeviceModel], float]
# By the class of plans: the section of the file, and what says how long they take.
PREDICTED: dict[str, tuple[str, Predict]] = {
    "GammaFfmaPlan": ("gamma_ffma", gamma_ffma.seconds),
    "GammaWgmmaPlan": ("gamma_wgmma", gamma_wgmma.seconds),
    "Fused2dPlan": ("fused2d", fused2d.seconds),
    "GammaMmaPlan": ("gamma_mma", gamma_mma.seconds),
    "NestedPlan": ("nested", nested.seconds),
    "DirectPlan": ("direct", direct.seconds),
    "DirectSplitPlan": ("direct_split", direct.split_seconds),
    "Im2colPlan": ("im2col", im2col.seconds),
    "ImplicitGemmPlan": ("implicit_gemm", implicit_gemm.seconds),
    "WgradFfmaPlan": ("wgrad_ffma", wgrad_ffma.seconds),
    "WgradMmaPlan": ("wgrad_mma", wgrad_mma.seconds),
    "WgradWinogradPlan": ("wgrad_winograd", wgrad_winograd.predicted),
    "WgradColumnsPlan": ("wgrad_direct", wgrad_direct.columns_seconds),
    "WgradNarrowPlan": ("wgrad_direct", wgrad_direct.narrow_seconds),
    "WgradSplitPlan": ("wgrad_direct", wgrad_direct.split_seconds),
    "WgradIm2colPlan": ("wgrad_im2col", wgrad_im2col.seconds),
    "CublasltPlan": ("cublaslt", cublaslt.seconds),
    "GroupedPlan": ("grouped", grouped.seconds),
    "PatchesPlan": ("patches", patches.seconds),
    "SkinnyPlan": ("skinny", skinny.seconds),
    "ThinPlan": ("thin", thin.seconds),
    "WgradGroupedPlan": ("wgrad_grouped", wgrad_grouped.seconds),
    "WgradThinPlan": ("wgrad_thin", wgrad_thin.seconds),
    "DepthwisePlan": ("depthwise", depthwise.seconds),
}
WGMMA = "implicit_gemm_wgmma"  # of plans whose producers copy
# What families have for FP32's TF32 parts, by their own section.
PARTS = {"im2col": "im2col_split", "wgrad_im2col": "wgrad_im2col_split"}
SHARED = {"gamma_ffma": ("operand",)}  # of the section "device", fitted with a family's


def _free(section: str) -> Iterator[tuple[str, str]]:
    """Section and name of what is fitted."""
    entries = tomllib.loads(text())[section].items()
    for name, entry in entries:
        if isinstance(entry, dict) and entry.get("fitted", True):
            yield section, name
    yield from (("device", name) for name in SHARED.get(section, ()))


# Sections that have something to fit.
FITTED = tuple(
    section
    for section in (
        *dict.fromkeys(section for section, _ in PREDICTED.values()),
        WGMMA,
        *PARTS.values(),
    )
    if any(_free(section))
)


def called(p: Any, predict: Predict) -> Predict:
    """What says how long a plan's call takes, with the launches of its fallback: two of a filter
    gradient, one of a correlation with strides; others' come in a scan's place."""
    strided = any(n > 1 for n in (*p.problem.stride, *p.problem.dilation))
    launches = 2 if p.direction == "backward_filter" else int(strided)
    if not p.checks_accuracy or not launches:
        return predict
    return lambda plan, model: predict(plan, model) + launches * model.device.idle


@dataclass(frozen=True)
class Sample:
    """Plans of a family, their seconds, and which of them were timed side by side."""

    plans: tuple[tuple[Any, Predict], ...]
    seconds: np.ndarray
    beside: np.ndarray  # numbers of groups

    @classmethod
    def of(cls, timed: list[tuple[Timed, Any, Predict]]) -> Sample:
        groups: dict[tuple, int] = {}
        beside = [groups.setdefault((*t.where, t.step, t.products), len(groups)) for t, *_ in timed]
        seconds = np.array([t.seconds for t, *_ in timed])
        return cls(tuple((p, predict) for _, p, predict in timed), seconds, np.array(beside))

    def errors(self, model: DeviceModel) -> np.ndarray:
        """Logarithms of modelled over measured times."""
        modelled = [predict(p, model) for p, predict in self.plans]
        return np.log(np.array(modelled) / self.seconds)

    def residuals(self, model: DeviceModel) -> np.ndarray:
        """Weighted errors, and by how much they differ from the mean of those beside."""
        errors, count = self.errors(model), self.beside.max() + 1
        least = np.full(count, np.inf)
        np.minimum.at(least, self.beside, self.seconds)
        weights = 1 / (1 + ((self.seconds / least[self.beside] - 1) / NEAR) ** 2)
        sums = np.bincount(self.beside, weights * errors, count)
        means = sums / np.bincount(self.beside, weights, count)
        root = np.sqrt(weights)
        return np.concatenate([root * errors, root * (errors - means[self.beside])])


def samples(wanted: tuple[str, ...] = FITTED) -> dict[str, Sample]:
    """The plans of kept rows by section; of a plan that a step timed again the longer time."""
    found: dict[str, dict[tuple, tuple[Timed, Any, Predict]]] = {name: {} for name in wanted}
    for row in rows():
        if not set(_sections(row)) & set(wanted) or (p := plan_of(row)) is None:
            continue
        # FFMA direct products, say, are fitted elsewhere
        if type(p).__name__ not in PREDICTED or not getattr(p, "predictable", True):
            continue
        section, predict = PREDICTED[type(p).__name__]
        section = WGMMA if section == "implicit_gemm" and p.config.producers else section
        section = PARTS[section] if section in PARTS and p.config.tf32 else section
        key = (*row.where, row.step, row.kernel, row.products, row.variant, row.workspace)
        kept = found[section].get(key) if section in found else None
        if section in found and (kept is None or kept[0].seconds < row.seconds):
            found[section][key] = row, p, called(p, predict)
    return {name: Sample.of(list(timed.values())) for name, timed in found.items()}


def _sections(row: Timed) -> tuple[str, ...]:
    """Those that a row may be of."""
    fp32 = row.products == "fp32"
    known = {
        "cuBLASLt": ("cublaslt",),
        "patches": ("patches",),
        "skinny": ("skinny",),
        "thin": ("thin", "wgrad_thin"),
        "depthwise": ("depthwise",),
        "implicit GEMM": ("implicit_gemm", WGMMA),
        "grouped": ("grouped", "wgrad_grouped"),
    }
    if row.kernel in known:
        return known[row.kernel]
    if row.direction == "backward_filter":
        own = "wgrad_im2col"
        kinds = ("wgrad_direct", own, PARTS[own], "wgrad_winograd", "wgrad_mma")
        return ("wgrad_ffma",) if fp32 else kinds
    if row.kernel.startswith("F"):
        return ("fused2d" if fp32 else "nested",)
    if row.kernel == "Γ1(1,1)" and not fp32:
        return ("direct", "direct_split", "im2col", PARTS["im2col"])
    if row.variant.startswith("mma.sync"):
        return ("gamma_mma",)
    return ("gamma_ffma" if fp32 else "gamma_wgmma",)


def fit(section: str, sample: Sample, model: DeviceModel = MODEL) -> DeviceModel:
    """The model with a section's parameters, and what is SHARED with it, as ``sample`` has them."""
    names = [*_free(section)]

    def changed(logs: np.ndarray) -> DeviceModel:
        values = {name: float(value) for name, value in zip(names, np.exp(logs), strict=True)}
        found = model
        for of, name in values:
            found = replace(found, **{of: replace(getattr(found, of), **{name: values[of, name]})})
        return found

    start = np.log([_value(model, of, name) for of, name in names])
    found = least_squares(
        lambda logs: sample.residuals(changed(logs)),
        start,
        loss="soft_l1",
        f_scale=ROBUST,
        xtol=CHANGED,
        ftol=1e-5,
    )
    return changed(found.x)


def _value(model: DeviceModel, section: str, name: str) -> float:
    return getattr(getattr(model, section), name)


def told(sample: Sample, model: DeviceModel) -> dict[str, Any]:
    """What the file says of a fit: rows, and modelled over measured, its geometric mean and
    standard deviation."""
    errors = sample.errors(model)
    return {
        "rows": len(errors),
        "mean": round(math.exp(errors.mean()), 3),
        "spread": round(math.exp(errors.std()) - 1, 3),
    }


def written(old: str, model: DeviceModel, facts: dict[str, dict[str, Any]]) -> str:
    """The file's text with a model's values and what is said of the sections that were fitted."""
    lines, section = [], ""
    for line in old.splitlines():
        if head := re.match(r"\[(\w+)\]", line):
            section = head[1]
        entry, fact = (
            re.match(r"(\w+) = \{ value = ([^,]+)", line),
            re.match(r"(\w+) = [^{]*$", line),
        )
        if entry:
            value = float(f"{_value(model, section, entry[1]):.4g}")
            line = line.replace(entry[0], f"{entry[1]} = {{ value = {value!r}", 1)
        elif fact and fact[1] in facts.get(section, {}):
            line = f"{fact[1]} = {facts[section][fact[1]]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(
    write: Annotated[bool, typer.Option("--write", help="Replace the file's values.")] = False,
    only: Annotated[str, typer.Option(help="Sections with commas.")] = "",
) -> None:
    """Refit, and say what changes."""
    model, facts = MODEL, {}
    for section, sample in samples(tuple(only.split(",")) if only else FITTED).items():
        model = fit(section, sample, model)
        facts[section] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **told(sample, model)}
        changes = [
            f"{name} {_value(MODEL, of, name):.4g} -> {_value(model, of, name):.4g}"
            for of, name in _free(section)
        ]
        print(section, facts[section], *changes, sep="\n  ", flush=True)
    if write:
        PATH.write_text(written(PATH.read_text("utf-8"), model, facts), "utf-8")


if __name__ == "__main__":
    typer.run(main)
