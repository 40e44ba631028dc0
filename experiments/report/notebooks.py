"""Execute the papers' notebooks: ``python -m experiments.report.notebooks [NAME ...]``.

Each papers/<paper>/*.py that opens with jupytext's header is run in its own folder, and what it
showed is kept in results/notebooks/<paper>-<name>.ipynb. Exit code 1 where a cell raised, or a
figure was not shown.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "notebooks"
CELL_SECONDS = 300
HEADER = "# ---\n# jupyter:\n"


def notebooks(papers: Path = ROOT / "papers") -> list[Path]:
    """The notebooks of all papers, which lie beside modules that are none."""
    return [path for path in sorted(papers.glob("*/*.py")) if path.read_text().startswith(HEADER)]


def blank(book: nbformat.NotebookNode) -> bool:
    """Whether a figure stands there by its name only."""
    shown = (o.get("data", {}) for cell in book.cells for o in cell.get("outputs", ()))
    return any(
        "<Figure" in data.get("text/plain", "") and "image/png" not in data for data in shown
    )


def execute(path: Path) -> bool:
    """Run one notebook and keep its outputs; whether every cell ran."""
    book = jupytext.read(path)
    started = time.perf_counter()
    client = NotebookClient(
        book,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
        failure = "a figure is not shown: %matplotlib inline is missing" if blank(book) else None
    except CellExecutionError as error:
        failure = str(error)
    RESULTS.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, RESULTS / f"{path.parent.name}-{path.stem}.ipynb")
    seconds = time.perf_counter() - started
    name = path.relative_to(ROOT)
    print(f"{'FAILED' if failure else 'ok':6} {seconds:6.1f} s  {name}", flush=True)
    if failure:
        print(failure, file=sys.stderr)
    return failure is None


def main(names: list[str]) -> int:
    """Run all notebooks, or those whose path contains one of ``names``."""
    found = notebooks()
    chosen = [p for p in found if not names or any(name in str(p) for name in names)]
    if not chosen:
        print(f"no notebook of papers/*/*.py matches {' '.join(names)!r}", file=sys.stderr)
        return 2
    ran = [execute(path) for path in chosen]  # all of them, whatever the first ones do
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
