"""Execute the papers' notebooks: ``python -m experiments.report.notebooks [--update] [NAME ...]``.

A notebook is papers/<paper>/reproduce.py, in jupytext's percent format, and the .ipynb of the same
name beside it, which is kept with its outputs. Each text is executed in its own folder, two at a
time, and what comes out is compared with what is kept: texts have to be equal and numbers within
TOLERANCE or a unit of their last digit; figures are compared by their data
(experiments.report.described). Exit code 1 where a cell raised, or something else came out.
--update writes the .ipynb anew.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import jupytext
import nbformat
import typer
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from experiments.harness.facts import PAPERS, ROOT

CELL_SECONDS = 300
HEADER = "# ---\n# jupyter:\n"
# What other processors may change: BLAS sums in their order, and errors of FP32 follow.
TOLERANCE = 0.02
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LARGEST = 1_000_000  # bytes of a notebook
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
}
FIRST = "%load_ext experiments.report.shown"  # a cell that is not kept


def notebooks(papers: Path = PAPERS) -> list[Path]:
    """The texts of the notebooks of all papers, which lie beside modules that are none."""
    return [path for path in sorted(papers.glob("*/*.py")) if path.read_text().startswith(HEADER)]


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook of a text with what its cells showed. Raises CellExecutionError."""
    book = jupytext.read(path)
    book.cells.insert(0, nbformat.v4.new_code_cell(FIRST))
    NotebookClient(
        book, timeout=CELL_SECONDS, kernel_name="python3", record_timing=False,
        coalesce_streams=True, extra_arguments=["--Application.log_level=40"],
        resources={"metadata": {"path": str(path.parent)}},
    ).execute(env=environment())  # fmt: skip
    del book.cells[0]
    return stripped(book)


def environment() -> dict[str, str]:
    """This process's, with the checkout's packages and one thread a kernel."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def stripped(book: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what differs from run to run or from machine to machine."""
    cells: list[dict[str, Any]] = []
    for i, cell in enumerate(book.cells):
        kept: dict[str, Any] = {"id": f"cell-{i}", "cell_type": cell.cell_type, "metadata": {}}
        if cell.cell_type == "code":
            outputs = [_output(output) for output in cell.outputs]
            kept |= {"execution_count": None, "outputs": outputs}
        cells.append(kept | {"source": cell.source})
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.reads(json.dumps(whole), as_version=4)


def _output(output: nbformat.NotebookNode) -> dict[str, Any]:
    kept = {key: value for key, value in output.items() if key != "metadata"}
    if output.output_type in ("execute_result", "display_data"):
        # A value that a cell ends with is displayed: only its count made it another kind.
        kept = {"output_type": "display_data", "data": dict(output.data), "metadata": {}}
    return kept


def differences(kept: nbformat.NotebookNode, found: nbformat.NotebookNode) -> Iterator[str]:
    """What is not the same in two notebooks, a line each."""
    if [cell.source for cell in kept.cells] != [cell.source for cell in found.cells]:
        yield "its cells are not those of the text: --update writes them"
        return
    for i, (old, new) in enumerate(zip(kept.cells, found.cells, strict=True)):
        before, after = (cell.get("outputs", []) for cell in (old, new))
        if list(map(_kinds, before)) != list(map(_kinds, after)):
            yield f"cell {i} shows {list(map(_kinds, after))}; kept are {list(map(_kinds, before))}"
            continue
        for one, other in zip(map(_texts, before), map(_texts, after), strict=True):
            if where := unequal(one, other):
                yield f"cell {i}: {where}"


def _kinds(output: Any) -> tuple[str, ...]:
    return (output["output_type"], *sorted(output.get("data", ())))


def _texts(output: Any) -> str:
    """What is compared of an output: its texts, a figure's being its data."""
    data = output.get("data", {})
    texts = [data[kind] for kind in sorted(data) if kind.startswith("text/")]
    return "\n".join([*texts, output.get("text", "")])


def unequal(one: str, other: str) -> str:
    """The first line of ``other`` that differs from ``one``'s by more than numbers may, else ""."""
    lines, others = one.splitlines(), other.splitlines()
    if len(lines) != len(others):
        return f"{len(others)} lines, {len(lines)} are kept"
    for kept, found in zip(lines, others, strict=True):
        if kept == found:
            continue
        before, after = NUMBER.findall(kept), NUMBER.findall(found)
        same = NUMBER.sub("#", kept).split() == NUMBER.sub("#", found).split()
        if not same or not all(map(close, before, after)):
            return f"{found.strip()[:200]!r}; kept is {kept.strip()[:200]!r}"
    return ""


def close(one: str, other: str) -> bool:
    """Whether two numbers as they are printed differ by TOLERANCE or a unit of the last digit."""
    a, b = float(one), float(other)
    return abs(a - b) <= max(TOLERANCE * max(abs(a), abs(b)), 1.001 * max(unit(one), unit(other)))


def unit(printed: str) -> float:
    """The unit of a rounded number's last digit; counts, which have no point, are exact: 0."""
    digits, _, power = printed.partition("e")
    decimals = len(digits.partition(".")[2])
    return 10.0 ** (int(power or 0) - decimals) if decimals or power else 0.0


def blank(book: nbformat.NotebookNode) -> bool:
    """Whether a figure stands there by its words only."""
    shown = (o.get("data", {}) for cell in book.cells for o in cell.get("outputs", ()))
    return any(
        re.match("<?Figure", data.get("text/plain", "")) and "image/png" not in data
        for data in shown
    )


def check(path: Path, update: bool) -> list[str]:
    """Execute one notebook, and write it or compare it with what is kept; what is wrong."""
    kept = path.with_suffix(".ipynb")
    try:
        book = execute(path)
    except CellExecutionError as error:
        return [str(error)]
    text = nbformat.writes(book) + "\n"
    if blank(book):
        return ["a figure is not shown"]
    if len(text.encode()) > LARGEST:
        return [f"it has {len(text.encode())} bytes; expected at most {LARGEST}"]
    if str(ROOT) in text:
        return ["its outputs name a path of this machine"]
    if update:
        kept.write_text(text)
        return []
    if not kept.is_file():
        return [f"there is no {kept.name}: --update writes it"]
    return list(differences(nbformat.read(kept, as_version=4), book))


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Parts of their paths.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the .ipynb anew.")] = False,
) -> None:
    """Execute the papers' notebooks, or some, and compare what comes out with what is kept."""
    chosen = [p for p in notebooks() if not names or any(name in str(p) for name in names)]
    if not chosen:
        text = " ".join(names or ())
        raise typer.BadParameter(f"no notebook of papers/*/*.py matches {text!r}")

    def run(path: Path) -> bool:
        started = time.perf_counter()
        wrong = check(path, update)
        seconds = time.perf_counter() - started
        print(f"{'FAILED' if wrong else 'ok':6} {seconds:6.1f} s  {path.relative_to(ROOT)}")
        print(*(f"  {line}" for line in wrong), sep="\n", end="\n" * bool(wrong), flush=True)
        return not wrong

    with ThreadPoolExecutor(2) as pool:  # all of them, whatever the first ones do
        right = all(list(pool.map(run, chosen)))
    raise typer.Exit(not right)


if __name__ == "__main__":
    typer.run(main)
