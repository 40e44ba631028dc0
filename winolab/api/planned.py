"""The planner's decision as an answer that has a picture."""

from __future__ import annotations

from typing import Any

from winolab.api import picture
from winolab.gpu.planner.considered import Considered, considered
from winolab.gpu.planner.request import Plan, Request


class Planned(Considered):
    """What ``winolab.plan`` returns; ``print`` shows it, ``plot()`` draws it."""

    def plot(self, axes: Any = None) -> Any:
        """Bars of the predicted time in µs of the fastest plan of every kernel, on matplotlib's
        axes or new ones. Raises ValueError where matplotlib is not installed."""
        values = {_named(found): 1e6 * found.predicted for found in self.fastest}
        taken = f"{_named(self.chosen)} is taken" if self.chosen else "no kernel runs it"
        title = f"{self.request.device.name}: {taken}"
        return picture.bars(values, "predicted time, µs", title, axes)


def planned(request: Request) -> Planned:
    """``considered``, with a picture. Raises what it does."""
    found = considered(request)
    return Planned(found.request, found.chosen, found.fastest, found.left_out, found.why)


def _named(plan: Plan) -> str:
    return f"{plan.kernel} {plan.precision}"
