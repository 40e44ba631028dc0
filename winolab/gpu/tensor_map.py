"""What bulk tensor copies know of an array."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct


@dataclass(frozen=True)
class TensorMap:
    """An array of five dimensions, that of neighbours first, and the box that a copy brings of it.

    ``size``: bytes of an element; ``strides``: bytes, of all dimensions but the first, multiples of
    16; ``box``: elements. It lies as the array does where it is ``plain``; else it has 64 or 128
    bytes along the first dimension: where a copy puts 64, ``swizzled`` in tensor_map.cuh
    says, 128 lie as wgmma's 128-byte swizzle has them. CUDA driver API, cuTensorMapEncodeTiled.
    """

    address: int
    size: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    plain: bool = False

    @classmethod
    def of(
        cls,
        address: int,
        size: int,
        sizes: tuple[int, ...],
        steps: tuple[int, ...],
        box: tuple[int, ...],
        plain: bool = False,
    ) -> TensorMap:
        """With strides in elements, ``steps`` of all dimensions but the first; of one whose size is
        1 the step may be anything.
        """
        strides: list[int] = []
        for i, step in enumerate(steps):
            dense = sizes[i] * (strides[-1] if i else size)
            strides.append(step * size if sizes[i + 1] > 1 else dense)
        return cls(address, size, sizes, tuple(strides), box, plain)

    _STRUCT = Struct("@Q4q5i5iii")

    def described(self) -> bytes:
        """As tests/gpu/host/tensor_map.hpp reads it."""
        return self._STRUCT.pack(
            self.address, *self.strides, *self.sizes, *self.box, self.size, self.plain
        )
