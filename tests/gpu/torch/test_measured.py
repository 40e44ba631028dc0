"""Networks whose plans a clock picked on a GPU: the same results within what plans may err."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import winolab.torch  # noqa: E402
from winolab.bench.compare import free  # noqa: E402
from winolab.gpu.planner.rivals import rivals  # noqa: E402
from winolab.gpu.runtime.cache import plans  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("WINOLAB_PLANS", "1")  # without which nothing is kept
    plans._planned.cache_clear()
    monkeypatch.setattr(plans, "_preferred", {})
    yield
    free()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("training", [False, True])
def test_a_network_s_calls_take_what_was_the_fastest(dtype, training: bool) -> None:
    """Also where it was called before, by kept filters and past Python."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(64, 128, 3, padding=1), nn.Conv2d(128, 96, 1), nn.Conv2d(96, 64, 3, stride=2)
    ).cuda()
    exact, x = copy.deepcopy(model).double(), torch.randn(4, 64, 28, 28, device="cuda")
    with torch.no_grad():
        due = exact(x.double())
    winolab.torch.convert(model.to(dtype).train(training))
    x = x.to(dtype).requires_grad_(training)
    most = 1e-5 if dtype == torch.float32 else 5e-3

    def check() -> None:
        for _ in range(6):
            with torch.set_grad_enabled(training):
                y = model(x)
            assert float((y.detach().double() - due).norm() / due.norm()) <= most
            if training:
                y.square().sum().backward()

    check()
    done = winolab.torch.warmup(model, x, measure=True, progress=False)
    assert len(done.timed) >= (9 if training else 3)
    assert any(len(one.times) > 2 for one in done.timed)
    for one in done.timed:
        assert plans.planned(one.request, one.apart) == one.plan
        assert {p for p, _ in one.times} == {*rivals(one.request, one.apart)}
        assert all(0 < s < 1e-3 for _, s in one.times)
        assert one.gain >= 1
    check()
    again = winolab.torch.warmup(model, x, measure=True, progress=False)
    found = {(one.request, one.apart): one.times for one in done.timed}
    assert {(one.request, one.apart): one.times for one in again.timed} == found  # kept
