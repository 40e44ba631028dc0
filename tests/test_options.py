"""What a caller asks for is a named value, and the NumPy path needs no GPU code."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from winolab.algorithm import gamma
from winolab.arguments.tolerance import Tolerance
from winolab.options import ConvOptions, Geometry, convolution
from winolab.problem import Problem

# Every argument of ``convolution`` by its name, each with a value that no other has.
GEOMETRY = {
    "result_shape": (2, 9, 8, 4),
    "stride": 2,
    "padding": (1, 3),
    "dilation": 5,
    "groups": 6,
}
OPTIONS = {
    "layout": "channels_first",
    "algorithm": "gamma:8:6:3",
    "precision": "fp16",
    "out_dtype": "float32",
    "workspace_limit": 7,
    "on_range": "raise",
    "scale": (11, 18),
}

WITHOUT_GPU = """
import sys
import numpy as np
import winolab

def loaded():
    return sorted(name for name in sys.modules if (name + ".").startswith("winolab.gpu."))

assert not loaded(), loaded()
x, w = np.ones((1, 5, 6, 4), "f"), np.ones((4, 3, 3, 4), "f")
y = winolab.conv_forward(x, w, padding=1)
winolab.conv_backward_data(y, w, x.shape, padding=1)
winolab.conv_backward_filter(x, y, w.shape, padding=1)
winolab.conv_forward(x, winolab.prepare_filter(w, x.shape, padding=1), padding=1, precision="fp32")
assert not loaded(), loaded()
"""


def test_the_numpy_path_imports_nothing_of_the_gpu() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_GPU], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_argument_arrives_under_its_name() -> None:
    asked = convolution("backward_data", *GEOMETRY.values(), *OPTIONS.values())
    assert asked.geometry == Geometry(**GEOMETRY)
    assert asked.options == ConvOptions(**OPTIONS)
    assert asked.options.checked().algorithm == gamma(8, 6, 3)
    asked = convolution(
        "backward_data", None, 1, 0, 1, 1, "channels_last", output_padding=1, tolerance=1e-5
    )
    assert asked.geometry.output_padding == 1
    assert asked.options.checked().tolerance == Tolerance("predicted", 1e-5)


def test_a_tolerance_is_part_of_the_question() -> None:
    asked = [
        convolution("forward", None, 1, 1, 1, 1, "channels_last", tolerance=tolerance)
        for tolerance in (None, 1.0, 1, True, "1.0", "proven:1.0", 1.0)
    ]
    assert asked[-1] is asked[1]
    assert len({id(each) for each in asked}) == len(asked) - 1
    both = ConvOptions(algorithm="direct", tolerance="proven:1e-4")
    message = "algorithm direct and tolerance proven:0.0001 both say how; give one of them"
    with pytest.raises(ValueError, match=message):
        both.checked()


@pytest.mark.parametrize(
    ("name", "equal"),
    [("stride", 2.0), ("padding", (1.0, 3)), ("dilation", 5.0), ("groups", 6.0),
     ("result_shape", (2, 9.0, 8, 4)), ("workspace_limit", 7.0), ("scale", (11.0, 18))],
)  # fmt: skip
def test_equal_questions_are_one_object_and_equal_numbers_of_other_types_are_not(
    name, equal
) -> None:
    arguments = GEOMETRY | OPTIONS
    asked = convolution("forward", *arguments.values())
    assert convolution("forward", *arguments.values()) is asked
    assert convolution("backward_data", *arguments.values()) is not asked
    assert arguments[name] == equal
    assert convolution("forward", *(arguments | {name: equal}).values()) is not asked


def test_a_wrong_scale_leaves_nothing_for_the_right_one() -> None:
    """Each equals the next, and has its hash."""
    wrong, how = (Fraction(4), np.float32(4), 4.0, complex(4)), {"layout": "channels_last"}
    asked = [convolution("forward", None, 1, 1, 1, 1, **how, scale=s) for s in (*wrong, 4)]
    assert len({*wrong, 4}) == 1
    assert not any(each is asked[-1] for each in asked[:-1])
    assert type(asked[-1].options.scale) is int


def test_lists_of_sizes_ask_what_tuples_do_and_a_call_is_kept() -> None:
    sizes = [1, 3]
    one = convolution("forward", *(GEOMETRY | {"padding": sizes}).values(), **OPTIONS)
    assert one is convolution("forward", *(GEOMETRY | {"padding": [1, 3]}).values(), **OPTIONS)
    assert one.unique
    assert one.geometry.padding == (1, 3)
    sizes[0] = 2
    other = convolution("forward", *(GEOMETRY | {"padding": sizes}).values(), **OPTIONS)
    assert other.geometry.padding == (2, 3)
    wrong = convolution("forward", *(GEOMETRY | {"padding": [1.0, 3]}).values(), **OPTIONS)
    assert wrong is not one


def test_questions_without_a_hash_are_objects_of_their_own() -> None:
    lists = GEOMETRY | {"padding": [[1, 1], [3, 3]]}
    one, other = (convolution("forward", *lists.values(), **OPTIONS) for _ in range(2))
    assert one is not other
    assert one.options == other.options
    assert one.geometry == other.geometry
    assert not one.unique


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_a_question_becomes_the_problem_of_its_arrays(direction) -> None:
    x, w = (2, 9, 8, 4), (6, 3, 3, 2)
    expected = Problem.of(x, w, stride=2, padding=1, groups=2)
    result = {"backward_data": x, "backward_filter": w}.get(direction)
    asked = convolution(direction, result, 2, 1, 1, 2, "channels_last")
    a = np.empty(0).shape if direction == "backward_data" else x
    b = expected.y_shape if direction == "backward_filter" else w
    assert asked.problem(a, b) == expected
