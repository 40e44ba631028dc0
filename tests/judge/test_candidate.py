"""What a kernel declines, and what is a slip in its code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from winolab.gpu.machine import MachineError
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.libraries import NumPy
from winolab.problem import Problem

PROBLEM = Problem.of((1, 4, 4, 1), (1, 3, 3, 1))


def own_words(*_: Any) -> None:
    raise NotImplementedError("only\n3x3")


def own_words_again(*_: Any) -> None:
    try:
        own_words()
    except NotImplementedError:
        raise


def numpy_in_c(a: np.ndarray, *_: Any) -> Any:
    return a + np.ones(3)


def numpy_in_python(a: np.ndarray, *_: Any) -> Any:
    return np.pad(a, 1, mode="nonsense")  # pyright: ignore[reportArgumentType, reportCallIssue]


def python(a: np.ndarray, *_: Any) -> Any:
    return None + a  # pyright: ignore[reportOperatorIssue]


def out_of_range(a: np.ndarray, *_: Any) -> Any:
    return int("x")


def called(function: Any, name: str = "mine.py:conv") -> Any:
    operand = np.zeros((2, 2), np.float32)
    return Candidate(name, function, NumPy(), "channels_last")(operand, operand, PROBLEM)


@pytest.mark.parametrize("function", [own_words, own_words_again])
def test_what_a_kernel_raises_itself_declines(function: Any) -> None:
    with pytest.raises(Declined, match=r"^NotImplementedError: only 3x3$"):
        called(function)


@pytest.mark.parametrize("function", [numpy_in_c, numpy_in_python, python, out_of_range])
def test_what_is_raised_inside_of_it_is_a_crash(function: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        called(function)
    assert not isinstance(error.value, Declined)


def test_a_library_s_own_function_declines_by_what_it_raises() -> None:
    with pytest.raises(Declined, match=r"^ValueError: "):
        called(numpy_in_python, "numpy:pad")


def test_a_compiled_function_declines_its_arguments() -> None:
    from winolab.judge.loading import load

    with pytest.raises(Declined, match=r"^TypeError: "):
        load("builtins:len")(1, 2, PROBLEM)


@pytest.mark.parametrize(
    ("named", "arrays", "said"),
    [
        ("torch.nn.functional:conv2d", "torch", "PyTorch finds no GPU"),
        ("tests/judge/kernels.py:right", "numpy", "arrays of numpy lie on the CPU"),
        ("tests/judge/kernels.py:right", "cupy", "CuPy"),
    ],
)
def test_a_gpu_that_is_asked_for_is_not_replaced(named: str, arrays: str, said: str) -> None:
    from winolab.judge.loading import load

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((ValueError, MachineError), match=said) as error:
        load(named, arrays=arrays, device="cuda")
    assert "\n" not in str(error.value)
