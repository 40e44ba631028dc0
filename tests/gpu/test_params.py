"""Parameter structs, as C lays them out."""

from __future__ import annotations

import pytest

from winolab.gpu.params import FLOAT, INT, LONG, POINTER, Layout, TensorMap, View


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


def test_what_lies_beside_a_single_element_is_aligned_as_it_is() -> None:
    """Copies of nothing have addresses, too: a view's distance of such a dimension may be any."""
    view = View(0, (3, 5, 64, 7))
    assert view.alone(1, (1, 9, 1)).strides == (0, 0, 64, 0)
    assert view.alone(2, (2, 2, 2)) == view


def test_a_dimension_that_a_copy_does_not_count_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="the size of what is copied in boxes is 2147483648, and"):
        TensorMap.of(0, 2, (1 << 31, 1, 1, 1, 1), (64, 64, 64, 64), (64, 1, 1, 1, 1))
