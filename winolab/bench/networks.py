"""The layers of real networks, as data (networks.json), and their text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from winolab.algorithm import Algorithm, Problem

FILE = Path(__file__).parent / "networks.json"
T = TypeVar("T")
SIZES, SIDES = r"([\dx]+)", r"\d+(?:-\d+)?"
TEXT = re.compile(
    rf"{SIZES}>{SIZES}(?:s{SIZES})?(?:p({SIDES}(?:x{SIDES})*))?(?:d{SIZES})?(?:g(\d+))?"
)


@dataclass(frozen=True)
class BatchedLayer:
    """A layer by its input, of any dimensions, strides, paddings, dilations and groups.

    In text 32x224x224x3>64x7x7s2p3: batch, input and its channels, ">", output channels and
    filter; then stride, padding, dilation (d) and groups (g), each one number or one a dimension,
    left out where it is 1 (padding: 0). Padding that differs before and behind has both: p3-0 of
    four causal taps. A network's layer without batch, 0, leaves that out, too.
    """

    input: tuple[int, ...]
    channels: int
    filters: int
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int | tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    batch: int = 0
    kernel: None = None  # no paper's is meant

    @cached_property
    def problem(self) -> Problem:
        """The layer's shapes."""
        return Problem.of(
            (self.batch, *self.input, self.channels),
            (self.filters, *self.taps, self.channels // self.groups),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    @property
    def group(self) -> str:
        """What it is summed up with: the first of these that it is."""
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        if self.channels <= 16:
            return "stem"
        if max(self.stride) > 1:
            return "strided"
        if max(self.dilation) > 1:
            return "dilated"
        return "1x1" if max(self.taps) == 1 else "dense"

    @property
    def networks(self) -> str:
        """The networks of the file that have it, with commas."""
        return ",".join(_names().get(replace(self, batch=0), ()))

    def named(self, direction: str) -> Algorithm | None:
        """No algorithm: the planner's choice is what is measured."""

    def __str__(self) -> str:
        sizes = (*(() if not self.batch else (self.batch,)), *self.input, self.channels)
        text = f"{_joined(sizes)}>{_joined((self.filters, *self.taps))}"
        for letter, values, usual in (
            ("s", self.stride, 1),
            ("p", self.padding, 0),
            ("d", self.dilation, 1),
        ):
            if any(v != usual for v in values):
                text += letter + _joined(values[:1] if len({*values}) == 1 else values)
        return text + (f"g{self.groups}" if self.groups > 1 else "")


def parse(text: str, batch: int | None = None) -> BatchedLayer:
    """A layer of its text; with ``batch`` of a text that has none.

    Raises ValueError for another text.
    """
    found = TEXT.fullmatch(text)
    try:
        if not found:
            raise ValueError
        sizes, filter_ = (tuple(map(int, part.split("x"))) for part in found.groups()[:2])
        if batch is None:
            batch, *sizes = sizes
        filters, *taps = filter_
        ndim = len(taps)
        *spatial, channels = sizes
        if len(spatial) != ndim or not 1 <= ndim <= 3:
            raise ValueError
        stride, dilation = (_each(found[n] or "1", ndim, int) for n in (3, 5))
        padding = _each(found[4] or "0", ndim, _sides)
    except ValueError:
        raise ValueError(
            f"layer {text!r}; expected N x input x IC > OC x filter, then s, p, d and g for "
            "stride, padding, dilation and groups, such as 32x224x224x3>64x7x7s2p3"
        ) from None
    return BatchedLayer(
        tuple(spatial), channels, filters, tuple(taps), stride, padding, dilation,
        int(found[6] or 1), batch,
    )  # fmt: skip


@cache
def networks() -> dict[str, dict[str, Any]]:
    """Every network by name: its input without batch, its batches, its layers' texts and counts."""
    return json.loads(FILE.read_text())["networks"]


def layers_of(name: str) -> Iterator[tuple[BatchedLayer, int]]:
    """A network's layers in each of its batches, and how often a forward pass calls each."""
    network = networks()[name]
    for batch in network["batches"]:
        for text, count in network["layers"].items():
            yield parse(text, batch), count


def distinct() -> list[BatchedLayer]:
    """Every layer of all networks, once."""
    return list(dict.fromkeys(layer for name in networks() for layer, _ in layers_of(name)))


@cache
def _names() -> dict[BatchedLayer, list[str]]:
    found: dict[BatchedLayer, list[str]] = {}
    for name, network in networks().items():
        for text in network["layers"]:
            found.setdefault(parse(text, 0), []).append(name)
    return found


def _sides(text: str) -> int | tuple[int, int]:
    before, _, behind = text.partition("-")
    sides = int(before), int(behind or before)
    return sides if sides[0] != sides[1] else sides[0]


def _each(part: str, ndim: int, of: Callable[[str], T]) -> tuple[T, ...]:
    values = tuple(map(of, part.split("x")))
    if len(values) == 1:
        values *= ndim
    if len(values) != ndim:
        raise ValueError
    return values


def _joined(values: Sequence[int | tuple[int, int]]) -> str:
    return "x".join(str(v) if isinstance(v, int) else f"{v[0]}-{v[1]}" for v in values)
