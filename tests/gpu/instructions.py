"""Machine code of kernels before and after a change of their text: needs NVRTC and no GPU.

``python -m tests.gpu.instructions --save FILE`` compiles the units of kernels.csv and keeps a hash
of every kernel's code; ``--against FILE`` compiles those whose sources have other digests now
(``emit.fingerprint``, for which names and comments do not count) and lists the units whose code
differs. Units of one kind, which differ in numbers only, are one with ``--kinds``. ``--migrate``
then writes digests of sources in kept rows anew where code is equal.

NVRTC 12.9 makes one of several codes of some sources, by chance: of one source that it compiled
eight times, six objects compared two addresses of ``winolab_scale``, two had that folded. What
differs is compiled again, and is equal when every kernel has had its code before.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from tests.gpu import kernels
from winolab.gpu.codegen.emit import fingerprint
from winolab.gpu.runtime import nvrtc

TRIES = 12
ROWS = sorted((ROOT / "experiments" / "results").glob("*.jsonl"))
Found = dict[str, Any]  # the source's digest, hashes of instructions


def sections(cubin: bytes) -> dict[str, bytes]:
    """Machine code by kernel."""
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", cubin)
    start, size, count, names = header[6], header[11], header[12], header[13]
    found = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]
    table, made = found[names][4], {}
    for name, _, _, _, offset, length, *_ in found:
        text = cubin[table + name : cubin.index(b"\0", table + name)].decode()
        if text.startswith(".text."):
            made[text.removeprefix(".text.")] = cubin[offset : offset + length]
    return made


def instructions(source: str, arch: str) -> list[str]:
    """Hashes of the code of a source's kernels, sorted: names do not count."""
    made = sections(nvrtc.compile_cubin(source, arch).cubin)
    return sorted(hashlib.sha256(code).hexdigest()[:20] for code in made.values())


def found(row: kernels.Row, before: Found | None) -> Found:
    """What the unit of a row of the table is now."""
    unit = kernels.Unit.of(row)
    made: Found = {"unit": unit.name, "digest": fingerprint(unit.source)}
    if before and before["digest"] == made["digest"]:
        return {**before, **made}
    codes: list[list[str]] = []
    for _ in range(TRIES if before else 1):
        codes.append(instructions(unit.source, unit.arch))
        if before and same(before["instructions"], codes):
            return {**made, "instructions": before["instructions"]}
    return {**made, "instructions": codes[-1]}


def same(before: list[str], codes: list[list[str]]) -> bool:
    """Whether one of ``codes``, objects of one source, had the code of each kernel of before."""
    return len(codes[-1]) == len(before) and set(before) <= {code for of in codes for code in of}


def chosen(kinds: bool, match: str) -> dict[str, kernels.Row]:
    """A row of every unit of the table, or of every kind, by architecture and name; these names
    are of the table that was kept with the hashes.
    """
    rows: dict[str, kernels.Row] = {}
    for row in kernels.read():
        name = re.sub(r"\d+", "", row.unit) if kinds else row.unit
        if re.search(match, f"{row.arch} {row.unit}"):
            rows.setdefault(f"{row.arch} {name}", row)
    return {f"{row.arch} {row.case} {', tail' in row.unit} {row.unit.split()[1]}": row
            for row in rows.values()}  # fmt: skip


def renamed(before: Mapping[str, Found], after: Mapping[str, Found]) -> dict[str, str]:
    """New digests by old ones, of sources whose instructions are equal."""
    return {
        before[key]["digest"]: unit["digest"]
        for key, unit in after.items()
        if key in before and before[key]["instructions"] == unit["instructions"]
    }


def migrate(digests: Mapping[str, str], files: Iterable[Path]) -> int:
    """Write digests of sources in kept rows anew; how many there were."""
    known = {old[:size]: new[:size] for old, new in digests.items() for size in (12, 16)}
    count = 0

    def new(match: re.Match[str]) -> str:
        nonlocal count
        count += match[0] in known
        return known.get(match[0], match[0])

    for path in files:
        path.write_text(re.sub(r"\b(?:[0-9a-f]{16}|[0-9a-f]{12})\b", new, path.read_text()))
    return count


def main(
    save: Annotated[Path | None, typer.Option(help="File that hashes are written to.")] = None,
    against: Annotated[Path | None, typer.Option(help="File of hashes to compare with.")] = None,
    kinds: Annotated[bool, typer.Option(help="One unit of each kind.")] = False,
    match: Annotated[str, typer.Option(help="Regular expression on architecture and unit.")] = "",
    rows: Annotated[
        bool, typer.Option("--migrate", help="Write digests of kept rows anew.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Compile, keep and compare."""
    units = chosen(kinds, match)
    before: dict[str, Found] = json.loads(against.read_text()) if against else {}
    with ProcessPoolExecutor(jobs) as pool:
        made = pool.map(found, units.values(), map(before.get, units))
        after = dict(zip(units, made, strict=True))
    if save:
        save.write_text(json.dumps(after))
    if not against:
        return
    differ = [
        f"{key}: {unit['unit']}"
        for key, unit in after.items()
        if before.get(key, {}).get("instructions") != unit["instructions"]
    ]
    print("\n".join(differ), f"{len(differ)} of {len(after)} differ", sep="\n")
    if rows:
        print(f"{migrate(renamed(before, after), [*ROWS, kernels.TABLE])} digests")
    if differ:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
