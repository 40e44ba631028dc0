"""What is said of algorithms that Γ on Tensor Cores does not run, and what others say."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import datasheet
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request

WIDE = (2, 9, 9, 64), (64, 3, 3, 64)
NONE = "the CUDA kernels run gamma and direct algorithms, on 9.0 winograd too, all without"
NESTED = "only Tensor Cores (and FFMA units )?of 9.0 run winograd"
FFMA = "use precision 'fp32' or 'fp32_ffma'"


@pytest.mark.parametrize(
    ("gpu", "shapes", "text", "precision", "said", "unsaid"),
    [
        (
            "h100",
            WIDE,
            "fft:16",
            "fp32",
            f"^{NONE} scaling, not fft:16:3, which NumPy",
            "precision",
        ),
        ("h100", WIDE, "gamma:16:8:9", "fp32", "^gamma:16:8:9 has 9 taps; .* 3 wide$", "precision"),
        ("h100", WIDE, "gamma:8:6:3;scaling=l1", "fp32", f"^{NONE}.*l1, which", "precision"),
        (
            "h100",
            WIDE,
            "winograd:2x2:3x3;scaling=l1",
            "fp32_split",
            f"^{NONE}.*l1, which",
            "precision",
        ),
        ("h100", WIDE, "winograd:4x4:3x3", "fp32_ffma", f"^{NESTED}", "precision"),
        ("a100", WIDE, "winograd:2x2:3x3", "fp16", NESTED, "precision"),
        ("h100", WIDE, "winograd:4x4:5x5", "fp32", "no CUDA kernel has .* for 3 taps", "precision"),
        ("h100", WIDE, "gamma:8:6:3;variant=two_level:32", "fp32_split", FFMA, "nested"),
        ("a100", WIDE, "direct", "fp32_split", FFMA, "nested"),
    ],
)
def test_only_what_would_help_is_recommended(gpu, shapes, text, precision, said, unsaid) -> None:
    algorithm = None if text is None else parse_algorithm(text)
    request = Request(Problem.of(*shapes), "forward", datasheet(gpu), algorithm, precision)
    with pytest.raises(ValueError, match=said) as refused:
        plan(request)
    assert unsaid not in str(refused.value)
