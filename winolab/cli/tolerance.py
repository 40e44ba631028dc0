"""The command ``winolab tolerance``: rtol and atol of a layer's result, and whether one fits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from winolab.api.tolerance import tolerance
from winolab.arguments import shapes
from winolab.cli.screen.render import AsJson, document
from winolab.measure import DATA
from winolab.problem import NAMES
from winolab.ref.error.roundings import DIRECTIONS

LAYER = "32x56x56x64:64x3x3"
REFUSED = 1  # exit code of a result that is not what the algorithm may return
Array = Annotated[Path | None, typer.Option(metavar="NPY", help="An operand, channels last.")]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="tolerance")(command)


def command(
    layer: Annotated[
        str | None,
        typer.Argument(
            metavar="LAYER", help=f"Input and filter, as {LAYER}; with arrays, theirs forward."
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="Ours (winograd:4x4:3x3), a tile (F(4x4,3x3)), or another library's: "
            "cudnn:winograd_nonfused, miopen:ConvBinWinogradRxSf2x3g1, acl:winograd, "
            "onednn:jit_wino_4x3."
        ),
    ] = "direct",
    precision: Annotated[
        str, typer.Option(help="fp32, tf32, bf16, fp16, fp16@hopper; mixed as fp16,transform=fp16.")
    ] = "fp32",
    confidence: Annotated[
        float, typer.Option(help="That none of all results exceeds the predicted tolerance.")
    ] = 0.999,
    direction: Annotated[str, typer.Option(help=f"{', '.join(DIRECTIONS)}.")] = "forward",
    stride: Annotated[str, typer.Option(help="A number, or one a dimension (1x2).")] = "1",
    padding: Annotated[str, typer.Option(help="The same, or 0:1x1:2, same, valid.")] = "0",
    dilation: Annotated[str, typer.Option(help="A number, or one a dimension.")] = "1",
    groups: Annotated[int, typer.Option(help="Groups of channels.")] = 1,
    data: Annotated[str, typer.Option(help=f"{', '.join(DATA)}.")] = "u11",
    out_dtype: Annotated[
        str | None, typer.Option(help="Of the results; by default the precision's.")
    ] = None,
    x: Array = None,
    w: Array = None,
    dy: Array = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="NPY",
            help="A result of these operands; exit code 1 if the algorithm cannot return it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predicted and proven rtol and atol of a layer's result, for allclose with the exact one.

    For example:

    ```
    winolab tolerance 32x56x56x64:64x3x3 --padding 1 --algorithm "F(4x4,3x3)"
    winolab tolerance 1x32x32x8:16x3x3 --precision fp16 --algorithm acl:winograd
    winolab tolerance --check y.npy --x x.npy --w w.npy --padding 1
    ```
    """
    given = {"x": x, "w": w, "dy": dy}
    names = NAMES.get(direction, NAMES["forward"])[:2]
    arrays = {name: _loaded(path) for name, path in given.items() if path}
    if arrays and set(arrays) != set(names):
        raise ValueError(f"operands {', '.join(arrays)}; {direction} has --{' and --'.join(names)}")
    if check and not arrays:
        raise ValueError(f"--check needs the operands: give --{' and --'.join(names)}")
    if layer is None:
        if direction != "forward" or not arrays:
            raise ValueError(f"no layer; expected its input and filter, such as {LAYER}")
        x_shape, w_shape = (arrays[name].shape for name in names)
    else:
        input, colon, filter = layer.partition(":")
        if not colon:
            raise ValueError(f"layer {layer!r}; expected input and filter, such as {LAYER}")
        problem = shapes.problem(input, filter, groups=groups, padding="same")
        x_shape, w_shape = problem.x_shape, problem.w_shape
    found = tolerance(
        x_shape,
        w_shape,
        direction=direction,  # pyright: ignore[reportArgumentType]
        algorithm=algorithm,
        stride=shapes.each(stride, "stride"),
        padding=shapes.ends(padding),
        dilation=shapes.each(dilation, "dilation"),
        groups=groups,
        precision=precision,
        data=tuple(arrays[name] for name in names) if arrays else data,
        confidence=confidence,
        out_dtype=out_dtype,
    )
    told = found.to_dict()
    checked = None if check is None else found.check(_loaded(check))
    if checked is not None:
        told["check"] = checked.to_dict()
    if as_json:
        print(document(told))
    else:
        print(found)
        if checked is not None:
            print(f"{check}: {checked}")
    if checked is not None and not checked:
        raise typer.Exit(REFUSED)


def _loaded(path: Path) -> np.ndarray:
    """The array of a file of numpy.save. Raises ValueError for what holds none."""
    try:
        found: Any = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} holds no array of numbers, as numpy.save writes it") from None
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{path} holds several arrays; expected one, as numpy.save writes it")
    return found
