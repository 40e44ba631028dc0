"""Copies between a map, or a filter, and its phases as channels of a smaller one: stack.cuh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import VECTOR, Kernels, View, quotient

STACK, UNSTACK = "winolab_stack", "winolab_unstack"
PARAMS = layout("StackParams", "stack", include="quotient")
# As stack.cuh has them: of a block; elements or vectors of a thread, of apart elements half as many
# vectors; vectors of a pixel of the smaller map that a block has at most.
THREADS, EACH, HELD = 256, 4, 64
MOST_PITCH = HELD * VECTOR * 65_535  # bytes of a pixel, whose blocks are a grid's second dimension


@dataclass(frozen=True)
class StackUnit:
    """The kernels, of elements of so many bytes."""

    itemsize: int

    title = "phases as channels"

    def source(self) -> str:
        """The translation unit."""
        return unit(self.title, {"STACK_SIZE": self.itemsize}, {}, ("stack",))

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return dict.fromkeys((STACK, UNSTACK), 0)


class Side(NamedTuple):
    """A dimension of a copy: ``size`` pixels of the map, or taps, lie ``stride`` elements apart;
    pixel i of phase q of the smaller one is ``step`` i + q − ``shift``."""

    stride: int
    size: int
    stacked: int  # pixels of the smaller one
    step: int
    phases: int
    shift: int


def copy(
    kernels: Kernels, whole: View, near: View, sides: Sequence[Side], count: int,
    channels: int, pitch: int, itemsize: int, *, back: bool = False,
) -> None:  # fmt: skip
    """Launch the copy of ``count`` maps to the smaller, dense one ``near``, or ``back``. Pixels
    have ``channels``, and ``pitch`` with what is filled up; ``whole`` of a filter says behind its
    other strides how far its channels are apart."""
    vector = VECTOR // itemsize
    apart = (*whole.strides, 1)[4]
    lengths = count, *(side.size for side in sides)
    moved = [s for s, n in zip(whole.strides, lengths, strict=False) if n > 1]
    filled = pitch != channels * math.prod(side.phases for side in sides)
    wide = not (channels % vector or filled) and apart == 1
    wide = wide and whole.in_vectors(VECTOR, moved, itemsize)
    depth, height, width = (side.size if back else side.stacked for side in sides)
    of_map, of_near = channels // (vector if wide else 1), pitch // vector
    held = min(HELD, of_near)
    each = EACH if back or wide else EACH // 2
    parts = -(-width * (of_map if back else held) // (THREADS * each))
    split = (side.step if back else side.phases for side in reversed(sides))
    divisors = parts, height, depth, held, of_map, *split
    params = PARAMS.pack(
        whole.address, near.address, whole.strides[0], apart, channels, pitch, int(wide),
        *(n for side in sides for n in side), *(n for by in divisors for n in quotient(by)),
    )  # fmt: skip
    blocks = count * depth * height * parts, 1 if back else -(-of_near // held), 1
    kernels[UNSTACK if back else STACK](blocks, THREADS, params)
