"""Documents stay as short as their readers' time: words, by file. README's are in its own tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from winolab.gpu.families.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
MOST = {
    "docs/architecture.md": 900,
    "docs/kernels.md": 1200,
    "CONTRIBUTING.md": 500,
    "CHANGELOG.md": 800,
    "experiments/README.md": 250,
}
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
NOTE = range(100, 251)
PAGES = sorted((ROOT / "winolab/gpu/families").glob("*/README.md"))
PAGE = 800
NO_KERNELS = {"cublaslt", "gamma"}  # a library has them; the families that share it have them
DIAGRAM = re.compile(r"^```\n[^`]*►[^`]*^```$", re.MULTILINE)
BARRIERS = re.compile(
    r"^\| barriers?\b[^|\n]*\| who arrives \| who waits \|\n\|[-|]+\|\n\| ", re.MULTILINE
)
WHY = re.compile(r"^## .*\bwhy\b", re.MULTILINE | re.IGNORECASE)


def words(path: Path) -> int:
    return len(path.read_text().split())


@pytest.mark.parametrize("name", MOST)
def test_documents_stay_short(name: str) -> None:
    assert 0 < words(ROOT / name) <= MOST[name]


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_a_note_answers_one_question(path: Path) -> None:
    assert words(path) in NOTE


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_a_family_has_a_page(path: Path) -> None:
    """A block diagram, who arrives at barriers and who waits, and why, in one page."""
    text = path.read_text()
    assert DIAGRAM.search(text)
    assert bool(BARRIERS.search(text)) == (path.parent.name not in NO_KERNELS)
    assert WHY.search(text)
    assert words(path) <= PAGE


def test_every_family_has_a_page() -> None:
    families = {family.name.partition(".")[0] for family in FAMILIES}
    assert families <= {path.parent.name for path in PAGES}


def test_every_room_of_experiments_has_its_line() -> None:
    listed = re.findall(
        r"^\| `(\w+)/` \| .", (ROOT / "experiments/README.md").read_text(), re.MULTILINE
    )
    folders = (path.parent.name for path in (ROOT / "experiments").glob("*/[a-z]*.*"))
    assert sorted(listed) == sorted({*folders} - {"__pycache__"})
