import re
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.algorithm import FORMS
from winolab.arguments.values import nearest
from winolab.ref.arithmetic.simulated import ACCEPTED


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("fp_32", ACCEPTED, "fp32"),
        ("FP16", ACCEPTED, "fp16"),
        ("tf-32", ACCEPTED, "tf32"),
        ("exat", ACCEPTED, "exact"),
        ("fp8", ACCEPTED, None),  # issue 42, item 22: was fp64
        ("int32", ACCEPTED, None),
        ("float", ACCEPTED, None),
        ("", ACCEPTED, None),
        ("fp", ACCEPTED, None),  # begins four
        ("winogard", FORMS, "winograd"),
        ("Gama", FORMS, "gamma"),
        ("wino", FORMS, "winograd"),
        ("conv2d", FORMS, None),
    ],
)
def test_a_hint_is_like_what_was_typed(name, known, expected) -> None:
    assert nearest(name, known) == expected


X, W = (1, 8, 8, 4), (4, 3, 3, 4)
ASKED = ("predict", "bound", "cost", "plan", "tolerance", "accuracy")
TEXTS = ("1x8x8x4", "1884", b"1884", bytearray(X))  # tuple() of each has values


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("asked", [*ASKED, "Problem.of", "Problem.transposed"])
def test_a_text_is_no_shape(asked: str, text: Any) -> None:
    """Letters were sizes: "1x8x8x4" had seven dimensions, and b"1884" sizes about 50."""
    home, _, name = asked.rpartition(".")
    of = getattr(winolab.Problem if home else winolab, name)
    own = {"of": ("x_shape", "w_shape"), "transposed": ("dy_shape", "w_shape")}
    first, second = own.get(name, ("input_shape", "filter_shape"))
    said = re.escape(f"is {text!r}; expected all sizes, as ")
    with pytest.raises(TypeError, match=rf"^{first} {said}\(32, 56, 56, 64\)$"):
        of(text, W)
    with pytest.raises(TypeError, match=rf"^{second} {said}\(64, 3, 3, 64\)$"):
        of(X, text)
    with pytest.raises(TypeError, match=r"_shape is an array; expected its shape, as array\.shape"):
        of(np.ones(X), W)


@pytest.mark.parametrize("name", ["stride", "dilation", "padding", "output_padding"])
@pytest.mark.parametrize("text", ["1x1", "11", b"\x01\x01", bytearray(2)])
def test_a_text_is_no_number_a_dimension(name: str, text: Any) -> None:
    geometry: dict[str, Any] = {name: text}
    said = re.escape(f"{name} in spatial dimension 0 is {text!r}; expected an integer")
    error: type[Exception] = TypeError
    if name == "padding" and isinstance(text, str):
        said, error = re.escape(f'padding {text!r}; expected numbers or one of "same"'), ValueError
    if name == "output_padding":
        with pytest.raises(error, match=f"^{said}"):
            winolab.Problem.transposed(X, W, **geometry)
        return
    for ask in ASKED:
        with pytest.raises(error, match=f"^{said}"):
            getattr(winolab, ask)(X, W, **geometry)
    with pytest.raises(error, match=f"^{said}"):
        winolab.conv_forward(np.ones(X), np.ones(W), **geometry)


def test_a_text_is_no_field_of_a_problem_nor_a_tile() -> None:
    text: Any = "33"
    with pytest.raises(TypeError, match=r"^filter is '33'; expected a list, a value a dimension$"):
        winolab.Problem(1, 4, 4, (8, 8), text, (1, 1), ((0, 0),) * 2, (1, 1))
    with pytest.raises(TypeError, match=r"winograd: output sizes '33'; expected one a dimension"):
        winolab.winograd(text, text)
    with pytest.raises(TypeError, match="input_shape is '33'; expected all sizes"):
        winolab.conv_backward_data(np.ones((1, 6, 6, 4)), np.ones(W), text)
