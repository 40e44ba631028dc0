"""What plans of Γ on Tensor Cores ask of a kernel config, whichever main kernel it is of."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from winolab.algorithm import Tile
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

KC = 16  # channels of a stage
PARTS = {"fp32_split": 2, "fp16": 1, "bf16": 1}  # 16-bit parts of a value, by precision
Files = dict[str, str]


class GammaConfig(KernelConfig):
    """A block of ``rows`` output rows; ``share`` filter rows use a stage of transformed input."""

    rows: int
    share: int
    rest: int  # such rows of a filter's last stage; 0: all, padded with zeros
    skew: int  # filter rows by which products with a low part precede the others in a stage
    xvec: int  # elements of a load of x
    threads: int  # of a block

    clusters: ClassVar[bool]  # whether the device has them
    entry: ClassVar[str]  # the main kernel's name
    params: ClassVar[str]  # the struct of its parameters
    split_k: int  # blocks of a cluster that share a sum
    kernels: tuple[str, ...]  # files besides the filter's transform; the main one is the last

    @abstractmethod
    def constants(self, tile: Tile, size: int) -> dict[str, int]:
        """The constants of the source, by name, for elements of ``size`` bytes."""

    @abstractmethod
    def choices(self, parts: int) -> dict[str, int]:
        """Which of the files are included, as constants."""

    @abstractmethod
    def files(self, parts: int) -> Files:
        """What the main kernel includes by macro besides the filter's transform."""

    @abstractmethod
    def columns(self, tile: Tile) -> int:
        """Tile columns of a block."""

    @abstractmethod
    def intervals(self, parts: int) -> tuple[int, ...]:
        """Products that the Tensor Core sums before FP32 adds them, in turn; none: all."""

    @abstractmethod
    def shared_memory(self, tile: Tile, parts: int, size: int) -> int:
        """Bytes of the main kernel's shared memory, for elements of ``size`` bytes."""


def loads(correlation: Correlation, aligned: bool) -> dict[str, int]:
    """Elements of a load of x, a store of y; 1 where channels or addresses are not aligned."""
    return {
        "xvec": 4 if aligned and correlation.channels % 4 == 0 else 1,
        "yvec": 4 if aligned and correlation.out_channels % 4 == 0 else 1,
    }
