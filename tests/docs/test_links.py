"""Links between documents name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = (
    "*.md",
    "docs/*.md",
    "docs/notes/*.md",
    "docs/tutorials/*.md",
    "winolab/**/*.md",
    "experiments/*.md",
)
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_hold(page: Path) -> None:
    for link in LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)):
        if "://" not in link and not link.startswith("#"):
            assert (page.parent / link.split("#")[0]).exists(), link
