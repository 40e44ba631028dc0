"""winolab.torch's functions beside torch.nn.functional's, on the samples that PyTorch has."""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import winolab
import winolab.torch
from tests.torch.samples import (
    DTYPES,
    NAMES,
    REAL,
    check,
    entry,
    exact_and_bound,
    ours,
    samples,
    theirs,
)
from winolab.ref.arithmetic.simulated import arithmetic


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_pytorch_s_samples(name: str, dtype: Any) -> None:
    count = 0
    for sample in samples(name, dtype):
        expected = exact_and_bound(name, sample.input, *sample.args, **sample.kwargs)
        check(ours(name)(sample.input, *sample.args, **sample.kwargs), *expected, dtype)
        count += 1
    assert count > 8


@pytest.mark.parametrize("name", NAMES[:3])
def test_pytorch_s_wrong_inputs_are_refused_in_a_line(name: str) -> None:
    count = 0
    for wrong in entry(name).error_inputs("cpu"):
        sample = wrong.sample_input
        with pytest.raises((ValueError, TypeError)) as refused:
            ours(name)(sample.input, *sample.args, **sample.kwargs)
        assert "\n" not in str(refused.value)
        count += 1
    assert count > 8


OURS = ["algorithm", "precision", "tolerance", "batch_invariant"]
X, W, B = torch.ones(2, 4, 6, 6), torch.ones(6, 4, 3, 3), torch.ones(6)


@pytest.mark.parametrize(
    ("arguments", "how", "error", "said"),
    [
        ((X.numpy(), W), {}, TypeError, "input is a ndarray; expected a torch tensor"),
        ((X, W[0]), {}, ValueError, "weight has 3 dimensions; expected 4"),
        ((X[0, 0], W), {}, ValueError, "input has 2 dimensions; expected 4, or 3 without batch"),
        ((X, W[:, :3]), {}, ValueError, "x has 4 channels; w's 3 input channels in 1 group"),
        ((X, W.double()), {}, TypeError, "x has dtype torch.float32 and w torch.float64"),
        ((X.to(torch.cfloat), W), {}, TypeError, "x has dtype torch.complex64; expected one of"),
        ((X, W.to(torch.cfloat)), {}, TypeError, "x has dtype torch.float32 and w torch.complex64"),
        ((X, W, W), {}, ValueError, "bias has shape (6, 4, 3, 3); expected (6,), one an output"),
        ((X, W, W[:, 0, 0, 0].half()), {}, TypeError, "bias has dtype torch.float16 and the"),
        ((X, W), {"padding": "full"}, ValueError, "padding 'full'; expected numbers, \"same\""),
        ((X, W), {"padding": "same", "stride": 2}, ValueError, 'padding "same" with stride [2, 2]'),
        ((X, W), {"stride": (1, 1, 1)}, ValueError, "stride has 3 values; expected one, or 2"),
        ((X, W), {"stride": 1.5}, TypeError, "stride is 1.5; expected an integer, or one a dim"),
        ((X, W), {"dilation": 3}, ValueError, "the filter spans 7 inputs, but input 6 with"),
        ((X, W), {"groups": 4}, ValueError, "x has 4 channels; w's 4 input channels in 4 group"),
        ((X, W), {"algorithm": "gama:8:6:3"}, ValueError, "did you mean 'gamma:8:6:3"),
        ((X, W), {"algorithm": "gamma:8:6:3", "stride": 2}, ValueError, "stride"),
        ((X, W), {"precision": "fp31"}, ValueError, "unknown precision 'fp31'"),
        ((X, W), {"tolerance": 1e-9}, ValueError, "the least that can be had in fp32 is"),
        ((X, W), {"tolerance": -1}, ValueError, "tolerance -1; expected a number above 0"),
        ((X, W), {"tolerance": 10**400}, ValueError, "tolerance is larger than any float; expec"),
        ((X, W.to("meta")), {}, ValueError, "x is on cpu and w on meta; move one of them"),
        ((X, W, B.to("meta")), {}, ValueError, "bias is on meta and the result on cpu; move one"),
        ((X, W, B.to_sparse()), {}, TypeError, "bias is torch.sparse_coo; expected a strided ten"),
        ((X, W), {"stride": True}, TypeError, "stride is True; expected an integer, or one a dim"),
        ((X, W), {"padding": (False, 1)}, TypeError, "padding is (False, 1); expected an integer"),
        ((X, W), {"dilation": [True, True]}, TypeError, "dilation is [True, True]; expected an in"),
        ((X, W), {"groups": True}, TypeError, "groups is True; expected an integer"),
    ],
)
def test_wrong_calls_are_refused_in_a_line(arguments, how, error, said) -> None:
    winolab.torch.conv2d(X, W, stride=1, padding=(0, 1), dilation=[1, 1])  # True equals 1
    with pytest.raises(error, match=re.escape(said)) as refused:
        winolab.torch.conv2d(*arguments, **how)
    assert "\n" not in str(refused.value)


def test_transposed_convolutions_refuse_in_a_line() -> None:
    call = partial(winolab.torch.conv_transpose2d, X, torch.ones(4, 6, 3, 3))
    with pytest.raises(ValueError, match="output_padding in spatial dimension 0 is 2; expected"):
        call(stride=2, output_padding=2)
    with pytest.raises(ValueError, match="padding 4 in spatial dimension 0 leaves nothing of the"):
        call(padding=4)


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_pytorch_s(name: str) -> None:
    found = inspect.signature(ours(name)).parameters
    positional = [n for n, p in found.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    stated = re.search(rf"{name}\((.*?)\) -> Tensor", getattr(torch.nn.functional, name).__doc__)
    assert stated
    assert positional == [part.partition("=")[0].strip() for part in stated[1].split(",")]
    assert [n for n, p in found.items() if p.kind is p.KEYWORD_ONLY] == OURS


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("algorithm", ["direct", "winograd:2x2:3x3", winolab.gamma(8, 6, 3)])
def test_a_named_algorithm_runs_the_reference(algorithm: Any, dtype: Any) -> None:
    """To the bit; bfloat16 has the numbers of its float32."""
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.rand(s, generator=generator) - 0.5 for s in ((2, 6, 9, 8), (4, 6, 3, 3)))
    x, w = x.to(dtype), w.to(dtype)
    bfloat = dtype == torch.bfloat16
    arrays = [(v.float() if bfloat else v).numpy() for v in (x, w)]
    expected = winolab.conv_forward(
        *arrays,
        padding=1,
        layout="channels_first",
        algorithm=algorithm,
        precision="bf16" if bfloat else None,
        out_dtype=ml_dtypes.bfloat16 if bfloat else None,
    )
    got = winolab.torch.conv2d(x, w, padding=1, algorithm=algorithm)
    assert got.dtype == dtype
    assert (got.double().numpy() == expected.astype(np.float64)).all()


def test_a_precision_is_a_name_an_arithmetic_or_a_dtype() -> None:
    x, w = torch.rand(1, 4, 5, 5), torch.rand(4, 4, 3, 3)
    conv = partial(winolab.torch.conv2d, x, w)
    expected = conv(precision="fp16")
    for same in (torch.float16, np.float16, "float16", winolab.arithmetic("fp16")):
        assert torch.equal(conv(precision=same), expected)
    wide = winolab.arithmetic("mp:60")
    exact = theirs("conv2d", x.double(), w.double()).float()
    assert torch.equal(conv(precision=wide), exact)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp32_split", "bf16", "int8", "fp8_e4m3"])
def test_a_precision_alone_has_direct_sums(precision: str) -> None:
    """It ran pieces by Winograd, which four times direct's error admit, and refused INT8, whose
    errors nothing tells before."""
    x, w = torch.randn(1, 4, 9, 9), torch.randn(4, 4, 3, 3)
    got = winolab.torch.conv2d(x, w, precision=precision)
    how: dict[str, Any] = {"layout": "channels_first", "algorithm": "direct"}
    due = winolab.conv_forward(x.numpy(), w.numpy(), precision=precision, **how)
    assert (got.numpy() == due).all()


def test_a_tolerance_asks_nothing_of_the_data() -> None:
    """NaN and infinity go through the algorithm that ``convert`` foresaw."""
    model: Any = nn.Sequential(nn.Conv2d(4, 4, 3))
    x = torch.rand(1, 4, 9, 9)
    (layer,) = winolab.torch.convert(model.eval(), x, tolerance=1e-6).layers
    how: dict[str, Any] = {"layout": "channels_first", "algorithm": layer.predicted[0].algorithm}
    assert how["algorithm"] != "direct"
    w, b = model[0].weight.detach(), model[0].bias.detach()
    for value in (1.0, 1e30, np.inf, np.nan):
        x[0, 1, 2, 3] = value
        due = winolab.conv_forward(x.numpy(), w.numpy(), **how) + b.numpy()[:, None, None]
        assert np.array_equal(model(x).detach().numpy(), due, equal_nan=True)


def test_a_tolerance_picks_what_the_reference_picks() -> None:
    x, w = torch.rand(1, 4, 9, 9), torch.rand(4, 4, 3, 3)
    direct, expected = (
        winolab.conv_forward(x.numpy(), w.numpy(), layout="channels_first", tolerance=tolerance)
        for tolerance in (None, 1e-4)
    )
    assert (expected != direct).any()
    for tolerance in (1e-4, "1e-4", np.float64(1e-4)):
        got = winolab.torch.conv2d(x, w, tolerance=tolerance)
        assert (got.numpy() == expected).all()
        tracked = winolab.conv_forward(x, w.requires_grad_(), layout="channels_first",
                                       tolerance=tolerance)  # fmt: skip
        assert (tracked.detach().numpy() == expected).all()
        w = w.detach()


def test_results_lie_as_their_input_does() -> None:
    for convolve, w in (
        (winolab.torch.conv2d, W),
        (winolab.torch.conv_transpose2d, W.movedim(0, 1)),
    ):
        for algorithm in (None, "direct"):
            last = X.to(memory_format=torch.channels_last)
            y, z = (convolve(v, w, algorithm=algorithm) for v in (X, last))
            assert y.is_contiguous()
            assert z.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(y, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", ["input", "weight"])
def test_one_channel_may_lie_last(last: str, dtype: Any) -> None:
    """PyTorch's own result read other memory there, which oneDNN had not written."""
    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(s, generator=generator).to(dtype) for s in ((2, 1, 6, 5), (2, 1, 2, 4)))
    v = x if last == "input" else w
    v = torch.empty_strided(v.shape, (v.stride(0), 1, *v.stride()[2:]), dtype=dtype).copy_(v)
    operands = (v, w) if last == "input" else (x, v)
    for stride in ((1, 2), (2, 3), 1):
        y = winolab.torch.conv2d(*operands, stride=stride)
        check(y, *exact_and_bound("conv2d", x, w, stride=stride), dtype)


@pytest.mark.parametrize(("given", "dtype"), [("x", torch.float64), ("b", torch.float64)])
def test_autocast_casts_no_bias_that_pytorch_s_does_not(given: str, dtype: Any) -> None:
    """float64 is cast by none: the bias had been cast to whatever dtype the result has."""
    x, w, b = X, W, torch.ones(6)
    x, w, b = (x.to(dtype), w.to(dtype), b) if given == "x" else (x, w, b.to(dtype))
    layer = winolab.torch.Conv2d(4, 6, 3)
    layer.weight, layer.bias = torch.nn.Parameter(w), torch.nn.Parameter(b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (torch.nn.functional.conv2d, winolab.torch.conv2d, lambda x, *_: layer(x)):
            with pytest.raises((RuntimeError, TypeError), match="bias"):
                call(x, w, b)
        assert winolab.torch.conv2d(X, W, torch.ones(6)).dtype == torch.bfloat16


NOT_DENSE: dict[str, Any] = {
    "mkldnn": lambda v: v.to_mkldnn(),
    "sparse": lambda v: v.to_sparse(),
    "sparse, with gradients": lambda v: v.to_sparse().requires_grad_(),
    "complex and sparse": lambda v: v.cfloat().to_sparse(),
    "nested": lambda v: torch.nested.nested_tensor(list(v)),
    "quantized": lambda v: torch.quantize_per_tensor(v, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantize")
@pytest.mark.parametrize("kind", NOT_DENSE)
def test_tensors_that_are_not_dense_are_refused_in_a_line(kind: str) -> None:
    """The dispatcher had written 48 lines."""
    of, conv = NOT_DENSE[kind], winolab.torch.conv2d
    plain = (lambda v: v.cfloat()) if kind.startswith("complex") else (lambda v: v)
    layer = winolab.torch.Conv2d(4, 6, 3).eval()
    calls = [lambda: conv(of(X), plain(W)), lambda: conv(of(X), plain(W), batch_invariant=True)]
    if kind != "nested":
        calls += [lambda: conv(of(X[0]), plain(W)), lambda: conv(plain(X), of(W))]
    if plain(X) is X:
        calls.append(lambda: layer(of(X)))
    for call in calls:
        with pytest.raises(TypeError, match=r"^(x|w|input) is .*; expected .*: call \w*\(\)$"):
            call()


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_conjugates_in_batches(name: str) -> None:
    """torch.vmap knows no views that negate, as the imaginary part of a conjugate is."""
    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randn(3, 2, 2, s, s, generator=generator, dtype=torch.complex128) for s in (4, 2))
    for axes, (a, b) in (
        ((0, None), (x.conj(), w[0])),
        ((None, 0), (x[0], w.conj())),
        ((0, 0), (x.conj(), w.conj())),
    ):
        exact, bound = _exact_batch(name, axes, a, b)
        got = torch.vmap(ours(name), axes)(a, b)
        assert bool(((got - exact).abs() <= bound).all())


def _exact_batch(name: str, axes: Any, *operands: Any) -> Any:
    pairs = (
        (v if axis is None else v[i] for axis, v in zip(axes, operands, strict=True))
        for i in range(3)
    )
    exact, bounds = zip(*(exact_and_bound(name, *pair) for pair in pairs), strict=True)
    return torch.stack(exact), torch.stack(bounds)


def test_complex_tensors_without_numbers() -> None:
    x, w = (v.to("meta", torch.complex64) for v in (X, W))
    bias = torch.ones(6, dtype=torch.complex64, device="meta")
    for last in (x, x.to(memory_format=torch.channels_last)):
        y = winolab.torch.conv2d(last, w, bias)
        assert (y.shape, y.dtype, y.device.type) == ((2, 6, 4, 4), torch.complex64, "meta")
    with pytest.raises(TypeError, match=r"^bias has dtype torch\.float64 and the result"):
        winolab.torch.conv2d(X.to("meta"), W.to("meta"), bias.real.double())


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_code_takes_a_tolerance_that_varies(dynamic: Any) -> None:
    """A number that was another before is a symbol there, of which operators take a text."""
    torch.compiler.reset()
    seen = []

    def backend(graph: Any, _: Any) -> Any:
        seen.extend(n.args[-1] for n in graph.graph.nodes if "winolab" in str(n.target))
        return graph.forward

    def call(x: Any, w: Any, tolerance: Any) -> Any:
        return winolab.torch.conv2d(x, w, tolerance=tolerance)

    compiled = torch.compile(call, fullgraph=True, backend=backend, dynamic=dynamic)
    given = 1e-3, 1e-4, "direct:4", 2, 1e-3
    for tolerance in given:
        assert torch.equal(compiled(X, W, tolerance), call(X, W, tolerance))
    assert seen == [str(tolerance) for tolerance in given[:-1]]


@pytest.mark.parametrize(
    "how",
    [
        {"algorithm": winolab.parse_algorithm("winograd:4x4:3x3")},
        {"precision": arithmetic("fp16@hopper")},
    ],
    ids=("algorithm", "precision"),
)
def test_compiled_code_takes_values(how: Any) -> None:
    torch.compiler.reset()
    layer = winolab.torch.Conv2d(4, 6, 3, **how)
    for call in (lambda x: winolab.torch.conv2d(x, W, **how), layer):
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(X), call(X))


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"precision": []}, TypeError, "precision is a list; expected a name, a dtype or"),
        ({"precision": 3}, TypeError, "precision is an int; expected"),
        ({"algorithm": []}, TypeError, "algorithm is of type list; expected"),
        ({"algorithm": b"direct"}, TypeError, "algorithm is of type bytes; expected"),
        ({"tolerance": ""}, ValueError, "tolerance ''; expected a number above 0"),
        ({"tolerance": []}, TypeError, r"tolerance is \[\]; expected a number above 0"),
        ({"tolerance": False}, TypeError, "tolerance is False; expected a number above 0"),
        ({"groups": -1}, ValueError, "groups = -1; expected at least 1"),
        ({"groups": "1"}, TypeError, "groups is '1'; expected an integer"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_what_says_nothing_is_refused_in_a_line(name: str, how: Any, error: Any, said: str) -> None:
    """By functions, and by modules when they are made, whose groups PyTorch checks."""
    x, w = torch.ones(1, 4, 5, 5), torch.ones(4, 4, 3, 3)
    with pytest.raises(error, match=f"^{said}"):
        getattr(winolab.torch, name)(x, w, **how)
    if "groups" not in how:
        for make in (winolab.torch.Conv2d, winolab.torch.ConvTranspose2d):
            with pytest.raises(error, match=f"^{said}"):
                make(4, 4, 3, **how)
        with pytest.raises(error, match=f"^{said}"):
            winolab.torch.convert(torch.nn.Conv2d(4, 4, 3), **how)


@pytest.mark.parametrize("how", [{"stride": 2**40}, {"dilation": 2**40}], ids=str)
def test_a_result_beyond_64_bits_is_refused(how: Any) -> None:
    x, w = torch.ones(1, 4, 5, 5), torch.ones(4, 4, 3, 3)
    for like in (x, x.to("meta")):
        with pytest.raises(ValueError, match=r"^dx has shape .* expected fewer than 2\*\*63 elem"):
            winolab.torch.conv_transpose2d(like, w.to(like.device), **how)


def test_an_operator_refuses_an_empty_tolerance() -> None:
    asks = [1, 1], [0] * 4, [1, 1], 1, None, None, None, None, "fallback", None, ""
    with pytest.raises(ValueError, match=r"^tolerance ''"):
        torch.ops.winolab.conv_forward(torch.ones(1, 4, 5, 5), torch.ones(4, 4, 3, 3), *asks)
