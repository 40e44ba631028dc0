"""What the papers print: the tables and matrices of papers/<paper>/facts.toml."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT / "papers"

Matrix = tuple[tuple[Fraction, ...], ...]


def papers() -> tuple[str, ...]:
    """The names of the papers, which are the names of their folders, by year."""
    names = sorted(path.parent.name for path in PAPERS.glob("*/facts.toml"))
    return tuple(sorted(names, key=lambda name: facts(name)["paper"]["year"]))


@cache
def facts(paper: str) -> dict[str, Any]:
    """The facts of one paper. Raises ValueError naming the papers there are."""
    path = PAPERS / paper / "facts.toml"
    if not path.is_file():
        raise ValueError(f"unknown paper {paper!r}; expected one of {', '.join(papers())}")
    return tomllib.loads(path.read_text())


def cited(paper: str) -> str:
    """The paper as a reader would cite it: "Lavin & Gray 2016"."""
    stated = facts(paper)["paper"]
    names = [author.split(". ")[-1].strip() for author in stated["authors"].split(",")]
    who = " & ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who} {stated['year']}"


def named(paper: str) -> str:
    """What readers call the paper: "WinRS 2025"."""
    stated = facts(paper)["paper"]
    return f"{stated['name']} {stated['year']}"


def link(paper: str) -> str:
    """The address of the paper: arXiv's, or its DOI's."""
    stated = facts(paper)["paper"]
    if "arxiv" in stated:
        return f"https://arxiv.org/abs/{stated['arxiv']}"
    return f"https://doi.org/{stated['doi']}"


def table(paper: str, number: str | int) -> dict[str, Any]:
    """One table of a paper: its source, quantity, unit, and rows or columns."""
    return facts(paper)["tables"][str(number)]


def entries(name: str) -> list[dict[str, Any]]:
    """That entry of every paper which has it."""
    return [facts(paper)[name] for paper in papers() if name in facts(paper)]


def tables_of(quantity: str) -> list[dict[str, Any]]:
    """The tables of all papers that print that quantity."""
    every = (facts(paper).get("tables", {}).values() for paper in papers())
    return [entry for found in every for entry in found if entry.get("quantity") == quantity]


def matrices(paper: str, name: str) -> dict[str, Any]:
    """One set of printed matrices, with AT, G and BT as exact fractions where they were printed."""
    entry = dict(facts(paper)["matrices"][name])
    for key in ("AT", "G", "BT"):
        if key in entry:
            entry[key] = tuple(tuple(Fraction(v) for v in row) for row in entry[key])
    return entry
