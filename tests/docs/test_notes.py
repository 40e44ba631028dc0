"""The page of the kernels and the lab notes: what they name is there, and numbers cite rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
PARTS = ("**Question.**", "**Prediction.**", "**Measured.**", "**Decision.**")
QUOTED = re.compile(r'"([^"]*)"')
FILE = re.compile(r"`((?:experiments|winolab|tests|papers)/[\w/]+(?:\.\w+)?/?)`")


@pytest.fixture(scope="module")
def steps() -> set[str]:
    rows = ROOT / "experiments" / "results" / "throughput_variants.jsonl"
    return {json.loads(line)["step"] for line in rows.read_text().splitlines()}


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name)
def test_a_note_answers_one_question_and_cites_its_rows(note: Path, steps: set[str]) -> None:
    text = " ".join(note.read_text().split())
    assert re.match(r"\d{3}-", note.name)
    assert [text.index(part) for part in PARTS] == sorted(text.index(part) for part in PARTS)
    for step in (quoted for quoted in QUOTED.findall(text) if len(quoted) > 20):
        assert any(step.rstrip("…") in each for each in steps), step
    for file in FILE.findall(text):
        assert (ROOT / file).exists(), file


def test_notes_have_numbers_of_their_own() -> None:
    assert len({note.name[:3] for note in NOTES}) == len(NOTES) >= 19


def test_the_page_of_the_kernels_has_every_family() -> None:
    families = ROOT / "winolab" / "gpu" / "families"
    text = (ROOT / "docs" / "kernels.md").read_text()
    linked = set(re.findall(r"families/(\w+)/README\.md", text))
    assert linked == {folder.parent.name for folder in families.glob("*/README.md")}
