"""What kernels are told: parameter structs as C lays them out, views of arrays, tensor maps.

Nothing here needs a GPU or its driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import Struct, calcsize
from typing import Any, Protocol, Self

POINTER, LONG, INT, FLOAT, MAP = "Q", "q", "i", "f", "128s"  # as struct packs them
ALIGNMENT = 64  # bytes, of a struct with tensor maps
MOST = 2**31 - 1  # that kernels count, in 32 bits
MAX_STRIDE = MOST // 16  # of neighbouring pixels, of which they take up to α − 1 at once
VECTOR = 16  # bytes of the widest access
ALIGNED = 256  # bytes: where an array of the workspace may begin, as cudaMalloc's do
LINE = 128  # bytes of memory that are read at once
BANKS = 32  # of shared memory, words of 4 bytes
SHARED_LINE = 4 * BANKS  # bytes of shared memory that are read or written at once
MOST_BLOCKS = 65_535  # of a launch along y and along z, as CUDA counts them
MATMUL = "cublasLtMatmul"  # what a library has among kernels
# What sums are long in multiples of where that library may cut them: products whose parts it keeps
# in a workspace left out the last of others, 4 of 16,900 on an H200 (docs/notes/127). No step of a
# block is longer.
WHOLE = 128


def aligned(size: int) -> int:
    """Bytes of the workspace that an array of so many takes."""
    return -(-size // ALIGNED) * ALIGNED


def uncounted(name: str, value: int) -> ValueError:
    """What to raise for a number beyond MOST."""
    return ValueError(
        f"{name} is {value}, and the CUDA kernels count to {MOST}: split the arrays, along batch, "
        "channels or outputs"
    )


class Layout:
    """A kernel's parameter struct: its fields in order, laid out as C does."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        """``fields`` are (names separated by blanks, their kind)."""
        self.fields = tuple((name, kind) for names, kind in fields for name in names.split())
        # Trailing "0q" pads to the alignment of the widest field.
        kinds = [kind for _, kind in self.fields]
        self._struct = Struct(f"@{''.join(kinds)}0q")
        self.size = self._struct.size  # bytes
        starts = ("".join(kinds[:i]) + f"0{kind[-1]}" for i, kind in enumerate(kinds))
        self.offsets = tuple(calcsize(f"@{start}") for start in starts)

    def pack(self, *values: float | bytes | TensorMap | None) -> Params:
        """The struct with these values, bytes of arrays from their first element on; None for a
        tensor map that the kernel does not use. Raises ValueError for what no INT holds."""
        for (name, kind), value in zip(self.fields, values, strict=True):
            if kind == INT and isinstance(value, int) and not -MOST <= value <= MOST:
                raise uncounted(f"the number {name} of a launch", value)
        known = (b"" if v is None else v.described() if isinstance(v, TensorMap) else v
                 for v in values)  # fmt: skip
        kinds = tuple(kind for _, kind in self.fields)
        return Params(self.offsets, kinds, values, self._struct.pack(*known))

    def read(self, address: int) -> dict[str, Any]:
        """The values of such a struct in host memory, by name."""
        values = self._struct.unpack(ctypes.string_at(address, self.size))
        return {name: value for (name, _), value in zip(self.fields, values, strict=True)}


@dataclass(frozen=True)
class Params:
    """A parameter struct: its values in order, and its memory."""

    offsets: tuple[int, ...]
    kinds: tuple[str, ...]
    values: tuple[Any, ...]  # numbers, bytes of arrays, tensor maps, None
    data: bytes

    @classmethod
    def of(cls, *structs: Params) -> Params:
        """The struct of these structs."""
        at, data = [], b""
        for s in structs:
            alignment = ALIGNMENT if MAP in s.kinds else 8  # of the struct, and of its size
            data += bytes(-len(data) % alignment)
            at.append(len(data))
            data += s.data + bytes(-len(s.data) % alignment)
        data += bytes(-len(data) % (ALIGNMENT if any(MAP in s.kinds for s in structs) else 8))
        return cls(
            tuple(first + o for first, s in zip(at, structs, strict=True) for o in s.offsets),
            tuple(kind for s in structs for kind in s.kinds),
            tuple(value for s in structs for value in s.values),
            data,
        )

    def buffer(self) -> Any:
        """Its memory for a launch, ALIGNMENT-aligned; tensor maps in it are not encoded yet."""
        memory = ctypes.create_string_buffer(len(self.data) + 2 * ALIGNMENT)
        buffer = (ctypes.c_char * len(self.data)).from_buffer(
            memory, -ctypes.addressof(memory) % ALIGNMENT
        )
        buffer.raw = self.data
        return buffer

    def maps(self) -> Iterator[tuple[int, TensorMap]]:
        """Offsets of tensor maps, and these."""
        for offset, value in zip(self.offsets, self.values, strict=True):
            if isinstance(value, TensorMap):
                yield offset, value


@dataclass(frozen=True)
class View:
    """An array in device memory: address, and strides in elements, three spatial dimensions.

    x, y and their gradients are (batch, depth, height, width) with channels contiguous; w and dw
    are (OC, depth, height, width, IC). Dimensions that the problem lacks come first, with stride 0.
    """

    address: int  # while launches are recorded, one that stands for the array's: always aligned
    strides: tuple[int, ...]
    finish: Finish | None = None  # of y
    aligned: bool = True  # whether the array's address is a multiple of VECTOR

    def steps(self, batch: int, sizes: tuple[int, int, int]) -> list[int]:
        """A map's strides along dimensions of more than one element."""
        return [s for s, n in zip(self.strides, (batch, *sizes), strict=True) if n > 1]

    def even(self, batch: int, sizes: tuple[int, int, int]) -> bool:
        """Whether a map's pixels all lie at one distance from each other."""
        return in_order((batch, *sizes), self.strides, self.strides[-1])

    def alone(self, batch: int, sizes: tuple[int, int, int]) -> View:
        """A map whose dimensions of one element have stride 0, so that what is asked for beside it,
        and not copied, has an address that is aligned as the map's own."""
        sides = zip(self.strides, (batch, *sizes), strict=True)
        return replace(self, strides=tuple(stride if n > 1 else 0 for stride, n in sides))

    def in_vectors(self, width: int, steps: Iterable[int], size: int) -> bool:
        """Whether vectors of so many bytes may be read at all of these steps; ``steps`` are in
        elements of ``size`` bytes."""
        begins = self.address % width == 0 and (self.aligned or width <= size)
        return begins and all(step * size % width == 0 for step in steps)


def pitch(sizes: Sequence[int], strides: Sequence[int], channels: int) -> int | None:
    """Elements from each pixel of an array to the next; None where that differs, or where pixels of
    so many channels overlap. ``sizes`` and ``strides`` are of its other dimensions."""
    several = (s for n, s in zip(reversed(sizes), reversed(strides), strict=True) if n != 1)
    step = next(several, max(1, channels))
    return step if step >= channels and in_order(sizes, strides, step) else None


def irregular(sizes: Sequence[int], strides: Sequence[int]) -> ValueError:
    """What to raise where there is no ``pitch``."""
    return ValueError(f"rows of {sizes} lie at no one distance, by strides {strides}")


def in_order(sizes: Sequence[int], strides: Sequence[int], step: int) -> bool:
    """Whether places along all of these dimensions lie ``step`` elements apart."""
    count = 1
    for n, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if n != 1 and stride != step * count:
            return False
        count *= n
    return True


@dataclass(frozen=True)
class Finish:
    """The epilogue of y: addresses of bias and of what lies as y and is added, or 0; a slope."""

    bias: int
    residual: int
    slope: float


@dataclass(frozen=True)
class TensorMap:
    """An array of five dimensions, that of neighbours first, and the box that a copy brings of it.

    ``size``: bytes of an element; ``strides``: bytes, of all dimensions but the first, multiples of
    16; ``box``: elements, every ``steps``-th of a dimension, which are up to 8. It lies as the
    array does where it is ``plain``; else it has 64 or 128 bytes along the first dimension: where a
    copy puts 64, ``swizzled`` in tensor_map.cuh says, 128 lie as wgmma's 128-byte swizzle has them.
    CUDA driver API, cuTensorMapEncodeTiled.
    """

    address: int
    size: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    plain: bool = False
    steps: tuple[int, ...] = (1, 1, 1, 1, 1)

    @classmethod
    def of(
        cls,
        address: int,
        size: int,
        sizes: tuple[int, ...],
        apart: tuple[int, ...],
        box: tuple[int, ...],
        plain: bool = False,
        steps: tuple[int, ...] = (1, 1, 1, 1, 1),
    ) -> Self:
        """With strides in elements, ``apart`` of all dimensions but the first; of one whose size is
        1 the stride may be anything. Raises ValueError for sizes that copies do not count.
        """
        if (most := max(sizes)) > MOST:
            raise uncounted("the size of what is copied in boxes", most)
        strides: list[int] = []
        for i, stride in enumerate(apart):
            dense = sizes[i] * (strides[-1] if i else size)
            strides.append(stride * size if sizes[i + 1] > 1 else dense)
        return cls(address, size, sizes, tuple(strides), box, plain, steps)

    @property
    def spans(self) -> tuple[int, ...]:
        """Elements of the array, along each dimension, from a box's first to its last."""
        return tuple((n - 1) * s + 1 for n, s in zip(self.box, self.steps, strict=True))

    _STRUCT = Struct("@Q4q5i5iii5i")
    BYTES = 128  # that the driver writes

    def described(self) -> bytes:
        """As tests/gpu/host/tensor_map.hpp reads it."""
        found = self._STRUCT.pack(
            self.address, *self.strides, *self.sizes, *self.box, self.size, self.plain, *self.steps
        )
        return found.ljust(self.BYTES, b"\0")


@dataclass(frozen=True)
class PositionsMap(TensorMap):
    """An array whose copies walk a window of it, position by position.

    ``box`` has the channels and the positions of a copy; the window goes from ``lower`` to
    ``upper`` behind the last place, every ``steps``-th place of a dimension being a position, by
    width, height and depth. It has ``rank`` dimensions: of 4 the depth, of one place, is left out.
    CUDA driver API, cuTensorMapEncodeIm2col.
    """

    lower: tuple[int, int, int] = (0, 0, 0)
    upper: tuple[int, int, int] = (0, 0, 0)
    rank: int = 5

    def __post_init__(self) -> None:
        if self.rank == 4 and self.sizes[3] != 1:
            raise ValueError(f"a map of four dimensions has one depth, not {self.sizes[3]}")

    _CORNERS = Struct("@6hh")

    def described(self) -> bytes:
        """As tests/gpu/host/tensor_map.hpp reads it."""
        corners = self._CORNERS.pack(*self.lower, *self.upper, self.rank)
        at = self._STRUCT.size
        return super().described()[:at] + corners.ljust(self.BYTES - at, b"\0")


class Launcher(Protocol):
    """What a plan calls to launch a kernel: (grid, threads, parameters), and Kernel's ``early``."""

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, /, early: bool = False
    ) -> None: ...


Kernels = Mapping[str, Launcher]


# cuBLASLt's product of matrices whose columns lie one after another, ``pitch`` elements apart:
# out, rows × columns, is a · b, each transposed or not; ``kind`` and ``out_kind`` are cudaDataType,
# ``alignment`` is what divides every address, and ``size`` the workspace's, in bytes. There are
# ``images`` such products, whose matrices lie ``apart`` elements apart. No C struct has the same
# fields: gpu/cublaslt.py alone reads them, by this Layout.
PRODUCT = Layout(
    ("a b out workspace", POINTER),
    ("rows columns depth pitch_a pitch_b pitch_out apart_a apart_b apart_out size", LONG),
    ("kind out_kind transposed_a transposed_b alignment images", INT),
)


def quotient(divisor: int) -> tuple[int, int, int]:
    """quotient.cuh's Quotient: magic number, shift, divisor."""
    shift = (divisor - 1).bit_length()
    return -(-(1 << 31 + shift) // divisor), shift, divisor
