"""What the README says of DWM: its error on a large filter."""

from __future__ import annotations

from experiments.harness.tables import select, stored
from papers.dwm_2021.accuracy import PAPER

TAPS = 9


def headline() -> str:
    """A phrase, from kept rows."""
    rows = select(stored(PAPER), table="table1", ndim=2, kernel=TAPS)
    setting = rows[0]["setting"]
    mse = {
        name: sum(row["mse"] for row in mine) / len(mine)
        for name in ("dwm", "winograd", "direct")
        if (mine := select(rows, setting=setting, column=f"{name} fp32"))
    }
    return (
        f"FP32 squared error of {TAPS}×{TAPS}: {mse['dwm']:.0e} in pieces, "
        f"{mse['winograd']:.0e} in one tile, {mse['direct']:.0e} direct"
    )
