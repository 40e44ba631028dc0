from pathlib import Path

import pytest

from experiments.harness.tables import select, stored
from experiments.report import documents
from papers.im2col_winograd_2024 import picture


def test_documents_say_what_the_rows_say() -> None:
    """After new rows: python -m experiments.report.documents."""
    for path, text in documents.documents():
        assert path.read_text() == text, f"{Path(path).name} is out of date"


def test_unknown_marks_are_refused() -> None:
    with pytest.raises(KeyError, match="speed"):
        documents.written("<!-- speed -->\nfast\n<!-- /speed -->\n")


def test_the_picture_shows_what_is_printed_and_what_is_simulated() -> None:
    rows = select(stored(picture.PAPER), table="table3")
    text = picture.svg(rows)
    assert text.count('class="line"') == len(picture.LINES)
    assert text.count('class="cross"') == 8
    assert "prefers-color-scheme:dark" in text
    typed, exact, program, best = (picture.errors(rows, line)[0][1] for line in picture.LINES[:4])
    assert typed > exact > program > best
    gained = picture.factors(rows)
    assert abs(gained[0] * gained[1] * gained[2] - typed / best) <= 1e-9 * typed / best
    for line in picture.LINES:
        for (_, ours), (_, paper) in zip(
            picture.errors(rows, line), picture.printed(line), strict=True
        ):
            # the crosses lie on their line: within the tolerance that the table states
            assert not line.crosses or abs(ours / paper - 1) <= 0.25
