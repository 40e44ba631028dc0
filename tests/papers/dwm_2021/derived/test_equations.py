import pytest

from papers.dwm_2021.derived import equations
from tests.papers.dwm_2021.support import claims


def test_weight_update_differs():
    rows = {row["column"]: row["ours"] for row in equations.equation18()}
    assert rows["G Gᵀ ≠ E: largest deviation of an entry"] == 0.5


def test_every_cut_multiplies_as_its_number_of_pieces_says():
    assert list(claims(equations.EQUATION23).values()) == [True] * 3


@pytest.mark.parametrize("kernel", [1, 4, 7])
def test_cuts_are_all_there_are(kernel: int):
    """Their numbers are each the sum of the three before (pieces of one, two, three taps)."""
    numbers = [1, 1, 2, 4, 7, 13, 24, 44]
    found = list(equations._cuts(kernel))
    assert len(set(found)) == len(found) == numbers[kernel]
    assert all(sum(cut) == kernel and max(cut) <= 3 for cut in found)


def test_tiles_that_multiply_more_would_be_seen(monkeypatch: pytest.MonkeyPatch):
    """Tiles of three outputs make other products: the claim is of two."""
    plain = equations.Tile
    monkeypatch.setattr(equations, "Tile", lambda n, r: plain(3, r))
    monkeypatch.setattr(equations, "CUT", {1: (4, 5)})
    found = claims(equations.EQUATION23)
    assert not found["∏(Sᵢ + mᵢ) whatever the pieces: largest deviation"]
