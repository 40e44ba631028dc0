"""The formats in which the command shows transforms, and what every command prints with --json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from winolab.ref.algebra.printed import as_cuda, as_json, as_latex, as_numpy, as_text
from winolab.ref.algebra.transforms import Transforms

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
FORMATS: dict[str, Callable[[Transforms], str]] = {
    "text": as_text,
    "json": as_json,
    "latex": as_latex,
    "cuda": as_cuda,
    "numpy": as_numpy,
}


def plain(value: Any) -> Any:
    """NaN and infinities as text, which JSON does not have as numbers; also inside a value."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def document(value: Any) -> str:
    """One JSON document that any parser reads."""
    return json.dumps(plain(value), allow_nan=False)
