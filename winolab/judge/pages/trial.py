"""A trial in which each array in turn touches memory that nobody may read or write."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from winolab.judge.candidate import Candidate, Declined
from winolab.judge.libraries import Zone
from winolab.judge.pages.protected import Protected, mprotect
from winolab.judge.pages.unmapped import Unmapped
from winolab.judge.trial import Case, Finding, Judge, Outcome
from winolab.problem import NAMES

PLACE = "beside protected pages"
ENDS = {"end": "beyond the end of", "start": "before the start of"}
VECTOR, LINE = 16, 64  # bytes: what "aligned" promises, and what no library asks more than
LOST = "illegal"  # said of the device by CUDA_ERROR_ILLEGAL_ADDRESS, in every library

Ending = Callable[[str], None]


def possible(candidate: Candidate, on_gpu: bool) -> bool:
    """Whether the system has such memory for the kernel's arrays; ``on_gpu``: a GPU's, too."""
    return on_gpu if candidate.arrays.cuda else mprotect() is not None


def run(judge: Judge, case: Case, ending: Ending) -> Outcome:
    """The outcome of a case: the kernel returns right values with each array at either end of such
    memory, if it does not end the process, or the device, there.

    ``ending`` hears before each call what it means if the process ends in it, and "" after it.
    """
    operands = judge.operands(case)
    if operands is None or case.problem.empty:
        return Outcome(left="it has no numbers in the range of their type")
    judge.held.clear()
    names = NAMES[judge.candidate.direction]
    where = ""
    try:
        judge.bare(case.problem, operands)()
        for array in range(2 + judge.candidate.out):
            for end, side in ENDS.items():
                where = f"{side} {names[array]}"
                y = _called(judge, case, operands, array, end, where, ending)
                if wrong := judge.said(case, operands, y):
                    return Outcome(judge.counted(Finding("place", f"{wrong}, no page {where}")))
    except Declined as error:
        return Outcome(left=str(error))
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finding = Finding("crash", f"it raised {told}")
        if where and LOST in told:
            finding = Finding("pages", f"the kernel {Unmapped.kinds[0]} {where}: {told}")
        return Outcome(judge.counted(finding))
    finally:
        ending("")
    return Outcome()


def _called(
    judge: Judge, case: Case, operands: list, array: int, end: str, where: str, ending: Ending
) -> np.ndarray:
    """The result with that array at that end. Raises Declined, and what the kernel raises."""
    promised = VECTOR if judge.candidate.serves.has("aligned") else judge.claim.dtype.itemsize
    try:
        return _once(judge, case, operands, (array, end, promised), where, ending)
    except Declined:  # perhaps as addresses of single elements are not enough for it
        return _once(judge, case, operands, (array, end, LINE), where, ending)


def _once(
    judge: Judge, case: Case, operands: list, at: tuple[int, str, int], where: str, ending: Ending
) -> np.ndarray:
    c, library, dtype = judge.candidate, judge.candidate.arrays, judge.claim.dtype
    array, end, aligned = at
    shapes = c.shapes(case.problem)[: 2 + c.out]
    zones = [Zone.of(library, shape, dtype, "contiguous") for shape in shapes]
    size = math.prod(shapes[array]) * dtype.itemsize
    memory = (Unmapped if library.cuda else Protected)(size, end, aligned)
    flat = library.over(memory, dtype)
    zones[array] = Zone(library, flat, flat.reshape(shapes[array]))
    for zone, values in zip(zones, (*map(judge.axes, operands), None), strict=False):
        zone.fill("nan", values)
    judge.held += zones
    a, b, out = (*(zone.array for zone in zones), None)[:3]
    library.wait()
    for kind in memory.kinds:
        ending(f"{kind} {where}")
        with memory.beside(kind), np.errstate(all="ignore"):
            found = c(a, b, case.problem, out)
            library.wait()
        ending("")
    return library.get(found)
