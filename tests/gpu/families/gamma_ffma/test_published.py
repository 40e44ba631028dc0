"""Im2col-Winograd's kernels by name: the reference's bits, what they load, what is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.algorithm import Problem, Tile, gamma, parse_algorithm
from winolab.device import DATASHEETS, H100
from winolab.gpu import driver
from winolab.gpu.families.gamma_ffma.config import CONFIGS, Config
from winolab.gpu.families.gamma_ffma.plan import SegmentedPlan
from winolab.gpu.families.gamma_ffma.published import LARGE, Published, intensity
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.im2col import segments
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic

# An odd number of tiles a row, so that tiles side by side lie in two rows; groups; 3-D.
CASES = {
    "all that Γ8 has": ("gamma:8:6:3;variant=ruse+fused+segments", (2, 5, 21, 16), (36, 3, 3, 16)),
    "scalars": ("gamma:8:6:3;variant=ruse+fused+segments", (2, 3, 4, 19, 5), (7, 2, 2, 3, 5)),
    "Γ4": ("gamma:4:2:3@paper;variant=ruse+fused", (1, 4, 11, 26), (22, 3, 3, 13)),
    "c64": ("gamma:16:8:9;variant=c64+fused", (1, 3, 19, 8), (70, 2, 9, 8)),
    "Γ16": ("gamma:16:9:8;variant=ruse", (2, 2, 30, 10), (34, 1, 8, 10)),
}


def made(text: str, p: Problem, direction: str = "forward", device=H100) -> Plan:
    return plan(Request(p, direction, device, parse_algorithm(text), "fp32"))


def operands(p: Problem, direction: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = p.x_shape if direction == "forward" else p.y_shape, p.w_shape
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in shapes)
    return a, b


def expected(text: str, p: Problem, direction: str, chunk: int = 8) -> np.ndarray:
    """The reference's, whose segments are the paper's; masked where these are off."""
    algorithm, order = parse_algorithm(text), None if "segments" in text else Order(chunk)
    compute = getattr(winograd, direction)
    return compute(*operands(p, direction), p, algorithm, arithmetic("fp32"), None, order)


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_bit_is_the_reference_s(case, direction) -> None:
    text, x, w = case
    p = Problem.of(x, w, padding=1, groups=x[-1] // w[-1])
    found = made(text, p, direction)
    assert (found.workspace == 0) == ("fused" in text)
    y = hosted.execute(found, *operands(p, direction), seed=3)
    assert np.array_equal(y, expected(text, p, direction))


@pytest.mark.parametrize("name", ["a100", "rtx4090"])
def test_before_9_0(name) -> None:
    p = Problem.of((1, 3, 12, 8), (6, 2, 5, 8), padding=1)
    text = "gamma:8:4:5;variant=ruse+fused"
    found = made(text, p, device=DATASHEETS[name])
    y = hosted.execute(found, *operands(p, "forward"))
    assert np.array_equal(y, expected(text, p, "forward"))
    with pytest.raises(ValueError, match="has no registers for c64"):
        made("gamma:16:8:9;variant=c64", Problem.of((1, 3, 12, 8), (6, 2, 9, 8), padding=4),
             device=DATASHEETS[name])  # fmt: skip


def test_the_paper_s_segments() -> None:
    """Figure 7's: of 7 outputs Γ8(6,3) has six and no second tile; one kernel a segment."""
    p = Problem.of((2, 7, 17, 8), (8, 3, 3, 8), padding=1)
    found = made("gamma:8:6:3;variant=segments", p)
    assert isinstance(found, SegmentedPlan)
    cut = segments(17, Tile(6, 3))
    assert [(s.start, s.tile, s.outputs) for s in cut] == [
        (at, q.tile, q.correlation.output[2])
        for at, q in zip(found.starts, found.parts, strict=True)
    ]
    assert "outputs 16 to 16 of the width" in str(found)
    assert len(found.shared()) == 6
    assert found.kernel == "Γ8(6,3) and Γ4(2,3) and Γ1(1,1)"
    whole = made("gamma:8:6:3;variant=segments", Problem.of((2, 7, 18, 8), p.w_shape, padding=1))
    assert not isinstance(whole, SegmentedPlan)


def test_filters_transformed_apart() -> None:
    p = Problem.of((2, 3, 9, 8), (8, 3, 3, 8), padding=1)
    found, (x, w) = made("gamma:8:6:3;variant=segments", p), operands(p, "forward")
    kernels = hosted.loaded(found)
    kept = hosted.prepared(found, w, kernels)
    y = hosted.Guarded(p.y_shape, "float32")
    of_x, of_y = (
        ArrayLayout.fresh(a.shape).view(a.ctypes.data, filter=False) for a in (x, y.array)
    )
    found.run(kernels, of_x, kept.ctypes.data, of_y, 0, 0)
    assert np.array_equal(y.array, expected("gamma:8:6:3;variant=segments", p, "forward"))
    with pytest.raises(TypeError, match="takes the filter as it is"):
        made("gamma:8:6:3;variant=fused", p).prepare(kernels, of_x, 0, 0)


def test_section_5_6_s_intensities() -> None:
    """Operations a byte of Γ16(8,9), and where input reuse pays (section 5.4)."""
    tile = Tile(8, 9)
    found = {
        name: intensity(Published(name, True, False).shape(16), tile)
        for name in ("base", "ruse", "c64")
    }
    assert {name: round(value, 2) for name, value in found.items()} == {
        "base": 10.24, "ruse": 12.19, "c64": 15.06,
    }  # fmt: skip
    # The filter's launch before: α numbers a tile are loaded, not r.
    assert intensity(LARGE[16], tile) == 8
    assert intensity(LARGE[8], Tile(6, 3)) == 2 * 8 * 64 * 32 / (4 * 8 * (64 + 32))


@pytest.mark.parametrize("alpha", [8, 16])
def test_no_bank_conflicts(alpha) -> None:
    text = {8: "gamma:8:6:3;variant=ruse+fused", 16: "gamma:16:8:9;variant=ruse+fused"}[alpha]
    r = parse_algorithm(text).tiles[0].r
    p = Problem.of((1, 2, 4 * alpha, 16), (32, 1, r, 16), padding=(0, 1))
    requests, lost = Counter(), Counter()
    for q in hosted.requests(made(text, p), *operands(p, "forward"))["winolab_gamma_ffma"]:
        requests[q.member, q.write] += q.requests
        lost[q.member, q.write] += q.wavefronts - q.phases
    for key in (("u", False), ("u", True), ("v", False), ("v", True)):
        assert requests[key] > 0
        assert lost[key] == 0


def test_by_name_alone() -> None:
    """No block that the planner offers has these policies; what does not fit is refused."""
    p = Problem.of((2, 9, 18, 16), (16, 3, 3, 16), padding=1)
    for asked in (None, gamma(8, 6, 3)):
        for found in candidates(Request(p, "forward", H100, asked, "fp32_ffma")).plans:
            if isinstance(found.config, Config):
                assert not found.config.overlap
                assert not found.config.fused
    for text, message in (
        ("gamma:6:4:3;variant=base", "the paper's blocks have 4, 8 or 16 states"),
        ("gamma:8:6:3;variant=ruse+c64", "unknown variant 'ruse\\+c64'; expected two_level:32"),
        ("gamma:8:6:3;variant=c64", "c64 is a block of 16 states, not of 8"),
    ):
        with pytest.raises(ValueError, match=message):
            made(text, p)
    with pytest.raises(ValueError, match="give it or a config, not both"):
        plan(Request(p, "forward", H100, gamma(8, 6, 3, variant="ruse"), config=CONFIGS[8][0]))
    assert gamma(8, 6, 3, variant="segments+fused").variant == "base+fused+segments"


@pytest.mark.gpu
@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_on_the_device(case, direction) -> None:
    """The reference's bits from kernels of NVIDIA's compiler, on poisoned memory."""
    text, x, w = case
    p, cp = Problem.of(x, w, padding=1, groups=x[-1] // w[-1]), driver.cupy()
    found = made(text, p, direction, driver.device(0))
    a, w = (cp.asarray(a) for a in operands(p, direction))
    y = cp.full(p.y_shape if direction == "forward" else p.x_shape, cp.nan, "float32")
    workspace = cp.full(max(1, found.workspace // 4), cp.nan, "float32")
    of_a, of_w, of_y = (
        ArrayLayout.fresh(v.shape).view(v.data.ptr, filter=v is w) for v in (a, w, y)
    )
    kernels = loader.load(found.source(), str(found.config), found.shared(), 0)
    found.launch(kernels, of_a, of_w, of_y, workspace.data.ptr, 0)
    assert np.array_equal(cp.asnumpy(y), expected(text, p, direction))
