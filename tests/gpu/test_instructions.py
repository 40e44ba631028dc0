from __future__ import annotations

from tests.gpu.instructions import migrate, renamed, same

OLD, NEW, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4, "00112233445566778899" * 3


def test_a_compiler_that_has_several_codes_of_a_kernel_changes_nothing() -> None:
    """winolab_scale's addresses are compared in some objects, and folded in others."""
    assert same(["folded", "main"], [["compared", "main"], ["folded", "scan"]])
    assert not same(["folded", "main"], [["compared", "main"], ["compared", "main"]])
    assert not same(["folded", "main"], [["folded", "main", "more"]])


def test_digests_change_where_instructions_are_equal(tmp_path) -> None:
    before = {
        "a": {"digest": OLD, "instructions": ["1"]},
        "b": {"digest": OTHER, "instructions": ["2"]},
    }
    after = {
        "a": {"digest": NEW, "instructions": ["1"]},
        "b": {"digest": NEW, "instructions": ["3"]},
    }
    names = renamed(before, after)
    assert names == {OLD: NEW}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f'{{"source": "{OLD[:12]}", "sources": ["{OTHER[:12]}", "{OLD[:16]}"]}}\n')
    assert migrate(names, [rows]) == 2
    wanted = f'{{"source": "{NEW[:12]}", "sources": ["{OTHER[:12]}", "{NEW[:16]}"]}}\n'
    assert rows.read_text() == wanted
