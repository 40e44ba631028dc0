"""The layers of networks: their text, what the file has, that kernels serve them."""

from __future__ import annotations

import random

import pytest

from winolab.algorithm import Problem
from winolab.bench.layers import LAYERS, parse_layer
from winolab.bench.networks import BatchedLayer, distinct, layers_of, networks, parse
from winolab.device import H100
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DIRECTIONS, Request

STEM = "32x224x224x3>64x7x7s2p3"


def test_a_text_is_a_layer() -> None:
    layer = parse_layer(STEM)
    assert isinstance(layer, BatchedLayer)
    assert str(layer) == STEM
    assert layer.problem == Problem.of((32, 224, 224, 3), (64, 7, 7, 3), stride=2, padding=3)
    assert layer.problem.output == (112, 112)
    causal = parse("1x5x60x104x16>384x3x3x3p0x1x1d1x2x2")
    assert (causal.padding, causal.dilation, causal.stride) == ((0, 1, 1), (1, 2, 2), (1, 1, 1))
    text = "8x16x40x1024>1024x3x4p2-0x1g1024"
    before = parse(text)
    assert (str(before), before.padding, before.networks) == (text, ((2, 0), 1), "")
    assert before.problem.padding == ((2, 0), (1, 1))
    assert str(parse("8x40x16>16x4p3-0g16")) == "8x40x16>16x4p3-0g16"
    assert parse("8x40x16>16x4p3-3g16").padding == (3,)
    grouped = parse("2x56x56x128>128x3x3p1g32")
    assert grouped.problem.w_shape == (128, 3, 3, 4)
    assert (grouped.group, layer.group, causal.group) == ("grouped", "stem", "stem")


@pytest.mark.parametrize(
    "text",
    ["32x3>64", "1x8x8x3>4x3", "8x8>4x3x3", "1x8x8x3>4x3x3q2", ">", "1x8x8x8x8x3>4x3x3x3x3",
     "1x8x3>4x3p2-", "1x8x3>4x3p-2", "1x8x3>4x3p2-0-1"],
)  # fmt: skip
def test_other_texts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected N x input x IC > OC x filter, then s, p, d"):
        parse_layer(text)


def test_the_file_has_the_networks() -> None:
    """Layers and calls of a forward pass, as the networks' papers count them."""
    calls = {name: sum(n["layers"].values()) for name, n in networks().items()}
    known = {"resnet18": 20, "resnet50": 53, "vgg16": 13, "inception_v3": 94, "densenet121": 120}
    assert known.items() <= calls.items()
    assert len(calls) == 14
    found = distinct()
    assert len({*found}) == len(found) > 600
    for layer in found:
        assert parse(str(layer)) == layer
        assert min(layer.problem.output) > 0
        assert layer.networks
    assert {layer.batch for layer in found} == {1, 2, 32}
    assert LAYERS["networks"] == found
    stem = parse("1x224x224x3>64x7x7s2p3")
    assert stem.networks == "resnet18,resnet50,densenet121,resnext50_32x4d"
    groups = {layer.group for layer in found}
    assert groups == {"stem", "strided", "dilated", "grouped", "depthwise", "1x1", "dense"}


def test_resnet50_is_known_by_its_multiply_adds() -> None:
    """torchvision states 4.09·10⁹ of an image, of which 2·10⁶ are the last layer's."""
    total = sum(
        count * layer.problem.macs for layer, count in layers_of("resnet50") if layer.batch == 1
    )
    assert total == pytest.approx(4.09e9, rel=2e-3)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_kernels_serve_them(direction: str) -> None:
    """A sample of every group in every precision."""
    by_group: dict[str, list[BatchedLayer]] = {}
    for layer in distinct():
        by_group.setdefault(layer.group, []).append(layer)
    chosen = random.Random(direction)
    for layers in by_group.values():
        for layer in chosen.sample(layers, 2):
            precision = chosen.choice(["fp32", "fp16", "bf16"])
            assert plan(Request(layer.problem, direction, H100, precision=precision)).predicted > 0
