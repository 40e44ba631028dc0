"""The studies there are, found in their folders: a paper is a study, and so is what has none.

A study is a folder of papers/ or of experiments/ with a module ``tables`` that has TABLES, its
tables in their order, and may have TITLE, what readers call it, and COMMANDS, which on a GPU write
the files of rows that its tables come from. Modules beside it are optional:

- ``texts`` has TEXTS, the report's words by a table's key;
- ``figures`` has FIGURES, (function of rows, caption) pairs by a table's key;
- ``rates`` has ``rates(measure, rounds)``, rows of how fast the reference computes;
- ``fits`` has FITS, the constants that were fitted on the paper's numbers;
- ``summary`` of a paper has ``headline()``, a phrase for its row in the README; it may have
  ``readme_rows()``, more rows, ``sections()``, titles and lines of Markdown for docs/results.md,
  MARKED, functions of text by the README's marks, and PICTURES, functions of SVG by names in docs/.

Nothing else names a study. Papers come first, by year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.harness import facts
from experiments.harness.fits import Fit
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, rows_of

EXPERIMENTS = Path(__file__).resolve().parents[1]
# The modules of a study that are looked for; written out, so that tests see what is imported.
MODULES: dict[str, Callable[[str], ModuleType]] = {
    "tables": lambda package: import_module(f"{package}.tables"),
    "texts": lambda package: import_module(f"{package}.texts"),
    "figures": lambda package: import_module(f"{package}.figures"),
    "rates": lambda package: import_module(f"{package}.rates"),
    "fits": lambda package: import_module(f"{package}.fits"),
    "summary": lambda package: import_module(f"{package}.summary"),
}


@dataclass(frozen=True)
class Study:
    """A folder of tables, and the package that it is."""

    folder: Path
    package: str

    def module(self, name: str) -> ModuleType | None:
        """Its module of that name, or None where the folder has none."""
        found = (self.folder / f"{name}.py").is_file()
        return MODULES[name](self.package) if found else None


def studies() -> tuple[Study, ...]:
    """Every study: papers by year, then those of experiments by name."""
    found = (
        Study(folder, f"{root.name}.{folder.name}")
        for root, names in ((facts.PAPERS, facts.papers()), (EXPERIMENTS, _names(EXPERIMENTS)))
        for folder in (root / name for name in names)
    )
    return tuple(study for study in found if hasattr(study.module("tables"), "TABLES"))


def _names(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.glob("*/tables.py"))


def modules(name: str) -> Iterator[ModuleType]:
    """The module of that name of every study that has one."""
    found = (study.module(name) for study in studies())
    return (module for module in found if module)


def tables() -> list[Table]:
    """Every table of every study."""
    return [table for module in modules("tables") for table in module.TABLES]


def computed() -> list[Table]:
    """The tables that are computed here."""
    return [table for table in tables() if not table.sources]


def kept() -> list[Table]:
    """The tables that a GPU measured: shown from kept rows."""
    return [table for table in tables() if table.sources]


def merged(module: str, name: str) -> dict[str, Any]:
    """The dictionary ``name`` of that module of every study, as one."""
    found: dict[str, Any] = {}
    for each in modules(module):
        found |= getattr(each, name, {})
    return found


def fits() -> list[Fit]:
    """Every fit of every study."""
    return [fit for module in modules("fits") for fit in module.FITS]


def title(name: str) -> str:
    """What readers call a study of our own: TITLE of its tables, else its folder's name."""
    (found,) = (study for study in studies() if study.folder.name == name)
    return getattr(found.module("tables"), "TITLE", name)


def measured_by(table: Table) -> list[str]:
    """The commands that measure a table's rows on a GPU; none of a table that no GPU measures."""
    commands = merged("tables", "COMMANDS") if table.sources else {}
    return [commands[name] for name in table.sources]


def results(
    computed_now: Mapping[str, Sequence[Row]] = {}, of: Sequence[Table] | None = None
) -> list[tuple[Table, list[Row], list[Cell]]]:
    """Every table, or every one ``of`` these, that has rows, with them and with its cells: those
    computed here first.

    ``computed_now`` has rows by a table's key that stand in the place of the kept ones.
    """
    of = tables() if of is None else of
    found = [
        (table, list(rows), table.cells(rows))
        for table in of
        if not table.sources
        if (rows := computed_now.get(table.key) or rows_of(table)) or table.missing
    ]
    measured = [(table, rows_of(table)) for table in of if table.sources]
    return found + [
        (table, rows, cells) for table, rows in measured if rows and (cells := table.cells(rows))
    ]
