"""Whether this machine's memory holds what a case draws."""

from __future__ import annotations

import math
import os
from decimal import Decimal

from winolab.measure import OPERANDS, Case

ITEMSIZE = 4  # bytes of an operand's element: cases draw float32


def check_held(case: Case) -> None:
    """Raise ValueError where this machine's memory does not hold the case's operands."""
    first, second = (math.prod(getattr(case.problem, name)) for name in OPERANDS[case.direction])
    wanted, there = ITEMSIZE * (first + second), memory()
    if there and wanted > there:
        raise ValueError(
            f"input {case.input} and filter {case.filter} are {Decimal(wanted):.3g} B of operands, "
            f"and this machine has {there:.3g} B of memory; expected smaller sizes"
        )


def memory() -> int | None:
    """Bytes of memory that the machine has; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
