"""A trial in which each array in turn touches memory that nobody may read or write."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from winolab.gpu.machine import MachineError
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.libraries import BF16, Zone
from winolab.judge.pages.protected import Protected, mprotect
from winolab.judge.pages.unmapped import Unmapped
from winolab.judge.trial import Case, Finding, Judge, Outcome
from winolab.problem import NAMES

PLACE = "beside protected pages"
ENDS = {"end": "beyond the end of", "start": "before the start of"}
NEW = "new memory"  # the library's, which the kernel takes for its result or in between
TYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")} | {"bfloat16": BF16}
VECTOR, LINE = 16, 64  # bytes: what "aligned" promises, and what no library asks more than
LOST = "illegal"  # said of the device by CUDA_ERROR_ILLEGAL_ADDRESS, in every library

Ending = Callable[[str], None]
Memory = Protected | Unmapped


def possible(candidate: Candidate) -> bool:
    """Whether the system has such memory for the kernel's arrays; a GPU's driver is asked later."""
    return candidate.arrays.cuda or mprotect() is not None


def run(judge: Judge, case: Case, ending: Ending) -> Outcome:
    """The outcome of a case: the kernel returns right values with each array at either end of such
    memory, if it does not end the process, or the device, there.

    ``ending`` hears before each call what it means if the process ends in it, and "" after it.
    Raises MachineError where there is no such memory.
    """
    operands = judge.operands(case)
    if operands is None or case.problem.empty:
        return Outcome(left="it has no numbers in the range of their type")
    judge.held.clear()
    names = NAMES[judge.candidate.direction][: 2 + judge.candidate.out]
    where = ""
    memory = Unmapped if judge.candidate.arrays.cuda else Protected
    try:
        judge.bare(case.problem, operands)()
        for array in (*names, NEW):
            for end, side in ENDS.items():
                where = f"{side} {array}"
                call = _Calls(judge, case, operands, array, end, ending, memory.kinds)
                if finding := call.finding(where):
                    return Outcome(judge.counted(finding))
        for array in names[:2] if memory.own and "inputs" not in judge.skip else ():
            call = _Calls(judge, case, operands, array, "end", ending, (memory.own,))
            if finding := call.finding(""):
                return Outcome(judge.counted(finding))
    except Declined as error:
        return Outcome(left=str(error))
    except MachineError:  # which has no such memory
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finding = Finding("crash", f"it raised {told}")
        if where and LOST in told:
            finding = Finding("pages", f"the kernel {Unmapped.kinds[0]} {where}: {told}")
        return Outcome(judge.counted(finding))
    finally:
        ending("")
    return Outcome()


@dataclass(frozen=True)
class _Calls:
    """The calls with one array at one end of such memory."""

    judge: Judge
    case: Case
    operands: list[np.ndarray]
    array: str
    end: str
    ending: Ending
    kinds: tuple[str, ...]

    def finding(self, where: str) -> Finding | None:
        """What is wrong with them. Raises Declined, and what the kernel raises."""
        c = self.judge.candidate
        aligned = VECTOR if c.serves.has("aligned") else self.judge.claim.dtype.itemsize
        try:
            y, memory = self._made(where, aligned)
        except Declined:  # perhaps as addresses of single elements are not enough for it
            y, memory = self._made(where, LINE)
        except Exception as error:
            if self.array != NEW or LOST in str(error):
                raise
            return None  # a compiler's, which does not know what creates arrays here
        if any(each.spilled for each in memory):
            return Finding("writes", f"the kernel writes {ENDS['end']} {self.array}")
        if wrong := self.judge.said(self.case, self.operands, y):
            where = f"with a protected page {where}" if where else f"{self.array} is read only"
            return Finding("place", f"{wrong} ({where})")
        return None

    def _made(self, where: str, aligned: int) -> tuple[np.ndarray, list[Memory]]:
        """The result, and the memory whose end is there."""
        judge, c, library = self.judge, self.judge.candidate, self.judge.candidate.arrays
        dtype, memory = judge.claim.dtype, list[Memory]()
        shapes = c.shapes(self.case.problem)[: 2 + c.out]
        zones = [Zone.of(library, shape, dtype, "contiguous") for shape in shapes]
        if self.array != NEW:
            at = NAMES[c.direction].index(self.array)
            memory.append(self._memory(math.prod(shapes[at]), dtype, aligned))
            flat = library.over(memory[0], dtype)
            zones[at] = Zone(library, flat, flat.reshape(shapes[at]))
        judge.held += zones
        for zone, values in zip(zones, (*map(judge.axes, self.operands), None), strict=False):
            zone.fill("nan", values)
        a, b, out = (*(zone.array for zone in zones), None)[:3]
        library.wait()
        found: Any = None
        for kind in self.kinds:
            with ExitStack() as stack:
                if self.array == NEW:
                    created = partial(self._placed, memory, stack, kind)
                    stack.enter_context(library.created(created))
                else:
                    stack.enter_context(memory[0].beside(kind))
                stack.enter_context(np.errstate(all="ignore"))
                self.ending(f"{kind} {where or self.array}")
                found = c(a, b, self.case.problem, out)
                library.wait()
            self.ending("")
        return library.get(found), memory

    def _placed(self, memory: list[Memory], stack: ExitStack, kind: str, array: Any) -> Any:
        """New memory in a new array's place; the array itself, if its numbers are of other types,
        or it lies elsewhere."""
        library = self.judge.candidate.arrays
        dtype = TYPES.get(library.dtype(array)) if library.plain(array) else None
        shape = tuple(array.shape)
        if dtype is None or 0 in shape:
            return array
        memory.append(self._memory(math.prod(shape), dtype, LINE))
        stack.enter_context(memory[-1].beside(kind))
        return library.view(library.over(memory[-1], dtype), shape, library.strides(array), 0)

    def _memory(self, count: int, dtype: np.dtype, aligned: int) -> Memory:
        of = Unmapped if self.judge.candidate.arrays.cuda else Protected
        return of(count * dtype.itemsize, self.end, aligned)
