"""What a GPU has, as far as plans and rooflines need it: read from it, or from its datasheet."""

from __future__ import annotations

from dataclasses import dataclass

# Dense multiply-adds in FP16 with FP32 sums, a cycle and multiprocessor, from the white papers
# named below; of 8.6 and 8.9 GeForce's, half of what their professional siblings have.
MATRIX = {(7, 0): 512, (7, 5): 256, (8, 0): 1024, (8, 6): 256, (8, 9): 256, (9, 0): 2048}
# With sums in FP16: as fast, but on those that GeForces have, twice.
TENSOR = MATRIX | {c: 2 * MATRIX[c] for c in ((7, 5), (8, 6), (8, 9))}
LEAST = 256  # what later ones have at least
SYSTEM = 1 << 10  # bytes of each block's shared memory that the driver takes: 8.0 and later
REGISTERS = 65536  # 32-bit, of a multiprocessor: compute capability 3.7 to 9.0


@dataclass(frozen=True)
class Device:
    """One GPU. Sizes in bytes, the clock in Hz (the boost clock that the driver states).

    ``bandwidth`` (bytes/s) is 0 where it is not known. Rates a cycle follow from the compute
    capability: a GPU has the same ones by its driver as by its datasheet.
    """

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    clock: float
    shared_memory: int  # most that one block can have
    l2: int
    memory: int
    bandwidth: float = 0.0

    @property
    def lanes(self) -> int:
        """FP32 multiply-adds a cycle and multiprocessor."""
        return 64 if self.compute_capability in ((7, 0), (7, 5), (8, 0)) else 128

    @property
    def large_blocks(self) -> bool:
        """Whether a block has what Hopper's have.

        Bulk copies, clusters, registers that warps hand over, 227 KB of shared memory: compute
        capability 9.0 and 10.0, but not 8.x and 12.0.
        """
        return self.compute_capability >= (9, 0) and self.shared_memory >= 227 << 10

    def resident(self, shared_memory: int) -> int:
        """Blocks of so many bytes of shared memory that a multiprocessor has room for, as CUDA's
        occupancy calculator counts them: it has SYSTEM more than a block can have."""
        return (self.shared_memory + SYSTEM) // (shared_memory + SYSTEM)

    @property
    def wgmma(self) -> bool:
        """Whether warpgroups multiply matrices of shared memory: compute capability 9.0 alone."""
        return self.compute_capability == (9, 0)

    @property
    def early_launches(self) -> bool:
        """Whether a launch may begin before the one before it on the stream ends."""
        return self.compute_capability >= (9, 0)

    @property
    def matrix(self) -> int:
        """FP16 multiply-adds with FP32 sums a cycle and multiprocessor; at least, if unknown."""
        return MATRIX.get(self.compute_capability, LEAST)

    @property
    def tensor(self) -> int:
        """Dense FP16 multiply-adds of the Tensor Cores a cycle and multiprocessor, with the faster
        sums; at least, if unknown; 0 without them.
        """
        return TENSOR.get(self.compute_capability, LEAST * (self.compute_capability >= (7, 0)))

    @property
    def memory_rate(self) -> float:
        """Bandwidth over an H100's, which times were fitted to; 1 where it is not known."""
        return self.bandwidth / H100.bandwidth if self.bandwidth else 1.0

    @property
    def fp32_peak(self) -> float:
        """FP32 FLOP/s without Tensor Cores, an FMA being two."""
        return 2 * self.lanes * self.multiprocessors * self.clock

    @property
    def fp16_peak(self) -> float:
        """Dense FP16 FLOP/s of the Tensor Cores; 0 without them, or if unknown."""
        rate = TENSOR.get(self.compute_capability, 0)
        return 2 * rate * self.multiprocessors * self.clock


H100 = Device("NVIDIA H100 80GB HBM3", (9, 0), 132, 1.98e9, 232448, 50 << 20, 80 << 30, 3.352e12)

# The papers' GPUs, and those that kernels are planned for. Multiprocessors, clocks, caches and
# bandwidths from NVIDIA's architecture white papers: GM200 (GTX Titan X), V100 (WP-08608), Turing
# (WP-09183), A100 (V1.0), GA102 (V2.1), Ada (V2.1), H100 (WP-10792), and the data sheets of RTX
# A5000, A100 and L40S; an H200's L2 and bandwidth as its driver states them (4.8 TB/s by its data
# sheet); shared memory from the CUDA C++ Programming Guide, table "Technical Specifications per
# Compute Capability".
DATASHEETS = {
    "titanx": Device(
        "NVIDIA GeForce GTX TITAN X", (5, 2), 24, 1.075e9, 49152, 3 << 20, 12 << 30, 336.5e9
    ),
    "v100": Device("Tesla V100-SXM2-16GB", (7, 0), 80, 1.53e9, 98304, 6 << 20, 16 << 30, 900e9),
    "rtx2080ti": Device(
        "NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 1.545e9, 65536, 11 << 19, 11 << 30, 616e9
    ),
    "rtx3060ti": Device(
        "NVIDIA GeForce RTX 3060 Ti", (8, 6), 38, 1.665e9, 101376, 4 << 20, 8 << 30, 448e9
    ),
    "rtx3090": Device(
        "NVIDIA GeForce RTX 3090", (8, 6), 82, 1.695e9, 101376, 6 << 20, 24 << 30, 936e9
    ),
    "rtx4090": Device(
        "NVIDIA GeForce RTX 4090", (8, 9), 128, 2.52e9, 101376, 72 << 20, 24 << 30, 1008e9
    ),
    "l40s": Device("NVIDIA L40S", (8, 9), 142, 2.52e9, 101376, 96 << 20, 48 << 30, 864e9),
    "a5000": Device("NVIDIA RTX A5000", (8, 6), 64, 1.695e9, 101376, 6 << 20, 24 << 30, 768e9),
    "a100": Device(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41e9, 166912, 40 << 20, 80 << 30, 2.039e12
    ),
    "h100": H100,
    "h200": Device("NVIDIA H200", (9, 0), 132, 1.98e9, 232448, 60 << 20, 141 << 30, 4.814304e12),
}


def datasheet(name: str) -> Device:
    """The GPU of that name: "rtx4090", "RTX 4090", "h100", "NVIDIA H100 80GB HBM3", …

    Raises ValueError that lists the known ones, TypeError for what is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"device is of type {type(name).__name__}; expected a name as 'rtx4090'")
    short = "".join(name.lower().split()).replace("-", "").removeprefix("nvidia")
    for key in (short, short.removeprefix("geforce"), short.removeprefix("rtx")):
        if key in DATASHEETS:
            return DATASHEETS[key]
    for known in DATASHEETS.values():
        if known.name == name:
            return known
    raise ValueError(f"unknown device {name!r}; expected one of {', '.join(DATASHEETS)}")
