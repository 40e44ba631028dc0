"""How the Tensor Cores of each architecture sum products, from published models.

MMA-Sim (Xie et al. 2025, arXiv 2511.10909) and Khattak & Mikaitis (2025, arXiv 2512.07004) agree:
products of one step are exact; they and the accumulator are aligned to the largest exponent,
truncated, added, and the sum is truncated to FP32. Architectures differ in the bits that the
alignment keeps behind the 24 of FP32 and in how many products a step has: Ampere and Ada halve k of
their widest instructions, m16n8k16 of 16-bit numbers and m16n8k8 of TF32; Hopper's mma.sync and
wgmma and Blackwell's mma.sync and tcgen05 do not. docs/notes/045 has what an H100 measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import nearest_name


@dataclass(frozen=True)
class TensorCore:
    """One architecture's: bits behind FP32's that alignment keeps, products of a step by format."""

    extra_bits: int
    step: dict[str, int]

    def accumulation(self, precision: str) -> Accumulation:
        """How it sums products of that precision."""
        return Accumulation("tensor_core", self.step[precision], self.extra_bits, "truncate")

    def split(self) -> Accumulation:
        """How it sums products of FP16 parts, three of 16 numbers from zero, then added outside."""
        return replace(self.accumulation("fp16"), intervals=(3 * WIDEST,))


WIDEST = 16  # k of the widest instruction for 16-bit numbers
_HALVES = TensorCore(1, {"fp16": 8, "bf16": 8, "tf32": 4})
_WHOLE = TensorCore(2, {"fp16": 16, "bf16": 16, "tf32": 8})
TENSOR_CORES = {"ampere": _HALVES, "ada": _HALVES, "hopper": _WHOLE, "blackwell": _WHOLE}


def named(precision: str, architecture: str) -> dict[str, Any]:
    """The fields of Float that ``fp16@hopper`` means. Raises ValueError for what there is not.

    In "fp32_split" an instruction's 16 products of one pair of parts come before those of the next
    pair, in halves where the architecture has such.
    """
    if architecture not in TENSOR_CORES:
        near = nearest_name(architecture, list(TENSOR_CORES))
        raise ValueError(f"unknown architecture {architecture!r} of Tensor Cores{near}")
    core = TENSOR_CORES[architecture]
    if precision == "fp32_split":
        steps = WIDEST // core.step["fp16"]
        return {"accumulation": core.split(), "ahead": steps if steps > 1 else 0}
    if precision not in core.step:
        raise ValueError(
            f"precision '{precision}@{architecture}'; expected {', '.join(core.step)}, "
            "fp32_split before the @, whose products Tensor Cores sum"
        )
    return {"accumulation": core.accumulation(precision)}
