"""DWM 2021's tables and figures that are not reproduced; their numbers did not survive."""

from __future__ import annotations

from experiments.harness.missing import Lines, missing
from papers.dwm_2021 import speeds

PAPER = "dwm_2021"
GPU = "DWM runs on GPUs but was not timed there yet; the numbers did not survive"
NETWORK = "needs trained networks; the numbers did not survive"


def _table(name: str, title: str, why: str):
    def lines() -> Lines:
        return [("all of it", {title: None})]

    return missing(PAPER, name, title, lines, why)


ALL = (
    _table("table5", "Wall clock time of 2-D convolutions", GPU),
    _table("table6", "Wall clock time of 3-D convolutions", GPU),
    _table("table9", "PSNR and SSIM of TOFlow", NETWORK),
    _table("table10", "End point errors of SPyNet", NETWORK),
    _table("table11", "Accuracy of SlowFast-R50", NETWORK),
    _table("table12", "PSNR and SSIM of GDConvNet", NETWORK),
    _table("table13", "Wall clock time of networks", GPU),
    _table("figure5", "NaN in the outputs of SPyNet", NETWORK),
)
MEASURED = {table.name for table in speeds.TABLES}
TABLES = tuple(table for table in ALL if table.name not in MEASURED)
