"""Documents stay as short as their readers' time: words, by file. README's are in its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = {
    "docs/architecture.md": 900,
    "docs/kernels.md": 1200,
    "CONTRIBUTING.md": 500,
    "CHANGELOG.md": 800,
}
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
NOTE = range(100, 251)


def words(path: Path) -> int:
    return len(path.read_text().split())


@pytest.mark.parametrize("name", MOST)
def test_documents_stay_short(name: str) -> None:
    assert 0 < words(ROOT / name) <= MOST[name]


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_a_note_answers_one_question(path: Path) -> None:
    assert words(path) in NOTE
