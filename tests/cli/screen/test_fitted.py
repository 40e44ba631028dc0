"""At every width a number is whole or its column is named as left out."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console, Group, RenderableType

from tests.cli.bench_rows import ROWS
from tests.support.points import points_of
from winolab.algorithm import Problem, parse_algorithm
from winolab.api.cost import of_problem
from winolab.cli import bench
from winolab.cli import cost as costs
from winolab.cli.screen import fitted, tables
from winolab.cli.screen.fitted import Column, Fitted
from winolab.cli.sweep import cases, run
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.search import score
from winolab.ref.tolerance.cheapest import usual

LIST = "gamma:8:6:3@0,1,-1,2,-2,1/2,-1/2,inf"


def shown(table: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return cast(io.StringIO, console.file).getvalue()


def accuracy() -> RenderableType:
    values: dict[str, Any] = {"input": ["1x8x8x4"], "filter": ["2x3x3"], "sample": ["full"]}
    values |= {"algorithm": [LIST, "fft:4:3"], "precision": ["fp32", "fp32,storage=fp16"]}
    return tables.accuracy(run(cases(**values, data=["u12", "normal"], seed=[0, 12345])))


def compared() -> RenderableType:
    problem = Problem.of((1, 28, 28, 128), (128, 5, 5, 128), padding=2)
    algorithms = [*usual(problem, "forward"), parse_algorithm("winograd:12x12:5x5")]
    return costs.table(of_problem(problem, algorithms, "forward").rows)


def leaders() -> RenderableType:
    tile = transforms(8, 9).tile
    found = [score(points_of(transforms(8, 9, name)), tile) for name in ("best", "paper")]
    return tables.points(tables.leaders(found))


def timed() -> RenderableType:
    return bench.table(ROWS)


@pytest.mark.parametrize("make", [accuracy, compared, leaders, timed])
def test_numbers_are_whole_at_every_width(make) -> None:
    group = make()
    assert isinstance(group, Group)
    (table,) = [part for part in group.renderables if isinstance(part, Fitted)]
    for width in (*range(50, 121), 200, 10_000):
        lines = shown(table, width).splitlines()
        text = " ".join(lines)
        assert max(map(len, lines)) <= width
        assert "…" not in text
        _, found, left_out = text.partition("Left out, for --wide or a wider terminal: ")
        names = " ".join(left_out.split()).removesuffix(".").split(", ")
        assert bool(found) == (names != [""])
        tokens = text.split()
        for column in table.columns:
            title = column.name
            whole = all(tokens.count(cell) >= column.cells.count(cell) for cell in column.cells
                        if " " not in cell and cell)  # fmt: skip
            if not column.folds:
                assert whole != (title in names), (width, title)
        assert any(not c.folds and c.name not in names for c in table.columns)
    assert "Left out" not in shown(table, 10_000)


def test_rows_stand_one_above_the_other_where_texts_leave_no_room() -> None:
    table = Fitted(
        [
            *(Column(f"text {i}", ("a" * 30, "b"), folds=True) for i in range(3)),
            Column("relative\nRMS", ("1.25e-07", "2")),
        ]
    )
    text = shown(table, 50)
    assert text.split("\n\n")[1].splitlines() == [
        "text 0: b", "text 1: b", "text 2: b", "relative RMS: 2",
    ]  # fmt: skip
    assert "relative RMS: 1.25e-07" in text
    assert "relative\n" in shown(table, 80).replace("    ", "")


def test_the_largest_ranks_are_left_out_first_and_of_equals_the_last() -> None:
    columns = [
        Column(name, ("12345678",), rank=rank)
        for name, rank in (("a", 2), ("b", 0), ("c", 1), ("d", 1))
    ]
    names = [[c.title for c in fitted.fit(columns, width)[0]] for width in (38, 37, 27, 17, 8)]
    assert names == [["a", "b", "c", "d"], ["b", "c", "d"], ["b", "c"], ["b"], ["b"]]
    assert fitted.fit(columns, 7) == ([], columns)


def test_a_table_without_rows_has_heads() -> None:
    assert shown(fitted.of_rows([*fitted.texts("a"), *fitted.numbers("b")], []), 20).split() == [
        "a", "b",
    ]  # fmt: skip
