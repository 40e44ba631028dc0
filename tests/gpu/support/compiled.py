"""What kernels that tests compile take, kept in compiled.csv.

``python -m tests.gpu.support.compiled`` brings the table up to date: it runs the tests that ask,
and compiles what is new or changed.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer

from tests.gpu.kernels import compiler
from winolab.gpu.codegen.emit import fingerprint
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.nvrtc import Resources

TABLE = Path(__file__).with_name("compiled.csv")
COMMAND = "python -m tests.gpu.support.compiled"
OUTDATED = f"tests/gpu/support/compiled.csv is out of date: {COMMAND}, and look at what changed"
SPOT = 48


@dataclass(frozen=True, order=True)
class Row:
    """A line of the table: what a kernel takes, and the digest of its source."""

    arch: str
    source: str
    kernel: str
    registers: int
    spills: int
    stack: int
    compiler: str


asked: set[Row] | None = None  # rows of what was asked for, while the table is brought up to date


def resources(source: str, arch: str = "sm_90a") -> dict[str, Resources]:
    """What every kernel of a source takes; CompileError as from NVRTC.

    An assembler says the same of the same source, so that it is compiled for one source in SPOT,
    which shows that the table is of this compiler and this code, and for all that the table does
    not have. AssertionError where the table is out of date.
    """
    digest = fingerprint(source)[:16]
    rows = [row for row in _table().get((arch, digest), []) if row.compiler == compiler()]
    kept = {r.kernel: Resources(r.registers, r.spills, r.stack) for r in rows}
    if not kept or not all(name in source for name in kept):  # a digest does not depend on names
        kept = None
    found = kept
    if kept is None or (asked is None and int(digest, 16) % SPOT == 0):
        found = nvrtc.compile_cubin(source, arch).resources
    assert found
    if asked is not None:
        asked.update(
            Row(arch, digest, name, used.registers, used.spills, used.stack, compiler())
            for name, used in found.items()
        )
    elif compiler() in _compilers():
        assert found == kept, OUTDATED
    return found


@cache
def _table() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    with TABLE.open(newline="") as file:
        for line in csv.DictReader(file):
            numbers = {name: int(line[name]) for name in ("registers", "spills", "stack")}
            row = Row(**line | numbers)  # type: ignore
            found.setdefault((row.arch, row.source), []).append(row)
    return found


@cache
def _compilers() -> set[str]:
    return {row.compiler for rows in _table().values() for row in rows}


class Asking:
    """Leaves the tests that ask."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "compiled" in getattr(item, "fixturenames", ())]


def main() -> None:
    """Write the table; what has not changed is not compiled again. Exits with pytest's status."""
    global asked
    asked = set()
    status = pytest.main(["-q", "-p", "no:cacheprovider", "tests/gpu"], plugins=[Asking()])
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row.__dataclass_fields__)
        writer.writerows([getattr(row, name) for name in Row.__dataclass_fields__]
                         for row in sorted(asked))  # fmt: skip
    raise typer.Exit(int(status))


if __name__ == "__main__":
    from tests.gpu.support import compiled  # whose names the tests' fixture reads

    typer.run(compiled.main)
