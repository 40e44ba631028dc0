"""Facts of the machine in kept rows: in files the first row of a run has them for all of that run.

Rows without a run are left as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FACTS = (
    "commit", "device", "driver", "cuda", "cudnn", "cupy", "torch", "sm_mhz", "memory_mhz",
    "sgemm_tflops",
)  # fmt: skip
Row = dict[str, Any]


def stored(path: Path) -> list[Row]:
    """The rows of a file, each with the facts of its machine; none where there is no file."""
    return filled(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def filled(rows: Iterable[Row]) -> list[Row]:
    """The rows of a file, each with the facts of its machine."""
    machines: dict[str, Row] = {}
    found = []
    for row in rows:
        facts = {name: row[name] for name in FACTS if name in row}
        found.append({**machines.setdefault(row["run"], facts), **row} if "run" in row else row)
    return found


def shortened(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows as a file has them."""
    seen = set()
    for row in rows:
        first = "run" not in row or row["run"] not in seen
        seen.add(row.get("run"))
        yield row if first else {name: value for name, value in row.items() if name not in FACTS}
