"""Documents stay as short as their readers' time: words, by file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOST = {"architecture.md": 900, "kernels.md": 1200}
NOTE = range(100, 251)


def words(path: Path) -> int:
    return len(path.read_text().split())


def test_documents_stay_short() -> None:
    there = {name: DOCS / name for name in MOST if (DOCS / name).is_file()}
    for name, path in there.items():
        assert words(path) <= MOST[name], name
    if len(there) == len(MOST):
        for path in sorted((DOCS / "notes").glob("*.md")):
            assert words(path) in NOTE, f"{path.name} has {words(path)} words"


def test_contributing_and_changes_stay_short() -> None:
    assert words(ROOT / "CONTRIBUTING.md") <= 500
    assert words(ROOT / "CHANGELOG.md") <= 800
