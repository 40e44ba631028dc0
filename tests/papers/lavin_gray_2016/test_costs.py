import pytest

from papers.lavin_gray_2016 import costs

# The filter transform of tile 5 agrees with its rows scaled as in "rows scaled", not without.
DIFFERS = {("Winograd, tile 5", "γ′")}


@pytest.mark.parametrize("table", [costs.TABLE1, costs.TABLE2, costs.TABLE3])
def test_every_number_comes_out(table):
    rows = [row for job in table.jobs(False) for row in job.run()]
    judged = [c for c in table.cells(rows) if c.agrees is not None]
    assert judged
    assert {(c.where, c.column) for c in judged if not c.agrees} <= DIFFERS
