"""How much a result may err, as a caller states it: 1e-5, "proven:1e-4", "direct:4" and others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

KINDS = ("predicted", "proven", "componentwise", "direct")
EXPECTED = (
    "expected a number above 0, such as 1e-5, or 'proven:1e-4', 'componentwise:1e-5' or 'direct:4'"
)


@dataclass(frozen=True)
class Tolerance:
    """A limit of an error.

    "predicted": of the predicted relative RMS error. "proven": of what no data can exceed, relative
    to the largest result that their magnitudes allow, K·max|a|·max|b| with K products a result.
    "componentwise": of the predicted error of a result relative to its own Σ|a||b|, which
    transformed tiles do not keep to. "direct": of the predicted error over that of direct products
    in the same arithmetic, whatever that is.
    """

    kind: str
    most: float

    @property
    def relative(self) -> bool:
        """Whether it limits errors beside direct products' own: what keeps to it is ranked as ever,
        so that the usual choice stays wherever it errs little enough."""
        return self.kind == "direct"

    @classmethod
    def of(cls, value: Any) -> Tolerance | None:
        """The tolerance that a caller means, None for None.

        Raises TypeError for what is neither a number nor a text, ValueError for other texts and for
        numbers that are not above 0.
        """
        if value is None or isinstance(value, Tolerance):
            return value
        kind, most = "predicted", value
        if isinstance(value, str):
            before, colon, behind = value.strip().rpartition(":")
            kind = before if colon else kind
            try:
                most = float(behind)
            except ValueError:
                kind = ""
        elif isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"tolerance is {value!r}; {EXPECTED}")
        try:
            most = float(most) if kind in KINDS else 0.0
        except OverflowError:
            raise ValueError(f"tolerance is larger than any float; {EXPECTED}") from None
        if not 0 < most < math.inf:
            raise ValueError(f"tolerance {value!r}; {EXPECTED}")
        return cls(kind, most)

    def __str__(self) -> str:
        return f"{self.most:g}" if self.kind == "predicted" else f"{self.kind}:{self.most:g}"


# What an algorithm may err in a network where nobody says how: so many times what direct products
# do. Filter gradients by Ω9(3,7) in FP16 err 9.6 times as much (tests/torch/test_convert.py).
USUAL_TOLERANCE = Tolerance("direct", 4.0)


def missed(tolerance: Tolerance, least: float, precision: str, by: str) -> ValueError:
    """The error for a tolerance that nothing keeps to: the least that can be had, and by what."""
    if least == math.inf:
        had = f"nothing in {precision} has such a bound"
    else:  # rounded up, so that what is said is enough
        unit = 10.0 ** (math.floor(math.log10(least)) - 1)
        enough = math.ceil(least / unit) * unit
        had = f"the least that can be had in {precision} is {enough:.2g}, by {by}"
    return ValueError(f"tolerance {tolerance}: {had}; allow more or take a wider precision")
