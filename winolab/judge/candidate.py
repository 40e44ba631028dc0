"""The kernel that is judged, and how it is called."""

from __future__ import annotations

import dis
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from winolab.judge.around import FORKS
from winolab.judge.libraries import NumPy
from winolab.judge.problems import Serves
from winolab.problem import Problem, in_layout, shapes

# What a function that does not serve a problem raises.
DECLINES = (ValueError, TypeError, NotImplementedError)
HERE = Path(__file__).parent
# Whose own errors say that they were called wrongly, unless it is their function that is judged.
LIBRARIES = ("numpy", "cupy", "scipy", "torch", "triton", "numba")


class Declined(ValueError):
    """The kernel does not serve a problem, or arrays that lie so."""


Called = Callable[..., Any]


@dataclass(frozen=True)
class Candidate:
    """A kernel: ``called(a, b, problem, out)`` returns the result, or writes it to ``out``.

    ``layout`` orders the axes of its arrays; ``out``: it takes an array for its result;
    ``own``: the only geometry that it has, a module's; ``ndim``: spatial dimensions; ``file``: of
    its Python code, "" for compiled code.
    """

    name: str
    called: Called
    arrays: NumPy
    layout: str
    direction: str = "forward"
    ndim: int = 2
    serves: Serves = field(default_factory=Serves)
    out: bool = False
    own: Callable[[Problem], Problem] | None = None
    file: str = ""

    def __call__(self, a: Any, b: Any, problem: Problem, out: Any = None) -> Any:
        """The result. Raises Declined for what the kernel says that it does not serve."""
        try:
            with FORKS.ended():
                found = self.called(a, b, problem, out)
        except Declined:
            raise
        except DECLINES as error:
            if not _says_so(error.__traceback__, self.name):
                raise
            raise Declined(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        return out if out is not None else found

    def shapes(self, problem: Problem) -> list[tuple[int, ...]]:
        """Shapes of both operands and the result, in the kernel's layout."""
        return [in_layout(shape, self.layout) for shape in shapes(self.direction, problem)]


def _says_so(found: TracebackType | None, kernel: str) -> bool:
    """Whether the kernel itself raised an error, by a ``raise``, or is compiled and refused its
    arguments; else a slip in its code is what met the error: shapes that NumPy cannot broadcast, an
    argument that CuPy does not know."""
    frames = [frame for frame, _ in traceback.walk_tb(found)]
    last = found
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or Path(frames[-1].f_code.co_filename).parent == HERE:
        return True
    package = str(frames[-1].f_globals.get("__name__", "")).partition(".")[0]
    if package in LIBRARIES and not kernel.startswith(package):
        return False
    code = last.tb_frame.f_code
    raised = (i.opname for i in dis.get_instructions(code) if i.offset == last.tb_lasti)
    return code.co_filename.endswith(".py") and next(raised, "") in ("RAISE_VARARGS", "RERAISE")
