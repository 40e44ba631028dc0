"""The planner's decision as an answer that has a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from winolab.api import picture
from winolab.gpu.planner.considered import Considered, considered
from winolab.gpu.planner.memory_order import copies
from winolab.gpu.planner.request import DTYPES, Plan, Request
from winolab.options import ConvOptions
from winolab.problem import NAMES, in_layout, shapes


@dataclass(frozen=True)
class Planned(Considered):
    """What ``winolab.plan`` returns; ``print`` shows it, ``plot()`` draws it.

    Of channels-first arrays ``chosen`` is the plan that calls run, and ``copied`` has the bytes of
    those that they copy around it, by their names; None of channels-last ones.
    """

    copied: tuple[tuple[str, int], ...] | None = None

    @property
    def copying(self) -> float:
        """Seconds that the copies are predicted to take."""
        return copies(self.request.device, [size for _, size in self.copied or ()])

    def to_dict(self) -> dict[str, Any]:
        """As Considered's; of channels-first arrays with the bytes that are copied, and the µs."""
        if self.copied is None:
            return super().to_dict()
        copying = round(1e6 * self.copying, 3)
        return super().to_dict() | {"copied_bytes": dict(self.copied), "copying_us": copying}

    def _about(self) -> tuple[str, ...]:
        if self.copied is None:
            return ()
        if not self.copied:
            return ("arrays     channels first, read and written where they lie",)
        *names, last = (name for name, _ in self.copied)
        named = f"{', '.join(names)} and {last}" if names else last
        return (f"arrays     channels first: {named} by copies, {1e6 * self.copying:.1f} µs more",)

    def plot(self, axes: Any = None) -> Any:
        """Bars of the predicted time in µs of the fastest plan of every kernel, on matplotlib's
        axes or new ones. Raises ValueError where matplotlib is not installed."""
        values = {_named(found): 1e6 * found.predicted for found in self.fastest}
        taken = f"{_named(self.chosen)} is taken" if self.chosen else "no kernel runs it"
        title = f"{self.request.device.name}: {taken}"
        return picture.bars(values, "predicted time, µs", title, axes)


def planned(request: Request, options: ConvOptions) -> Planned:
    """``considered``, with a picture, of dense arrays that lie in the options' layout. Raises what
    it does."""
    found = considered(request)
    made = Planned(found.request, found.chosen)
    return made if options.layout == "channels_last" else _channels_first(made, options)


def _channels_first(found: Planned, options: ConvOptions) -> Planned:
    """The plan and the copies of a call with such arrays: the planner ranks for channels-last ones,
    and another plan may stand in its choice's place (winolab.gpu.planner.memory_order)."""
    from winolab.gpu.runtime.array_layout import dense
    from winolab.gpu.runtime.planned import PlannedCall
    from winolab.gpu.runtime.resolve import resolve

    request = found.request
    first, second = (
        dense(in_layout(shape, options.layout), DTYPES[request.precision])
        for shape in shapes(request.direction, request.problem)[:2]
    )
    asked = resolve(
        request.direction, request.problem, options, first, second, None, meant=request.device
    )
    call = PlannedCall.of(asked)
    names: dict[str, str] = dict(zip(("a", "b", "out"), NAMES[request.direction], strict=True))
    copied = tuple((names[name], made.copy.bytes) for name, made in call.copies.items())
    return replace(found, chosen=call.plan, copied=copied)


def _named(plan: Plan) -> str:
    return f"{plan.kernel} {plan.precision}"
