"""The commands ``winolab algorithms`` and ``devices``: what can be named, and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from winolab.algorithm import KINDS, Algorithm, Problem, direct, parse_algorithm
from winolab.cli import process
from winolab.cli.screen import fitted
from winolab.cli.screen.render import AsJson, document
from winolab.device import DATASHEETS, H100, Device
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.recast.pieces import planned
from winolab.gpu.planner.request import DIRECTIONS, Request
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.kinds.registry import ENGINES

Row = dict[str, Any]
# One image and one channel; a gradient by F(4, 3) has the filter of 4 taps.
TRIED = [Problem.of((1, 9, 9, 1), (1, r, r, 1), padding=1) for r in (3, 4)]
STRIDED = Problem.of((1, 9, 9, 1), (1, 3, 3, 1), padding=1, stride=2)
ALGORITHMS = (
    "Behind a form stand @ and the points (best, paper, wincnn or a list, x^2+1 and other factors "
    "among them; karatsuba, sfc:6, legendre), and ;key=value for an option. Reference: NumPy "
    "arrays, in every arithmetic; strides are its, too. CUDA: directions that kernels of an H100 "
    "have a plan for; winolab plan names others."
)
DEVICES = (
    "From data sheets: boost clock, dense FP16 with Tensor Cores. Plans: whether the CUDA kernels "
    "run there; other GPUs are planned for as papers had them. Named by --device, h100 or its "
    "whole name."
)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(name="algorithms")(algorithms_command)
    app.command(name="devices")(devices_command)


def algorithms_command(wide: fitted.Wide = False, as_json: AsJson = False) -> None:
    """Every kind of algorithm: its text form, its options, and the directions that it serves.

    For example:

    ```
    winolab algorithms
    ```
    """
    rows = algorithms()
    if as_json:
        print(document(rows))
    else:
        process.console(wide).print(algorithms_table(rows))


def devices_command(wide: fitted.Wide = False, as_json: AsJson = False) -> None:
    """Every GPU that plans can be made for, with what plans know of it.

    For example:

    ```
    winolab devices
    ```
    """
    rows = devices()
    if as_json:
        print(document(rows))
    else:
        process.console(wide).print(devices_table(rows))


def algorithms() -> list[Row]:
    """A row a kind; what it serves is found by trying."""
    rows = []
    for kind, made in KINDS.items():
        algorithm = parse_algorithm(made.form.partition("@")[0].partition(";")[0])
        rows.append(
            {
                "kind": kind,
                "form": made.form,
                "what": _first_sentence(made),
                "options": list(made.options()),
                "reference": _served(algorithm, TRIED),
                "strides": bool(_served(algorithm, [STRIDED])),
                "cuda": [d for d in DIRECTIONS if _planned(algorithm, d, H100)],
            }
        )
    return rows


def devices() -> list[Row]:
    """A row a data sheet."""
    return [
        {
            "device": short,
            "name": device.name,
            "compute_capability": "{}.{}".format(*device.compute_capability),
            "multiprocessors": device.multiprocessors,
            "clock_ghz": device.clock / 1e9,
            "fp32_tflops": device.fp32_peak / 1e12,
            "fp16_tflops": device.fp16_peak / 1e12,
            "bandwidth_gbs": device.bandwidth / 1e9,
            "memory_gib": device.memory / 2**30,
            "l2_mib": device.l2 / 2**20,
            "shared_kib": device.shared_memory / 2**10,
            "planned": _planned(direct(), "forward", device),
        }
        for short, device in DATASHEETS.items()
    ]


def algorithms_table(rows: Sequence[Row]) -> RenderableType:
    """A line a kind."""
    lines = [
        (
            row["form"],
            _directions(row["reference"]),
            "yes" if row["strides"] else "no",
            _directions(row["cuda"]),
            ", ".join(row["options"]) or "none",
            row["what"],
        )
        for row in rows
    ]
    titles = fitted.texts("form", "reference", "strides", "CUDA", "options", "what")
    return Group(fitted.of_rows(titles, lines), Text(), Text(ALGORITHMS, style="dim"))


def devices_table(rows: Sequence[Row]) -> RenderableType:
    """A line a device."""
    numbers = {
        "compute_capability": "capa-\nbility",
        "fp32_tflops": "FP32\nTFLOPS",
        "fp16_tflops": "FP16\nTFLOPS",
        "bandwidth_gbs": "GB/s",
        "memory_gib": "memory\nGiB",
        "multiprocessors": "multi-\nproces-\nsors",
        "clock_ghz": "clock\nGHz",
        "l2_mib": "L2\nMiB",
        "shared_kib": "shared\nKiB",
    }
    lines = [
        (
            row["device"],
            row["name"],
            "yes" if row["planned"] else "no",
            *(row[key] if isinstance(row[key], str) else f"{row[key]:.4g}" for key in numbers),
        )
        for row in rows
    ]
    titles = [*fitted.texts("device", "name", "plans"), *fitted.numbers(*numbers.values())]
    return Group(fitted.of_rows(titles, lines), Text(), Text(DEVICES, style="dim"))


def _served(algorithm: Algorithm, problems: Sequence[Problem]) -> list[str]:
    """The directions that the reference computes by it, of one of the problems."""
    run, engine = arithmetic("fp32"), ENGINES[algorithm.kind]
    found = []
    for direction in DIRECTIONS:
        for problem in problems:
            shapes = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
            operands = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}
            a, b = (np.zeros(shapes[name], np.float32) for name in operands[direction])
            try:
                getattr(engine, direction)(a, b, problem, algorithm, run)
            except ValueError:
                continue
            found.append(direction)
            break
    return found


def _planned(algorithm: Algorithm, direction: str, device: Device) -> bool:
    """Whether the CUDA kernels have a plan for it, in some precision, of one of the problems."""
    asked = (
        Request(problem, direction, device, algorithm, precision)
        for problem in TRIED
        for precision in ("fp32", "fp16")
    )
    return any(map(_has_plan, asked))


def _has_plan(request: Request) -> bool:
    try:
        if request.algorithm and request.algorithm.in_pieces:
            return bool(list(planned(request)))
        return bool(candidates(request).plans)
    except ValueError:  # such a GPU, or a piece, is refused
        return False


def _directions(names: Sequence[str]) -> str:
    if len(names) == len(DIRECTIONS):
        return "all"
    return ", ".join(name.replace("_", " ") for name in names) or "none"


def _first_sentence(documented: Any) -> str:
    return " ".join((documented.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
