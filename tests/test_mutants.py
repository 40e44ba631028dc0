"""The mutants are of the code as it is: each changes one place, and its tests are there."""

from __future__ import annotations

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_changes_one_place(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert mutant.tests
    assert all((ROOT / test).exists() for test in mutant.tests.split())


def test_no_mutant_is_there_twice() -> None:
    assert len(set(MUTANTS)) == len(MUTANTS) > 90
