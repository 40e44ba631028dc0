"""The site's tables scroll in a block of their own: what its style asks of the HTML is there."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(ROOT.glob("papers/*/*.ipynb"))
STYLE = re.sub(r"/\*.*?\*/", "", (ROOT / "docs/_static/wide.css").read_text(), flags=re.DOTALL)
HELD = "article div:has(> table)"
VOID = {"br", "img", "hr", "input", "meta", "link", "col"}


class _Parents(HTMLParser):
    """What every table lies in; the block of its cell's output, a div, where that is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag == "table":
            self.found.append(self.open[-1] if self.open else "div")
        if tag not in VOID and not (tag == "p" and "p" in self.open):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self.open and self.open.pop() != tag:
            pass


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.parent.name)
def test_every_table_of_a_notebook_lies_in_a_block_that_scrolls(path: Path) -> None:
    outputs = [o for cell in json.loads(path.read_text())["cells"] for o in cell.get("outputs", ())]
    texts = ["".join(o.get("data", {}).get("text/html", "")) for o in outputs]
    parents = []
    for text in texts:
        parser = _Parents()
        parser.feed(text)
        parents += parser.found
    assert parents
    assert set(parents) == {"div"}


def rules(selector: str) -> dict[str, str]:
    """What the style declares for exactly that selector, outside of media."""
    plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", STYLE)
    (body,) = (b for s, b in re.findall(r"([^{}]+)\{([^{}]*)\}", plain) if s.strip() == selector)
    pairs = (declaration.split(":", 1) for declaration in body.split(";") if ":" in declaration)
    return {name.strip(): value.strip() for name, value in pairs}


def test_numbers_of_neighbouring_columns_stand_apart() -> None:
    """The theme pads tables of its own class alone: "76.19disagrees" stood in a notebook's."""
    assert rules(".cell_output table:not(.dataframe) :is(th, td)")["padding"] == ".2rem .5rem"


def test_bars_are_in_sight() -> None:
    """The block scrolls both ways and is lower than a screen; its table scrolls nothing."""
    block, table = rules(HELD), rules("article div > table")
    assert block["overflow"] == "auto"
    assert int(block["max-height"].removesuffix("vh")) < 100
    assert table["display"] == "table"
    assert table["max-width"] == "none"
    assert "overflow" not in " ".join(table)
    assert (
        "display: block" not in STYLE
    )  # of a table: one that scrolls by itself, its bar at its end
