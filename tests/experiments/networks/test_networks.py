"""The networks that are run whole have the convolutions of the list that kernels are timed on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from experiments.measure.networks import layers_of
from experiments.networks.backbones import NAMES, meta, parameters, resnet, trained, vgg
from experiments.networks.end_to_end import NETWORKS
from winolab.bench.networks import networks


@pytest.mark.parametrize("name", NETWORKS)
def test_convolutions_are_those_of_the_list(name: str) -> None:
    """But for Inception's auxiliary classifier, which no call of the list's reaches either. Of
    inputs only the video is another, smaller one."""
    network, listed = NETWORKS[name], networks()[name]
    assert dict(layers_of(network.build, tuple(listed["input"]))) == listed["layers"]
    assert network.input == tuple(listed["input"]) or name == "video_decoder"


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (lambda: resnet(18), 11_689_512),
        (lambda: resnet(50), 25_557_032),
        (lambda: vgg(16), 138_357_544),
        (NETWORKS["densenet121"].build, 7_978_856),
        (NETWORKS["convnext_tiny"].build, 28_589_128),
        (NETWORKS["efficientnet_b0"].build, 5_288_548),
        (NETWORKS["inception_v3"].build, 23_834_568),
    ],
)
def test_parameters_are_as_many_as_published(build: Callable[[], nn.Module], count: int) -> None:
    assert parameters(meta(build)) == count


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size", "classes"), [(32, 10), (128, 1000)])
def test_the_paper_s_networks(name: str, size: int, classes: int) -> None:
    model = meta(lambda: trained(name, size, classes))
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    taps = {m.kernel_size for m in convs}
    if name.startswith("vgg"):
        assert len([m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]) == 5
        assert len(convs) == {"16": 13, "19": 16}[name[3:5]]
        expected = {"vgg16x5": {(5, 5)}, "vgg16x7": {(7, 7), (3, 3)}}.get(name, {(3, 3)})
        assert taps == expected
    assert not any(isinstance(m, nn.ReLU) for m in model.modules())
