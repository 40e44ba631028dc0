import pytest

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
