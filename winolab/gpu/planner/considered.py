"""What the planner takes for a request, and what else was considered: a value to read and print."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.request import Plan, Request
from winolab.kind import ShowsText
from winolab.ref.algebra.transforms import transforms


@dataclass(frozen=True)
class Considered(ShowsText):
    """What the planner takes, the fastest plan of every kernel, and why some have none.

    ``print`` shows it as ``winolab plan`` does. ``chosen`` is None where no kernel runs the
    request, which ``refusal`` says. The other plans are made when they are asked for: all of them
    take several times as long as those that can be picked.
    """

    request: Request
    chosen: Plan | None
    refusal: str = ""

    @property
    def fastest(self) -> tuple[Plan, ...]:
        """The choice, then the fastest predicted plan of every other kernel, by time."""
        return self._beside[0]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Why kernels have no plan."""
        return self._beside[1]

    @property
    def why(self) -> str:
        """What the choice has where another plan is the fastest predicted."""
        return self._beside[2]

    @cached_property
    def _beside(self) -> tuple[tuple[Plan, ...], tuple[str, ...], str]:
        if self.chosen is None:
            return (), (self.refusal,), ""
        choice, taken = candidates(self.request), plan(self.request)
        found = {(taken.kernel, taken.precision): taken}
        for other in choice.plans:
            found.setdefault((other.kernel, other.precision), other)
        first, *others = found.values()
        others.sort(key=lambda other: other.predicted)
        why = choice.why if choice.plans[0] == taken else _frugal(choice.plans[0], taken)
        return (first, *others), choice.reasons, why

    def to_dict(self) -> dict[str, Any]:
        """The plan, what else was considered and why, as JSON has it; times in µs, sizes in bytes.

        ``winolab plan --json`` prints it.
        """
        request, problem = self.request, self.request.problem
        return {
            "direction": request.direction,
            "x": problem.x_shape,
            "w": problem.w_shape,
            "padding": problem.padding,
            "device": request.device.name,
            "precision": request.precision,
            "tolerance": str(request.tolerance) if request.tolerance else None,
            "plan": _facts(self.chosen) if self.chosen else None,
            "why": self.why,
            "kernels": [_facts(found) for found in self.fastest],
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        if self.chosen is None:
            return "; ".join(self.left_out)
        lines = [
            str(self.chosen),
            *self._about(),
            f"error      {_error(self.chosen)}",
            "",
            "the choice, and the fastest predicted of every other kernel",
            *(
                f"{found.predicted * 1e6:10.1f} µs  {found.kernel} {found.precision}, "
                f"{found.workspace} B workspace{self._beyond(found)}, {_error(found)}"
                for found in self.fastest
            ),
        ]
        if self.why:
            lines.append(f"taken is the first: {self.why}")
        return "\n".join(lines + [f"left out: {reason}" for reason in self.left_out])

    def _beyond(self, found: Plan) -> str:
        limit = self.request.workspace_limit
        return "" if limit is None or found.workspace <= limit else " beyond the limit"

    def _about(self) -> tuple[str, ...]:
        """Lines that stand below the plan's."""
        return ()


def considered(request: Request) -> Considered:
    """The plan for ``request``, and what else is considered when that is asked for.

    Raises ValueError where the algorithm's points make no transforms, and where there is no plan.
    """
    request.check()
    if wanted := request.algorithm:
        for tile in wanted.tiles:
            transforms(tile.n, tile.r, wanted.points_of(tile), wanted.scaling)
    return Considered(request, plan(request))


def _frugal(fastest: Plan, chosen: Plan) -> str:
    """Why a filter gradient that nobody limits takes less workspace (planner.usual_limit)."""
    if fastest.predicted >= chosen.predicted or fastest.workspace <= chosen.workspace:
        return ""
    return f"what is faster by less than {1 - WORTH:.0%} takes {fastest.workspace >> 20} MiB"


def _error(plan: Plan) -> str:
    return f"relative RMS error {predicted_rms(plan):.1e} on normal data"


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "kernel": plan.kernel,
        "products": plan.precision,
        "points": plan.points,
        "config": str(plan.config),
        "workspace_bytes": plan.workspace,
        "predicted_us": round(1e6 * plan.predicted, 3),
        "relative_rms": predicted_rms(plan),
        "shared_bytes": plan.shared(),
        "text": str(plan),
    }
