"""What modules import, statically or by name, and where imports run in circles.

``python -m tests.support.imports`` says so of the repository, and fails where they do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = ("import_module", "__import__", "find_spec")


def modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """The modules below ``root``, by dotted name."""
    files = [file for package in packages for file in sorted((root / package).rglob("*.py"))]
    names = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
    return dict(zip((name.removesuffix(".__init__") for name in names), files, strict=True))


def imported(file: Path, root: Path, known: Collection[str] = ()) -> Iterator[str]:
    """Dotted names of all that a file imports, wherever in it: also under TYPE_CHECKING, and by
    name, where an f-string stands for every one of ``known`` that fits it.

    AssertionError says which module is imported by a name that is not written there.
    """
    package = file.relative_to(root).parent.parts
    for node in _imports(file.read_text()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names)
        else:
            called, name = _name(node.func), node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value
            elif isinstance(name, ast.JoinedStr):
                fits = re.compile("".join(map(_pattern, name.values)))
                yield from filter(fits.fullmatch, known)
            else:  # find_spec runs nothing of what it finds
                assert called == "find_spec", f"{file}:{node.lineno} imports by a name not there"


@cache
def _imports(text: str) -> list[ast.Import | ast.ImportFrom | ast.Call]:
    """What imports something in a file of this text."""
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Call) and _name(node.func) in BY_NAME and node.args)
    ]


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _pattern(part: ast.expr) -> str:
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*"


def graph(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """Every module with those that it imports."""
    known = modules(root, packages)
    places = {
        name: {
            found if found in known else found.rpartition(".")[0]
            for found in imported(file, root, known)
        }
        for name, file in known.items()
    }
    return {name: found & known.keys() - {name} for name, found in places.items()}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules each of which imports itself through the others of its list (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in order:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            at = path.index(module)
            if len(path) > at + 1:
                found.append(sorted(path[at:]))
            del path[at:]

    for module in imports:
        if module not in order:
            visit(module)
    return found


def main(root: Path = ROOT) -> int:
    """Print how many modules and imports there are, and the circles; how many these are."""
    found = graph(root, ("winolab", "experiments", "papers"))
    wrong = circles(found)
    print(*(" → ".join(circle) for circle in wrong), sep="\n", end="\n" if wrong else "")
    print(f"{len(found)} modules, {sum(map(len, found.values()))} imports, {len(wrong)} circles")
    return len(wrong)


def command() -> None:
    """Print how many modules and imports there are, and the circles; fail where some are."""
    raise typer.Exit(main() > 0)


if __name__ == "__main__":
    typer.run(command)
