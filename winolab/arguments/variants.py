"""What texts of algorithms name behind "variant=", each brought to one form."""

from __future__ import annotations

from typing import Any

from winolab.arguments.values import counted

BLOCKS = ("base", "ruse", "c64")  # of Im2col-Winograd, sections 5.1, 5.4 and 5.6
FUSED = "fused"  # transforms of the filter, of gradients of all operands, inside the block
FUSED_FP16 = "fused:fp16"  # the same with sums in FP16
SEGMENTED = "segments"  # of a width that tiles do not divide, section 5.5
TWO_LEVEL = "two_level"
CUBLASLT = "cublaslt"  # whose products direct convolution is, where filters have one tap


def of_direct(text: Any) -> str | None:
    """Direct convolution's: a library."""
    if not text or text == CUBLASLT:
        return text or None
    raise ValueError(f"direct: unknown variant {text!r}; expected {CUBLASLT!r} or none")


def of_omega(text: Any) -> str | None:
    """Ω's: kernels that transform inside the block."""
    if not text or text in (FUSED, FUSED_FP16):
        return text or None
    raise ValueError(f"omega: unknown variant {text!r}; expected {FUSED!r} or {FUSED_FP16!r}")


def of_gamma(text: Any) -> str | None:
    """Γ's: two-level sums, or what of Im2col-Winograd's kernels is on, a block first.

    >>> of_gamma("segments+fused")
    'base+fused+segments'
    """
    if not text:
        return None
    name, _, products = str(text).partition(":")
    if name == TWO_LEVEL and (count := counted(products)):
        return f"{TWO_LEVEL}:{count}"
    names = str(text).split("+")
    known = [name for name in (*BLOCKS, FUSED, SEGMENTED) if name in names]
    blocks = [name for name in known if name in BLOCKS]
    if len(known) != len(names) or len(blocks) > 1:
        raise ValueError(
            f"gamma: unknown variant {text!r}; expected two_level:32, or another number of "
            f"products, or one of {', '.join(BLOCKS)} with +{FUSED}, +{SEGMENTED} or both"
        )
    return "+".join(known if blocks else [BLOCKS[0], *known])


def folded(variant: str | None) -> int:
    """Products of a sum of the first of two levels; 0: there is one level."""
    name, _, products = (variant or "").partition(":")
    return int(products) if name == TWO_LEVEL else 0


def published(variant: str | None) -> tuple[str, ...]:
    """What of Im2col-Winograd's kernels is on, its block first; nothing where none is named."""
    return () if not variant or folded(variant) else tuple(variant.split("+"))
