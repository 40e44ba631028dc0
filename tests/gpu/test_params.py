"""Parameter structs, as C lays them out."""

from __future__ import annotations

import pytest

from winolab.gpu.params import FLOAT, INT, LONG, POINTER, Layout


def test_numbers_that_no_struct_holds_say_what_to_do() -> None:
    layout = Layout(("x", POINTER), ("step", LONG), ("columns", INT))
    layout.pack(1 << 60, 1 << 40, (1 << 31) - 1)
    message = "the number columns of a launch is 2147483648, .* count to 2147483647: split the arra"
    with pytest.raises(ValueError, match=message):
        layout.pack(0, 0, 1 << 31)


def test_structs_are_laid_out_as_c_does() -> None:
    layout = Layout(("n", INT), ("x y", POINTER), ("f", FLOAT))
    assert layout.fields == (("n", "i"), ("x", "Q"), ("y", "Q"), ("f", "f"))
    data = layout.pack(1, 2, 3, 0.5).data
    assert len(data) == 32  # 4 bytes before the pointers, 4 behind the float
    assert data[8:24] == (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
