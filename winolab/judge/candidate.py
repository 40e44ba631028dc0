"""The kernel that is judged, and how it is called."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from winolab.judge.libraries import NumPy
from winolab.judge.problems import Serves
from winolab.problem import Problem, in_layout, shapes

# What a function that does not serve a problem raises.
DECLINES = (ValueError, TypeError, NotImplementedError)


class Declined(ValueError):
    """The kernel does not serve a problem, or arrays that lie so."""


Called = Callable[..., Any]


@dataclass(frozen=True)
class Candidate:
    """A kernel: ``called(a, b, problem, out)`` returns the result, or writes it to ``out``.

    ``layout`` orders the axes of its arrays; ``out``: it takes an array for its result;
    ``own``: the only geometry that it has, a module's; ``ndim``: spatial dimensions.
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

    def __call__(self, a: Any, b: Any, problem: Problem, out: Any = None) -> Any:
        """The result. Raises Declined for what the kernel says that it does not serve."""
        try:
            found = self.called(a, b, problem, out)
        except DECLINES as error:
            if error.__traceback__ and _deep(error):
                raise
            raise Declined(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        return out if out is not None else found

    def shapes(self, problem: Problem) -> list[tuple[int, ...]]:
        """Shapes of both operands and the result, in the kernel's layout."""
        return [in_layout(shape, self.layout) for shape in shapes(self.direction, problem)]


def _deep(error: BaseException) -> bool:
    """Whether an error is Python's own, of a slip in the kernel's code, not what it raises."""
    return type(error) is TypeError and bool(
        re.search(r"unsupported operand|NoneType|not subscriptable|not callable|not iterable",
                  str(error))
    )  # fmt: skip
