"""What a primitive is asked for, as one value that JAX hashes and XLA keeps as a text.

Arrays have any order of axes: ``axes`` says for x, w and y which of an array's axes stand first,
second, … in channels-last order, that of winolab.problem.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from winolab.algorithm import parse_algorithm
from winolab.arguments.arrays import PRECISION_OF_DTYPE, precision_named
from winolab.arguments.tolerance import Tolerance
from winolab.arguments.values import whole
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem

Ints = tuple[int, ...]
ROLES = ("x", "w", "y")  # of arrays: "dx" has that of "x"
# The direction whose result has a role, and the roles of all three of its arrays.
MAKING = {names[2].removeprefix("d"): direction for direction, names in NAMES.items()}
ROLES_OF = {d: tuple(name.removeprefix("d") for name in names) for d, names in NAMES.items()}


@dataclass(frozen=True)
class Asked:
    """One of the three convolutions, of arrays whose axes lie in some order."""

    direction: str
    x_axes: Ints
    w_axes: Ints
    y_axes: Ints
    stride: Ints
    padding: tuple[tuple[int, int], ...]
    dilation: Ints
    groups: int
    out_dtype: str
    result_shape: Ints | None = None  # of dx or dw, channels last; y's follows
    algorithm: str | None = None
    precision: str | None = None
    tolerance: str | None = None
    workspace_limit: int | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """Those of both operands and of the result."""
        return ROLES_OF[self.direction]

    def axes(self, role: str) -> Ints:
        """How the axes of that array lie."""
        return getattr(self, f"{role}_axes")

    @property
    def plain(self) -> bool:
        """Whether nothing says how it is to be computed."""
        return self.algorithm is self.precision is self.tolerance is None

    def options(self) -> ConvOptions:
        """What conv_forward's arguments beside the geometry would be, checked. Raises as they."""
        return ConvOptions(
            algorithm=self.algorithm,
            precision=self.precision,
            tolerance=self.tolerance,
            workspace_limit=self.workspace_limit,
        ).checked()

    def problem(self, a_shape: Ints, b_shape: Ints) -> Problem:
        """The problem of operands with these shapes, as they lie. Raises as Problem.of."""
        given = dict(zip(self.roles, (a_shape, b_shape), strict=False))
        last = {role: tuple(shape[i] for i in self.axes(role)) for role, shape in given.items()}
        result = self.roles[2]
        if self.result_shape:
            last[result] = self.result_shape
        found = Problem.of(
            last["x"],
            last["w"],
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )
        if last.get("y", found.y_shape) != found.y_shape:
            raise ValueError(f"dy is {last['y']} with channels last; expected {found.y_shape}")
        return found

    def result(self, problem: Problem) -> Ints:
        """The result's shape, as it lies."""
        role = self.roles[2]
        sizes = dict(zip(self.axes(role), getattr(problem, f"{role}_shape"), strict=True))
        return tuple(sizes[i] for i in range(len(sizes)))

    def making(self, role: str, shape: Ints, dtype: str) -> Asked:
        """The convolution of the other two that makes that array, of ``shape`` as it lies.

        A filter's gradient has tiles of its own: it does not take the one that was named.
        """
        direction = MAKING[role]
        last = tuple(shape[i] for i in self.axes(role))
        tiled = direction != "backward_filter" and self.direction != "backward_filter"
        return replace(
            self,
            direction=direction,
            result_shape=None if role == "y" else last,
            algorithm=self.algorithm if tiled else None,
            out_dtype=dtype,
        )


@lru_cache(maxsize=4096, typed=True)
def options_of(
    algorithm: Any, precision: Any, tolerance: Any, workspace_limit: Any
) -> dict[str, Any]:
    """A caller's options as texts, by the names of Asked's fields. Raises as ConvOptions."""
    if algorithm is not None:
        algorithm = str(parse_algorithm(algorithm))
    precision = precision_named(precision)
    if precision is not None and not isinstance(precision, str):
        precision = str(precision)
    if tolerance is not None:
        tolerance = str(Tolerance.of(tolerance))
    if workspace_limit is not None:
        workspace_limit = whole(workspace_limit, "workspace_limit")
    found = {
        "algorithm": algorithm,
        "precision": precision,
        "tolerance": tolerance,
        "workspace_limit": workspace_limit,
    }
    ConvOptions(**found).checked()
    return found


def check_dtype(name: str, dtype: str) -> None:
    """Raise TypeError for a dtype that has no precision."""
    if dtype not in PRECISION_OF_DTYPE:
        names = ", ".join(PRECISION_OF_DTYPE)
        raise TypeError(f"{name} is of dtype {dtype}; expected one of {names}: convert it")


@dataclass(frozen=True)
class Question:
    """What XLA hands a handler beside addresses: what is asked, and its arrays."""

    asked: Asked
    shapes: tuple[Ints, Ints, Ints]  # as they lie
    dtype: str  # of the operands

    def text(self) -> str:
        """It, as an attribute of XLA's call, which a cache on disk may outlive this process."""
        return json.dumps([asdict(self.asked), self.shapes, self.dtype])

    @classmethod
    def of(cls, text: bytes) -> Question:
        """The question of a text."""
        fields, shapes, dtype = json.loads(text)
        values = {name: _tuples(value) for name, value in fields.items()}
        return cls(Asked(**values), _tuples(shapes), dtype)

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.asked.problem(*self.shapes[:2])


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
