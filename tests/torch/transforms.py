"""torch's transforms of a convolution, for comparison of two functions that compute it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import functional
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

GROUPS = 2
SHAPES = (3, 2, 6, 5, 6), (3, 6, 6 // GROUPS, 3, 3)  # of x and w, a batch of each


def cube(f: Any, x: Any, w: Any) -> Any:
    return (f(x, w) ** 3).sum()


def transforms(xs: Any, ws: Any) -> dict[str, Callable[[Any], Any]]:
    """What becomes of a function of x and w, by name; the arguments have SHAPES."""
    a, b, u, v = xs[0], ws[0], xs[1], ws[1]
    tiny = a[:1, :, :3, :3]
    return {
        "vmap of x": lambda f: vmap(f, (0, None))(xs, b),
        "vmap of w": lambda f: vmap(f, (None, 0))(a, ws),
        "vmap of both": lambda f: vmap(f)(xs, ws),
        "vmap along other axes": lambda f: vmap(f, (2, 1), 1)(xs.movedim(0, 2), ws.movedim(0, 1)),
        "vmap of vmap": lambda f: vmap(vmap(f, (0, None)), (None, 0))(xs, ws),
        "vmap of grad of x": lambda f: vmap(grad(partial(cube, f), (0, 1)), (0, None))(xs, b),
        "vmap of grad of w": lambda f: vmap(grad(partial(cube, f), (0, 1)), (None, 0))(a, ws),
        "vmap of grad of both": lambda f: vmap(grad(partial(cube, f), (0, 1)))(xs, ws),
        "jvp": lambda f: jvp(f, (a, b), (u, v)),
        "jvp of x": lambda f: jvp(lambda x: f(x, b), (a,), (u,)),
        "jvp of w": lambda f: jvp(lambda w: f(a, w), (b,), (v,)),
        "jvp of jvp": lambda f: jvp(
            lambda x: jvp(lambda w: f(x, w) ** 2, (b,), (v,))[1], (a,), (u,)
        ),
        "jvp of grad": lambda f: jvp(grad(lambda w: cube(f, a, w)), (b,), (v,)),
        "grad of jvp": lambda f: grad(
            lambda x: (jvp(lambda w: f(x, w) ** 2, (b,), (v,))[1] ** 2).sum()
        )(a),
        "grad of grad": lambda f: grad(lambda w: (grad(lambda x: cube(f, x, w))(a) ** 2).sum())(b),
        "grad with no_grad inside": lambda f: grad(
            lambda w: (f(a, w) * torch.no_grad()(f)(a, w)).sum()
        )(b),
        "jacrev": lambda f: jacrev(f, (0, 1))(tiny, b),
        "jacfwd": lambda f: jacfwd(f, (0, 1))(tiny, b),
        "hessian": lambda f: hessian(lambda w: cube(f, tiny, w))(b),
        "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(lambda w: cube(f, tiny, w)))(b),
        "jacrev of jacrev": lambda f: jacrev(jacrev(lambda w: cube(f, tiny, w)))(b),
        "jacrev of jacfwd": lambda f: jacrev(jacfwd(lambda w: cube(f, tiny, w)))(b),
        "vmap of hessian": lambda f: vmap(hessian(lambda w: cube(f, tiny, w)))(ws[:2]),
        "jacobian, vectorized": lambda f: functional.jacobian(
            lambda w: f(tiny, w), b, vectorize=True
        ),
        "jacobian, vectorized forward": lambda f: functional.jacobian(
            lambda w: f(tiny, w), b, vectorize=True, strategy="forward-mode"
        ),
        "hvp": lambda f: functional.hvp(lambda w: cube(f, a, w), b, v),
    }


def convolve(kind: str, groups: int, function: Any, x: Any, w: Any, stride: int = 2) -> Any:
    """A convolution, or a transposed one, by the function of that kind."""
    if (kind, groups) == ("conv2d", 1):
        x = x[..., : w.shape[-3], :, :]
    return function(x, w, stride=stride, padding=1, groups=groups)
