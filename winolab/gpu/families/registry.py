"""All families of kernels: a new one is a folder, an import and an entry of FAMILIES.

The planner and nothing else asks here; no family imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from winolab.arguments.variants import CUBLASLT
from winolab.gpu.families.cublaslt import plan as cublaslt
from winolab.gpu.families.depthwise import plan as depthwise
from winolab.gpu.families.direct import plan as direct
from winolab.gpu.families.fused2d import plan as fused2d
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_mma import plan as gamma_mma
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.families.grouped import plan as grouped
from winolab.gpu.families.im2col import plan as im2col
from winolab.gpu.families.implicit_gemm import plan as implicit_gemm
from winolab.gpu.families.nested import plan as nested
from winolab.gpu.families.patches import plan as patches
from winolab.gpu.families.skinny import plan as skinny
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.families.wgrad_direct import plan as wgrad_direct
from winolab.gpu.families.wgrad_ffma import plan as wgrad_ffma
from winolab.gpu.families.wgrad_grouped import plan as wgrad_grouped
from winolab.gpu.families.wgrad_im2col import plan as wgrad_im2col
from winolab.gpu.families.wgrad_mma import plan as wgrad_mma
from winolab.gpu.families.wgrad_thin import plan as wgrad_thin
from winolab.gpu.families.wgrad_winograd import plan as wgrad_winograd
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import Plan, Request
from winolab.options import KernelConfig

GRADIENT = ("backward_filter",)
SIXTEEN_BITS = ("fp16", "bf16")


@dataclass(frozen=True)
class Family:
    """Kernels of one kind, for products of ``precisions``.

    ``name`` is its folder's, with the module's where one has several. ``offer`` enumerates the
    plans that can run a request, and raises ValueError where it has none, and says why;
    ``config`` is the type of its kernels' configurations; ``fastest_first``: whether it offers
    plans in the order of their predicted times, so that later ones need not be asked for;
    ``near`` enumerates those alone that can be picked of a request that does not say how;
    ``alone`` says whether nobody is faster than what it offers for a request; ``library`` is what
    ``direct;variant=`` names it by, where it is one.
    """

    name: str
    offer: Callable[[Request], Iterable[Plan]]
    config: type[KernelConfig]
    directions: tuple[str, ...]
    precisions: tuple[str, ...]
    fastest_first: bool = False
    near: Callable[[Request], Iterable[Plan]] | None = None
    alone: Callable[[Request], bool] = lambda request: False
    library: str | None = None

    def plans(self, request: Request, near: bool = False) -> Iterable[Plan]:
        """Plans of the family, products being in the request's precision itself; ValueError where
        it has none, and why. ``near``: those that can be picked suffice.

        A ``config`` that is another family's asks for none, nor does another's ``library``; one
        with numbers that no kernel has is refused.
        """
        if request.library not in (None, self.library):
            return ()
        config = request.config
        offer = self.near if near and self.near else self.offer
        if config is None:
            return offer(request)
        return _named(config, offer, request) if isinstance(config, self.config) else ()


def _named(
    config: KernelConfig, offer: Callable[[Request], Iterable[Plan]], request: Request
) -> Iterator[Plan]:
    """Plans of a config that somebody named. Raises ValueError for numbers that no kernel has."""
    if any(isinstance(n, int) and n < 0 for n in vars(config).values()):
        raise ValueError(f"no kernel has {config!r}: its numbers count, and none is negative")
    try:
        yield from offer(request)
    except ArithmeticError as error:
        raise ValueError(f"no kernel has {config!r}: a number by which it divides is 0") from error


FAMILIES = (
    Family(
        "depthwise",
        depthwise.plans,
        depthwise.Config,
        (*CORRELATIONS, *GRADIENT),
        ("fp32", *SIXTEEN_BITS),
        alone=depthwise.alone,
    ),
    Family(
        "fused2d",
        fused2d.plans,
        fused2d.Config,
        (*CORRELATIONS, *GRADIENT),
        ("fp32", "fp16_ffma", "bf16_ffma"),
    ),
    Family("gamma_ffma", gamma_ffma.plans, gamma_ffma.Config, CORRELATIONS, ("fp32",)),
    Family(
        "gamma_wgmma",
        gamma_wgmma.plans,
        gamma_wgmma.Config,
        CORRELATIONS,
        ("fp32_split", *SIXTEEN_BITS),
        near=gamma_wgmma.near,
    ),
    Family(
        "gamma_mma",
        gamma_mma.plans,
        gamma_mma.Config,
        CORRELATIONS,
        ("fp32_split", *SIXTEEN_BITS),
    ),
    Family(
        "nested",
        nested.plans,
        nested.Config,
        CORRELATIONS,
        ("fp32_split", *SIXTEEN_BITS),
        fastest_first=True,
    ),
    Family(
        "cublaslt",
        cublaslt.plans,
        cublaslt.Config,
        (*CORRELATIONS, *GRADIENT),
        ("fp32", *SIXTEEN_BITS),
        library=CUBLASLT,
    ),
    Family("direct", direct.plans, direct.Config, CORRELATIONS, SIXTEEN_BITS),
    Family("im2col", im2col.plans, im2col.Config, CORRELATIONS, SIXTEEN_BITS),
    Family("im2col.split", im2col.plans, im2col.Config, CORRELATIONS, ("fp32_split",)),
    Family("direct.split", direct.split_plans, direct.Config, CORRELATIONS, ("fp32_split",)),
    Family("direct.ffma", direct.ffma_plans, direct.FfmaConfig, CORRELATIONS, ("fp32",)),
    Family(
        "implicit_gemm",
        implicit_gemm.plans,
        implicit_gemm.Config,
        (*CORRELATIONS, *GRADIENT),
        ("fp32", "fp32_split", *SIXTEEN_BITS),
    ),
    Family("grouped", grouped.plans, grouped.Config, CORRELATIONS, SIXTEEN_BITS),
    Family("thin", thin.plans, thin.Config, CORRELATIONS, ("fp32", *SIXTEEN_BITS)),
    Family(
        "skinny",
        skinny.plans,
        skinny.Config,
        (*CORRELATIONS, *GRADIENT),
        ("fp32", *SIXTEEN_BITS),
        fastest_first=True,
    ),
    Family("patches", patches.plans, patches.Config, CORRELATIONS, SIXTEEN_BITS),
    Family("wgrad_thin", wgrad_thin.plans, wgrad_thin.Config, GRADIENT, ("fp32", *SIXTEEN_BITS)),
    Family(
        "wgrad_grouped",
        wgrad_grouped.plans,
        wgrad_grouped.Config,
        GRADIENT,
        ("fp32_split", *SIXTEEN_BITS),
    ),
    Family("wgrad_ffma", wgrad_ffma.plans, wgrad_ffma.Config, GRADIENT, ("fp32",)),
    Family(
        "wgrad_mma",
        wgrad_mma.plans,
        wgrad_mma.Config,
        GRADIENT,
        SIXTEEN_BITS,
        near=wgrad_mma.near,
    ),
    Family(
        "wgrad_winograd",
        wgrad_winograd.plans,
        wgrad_winograd.Config,
        GRADIENT,
        ("fp32_split", *SIXTEEN_BITS),
    ),
    Family(
        "wgrad_direct.columns",
        wgrad_direct.columns_plans,
        wgrad_direct.ColumnsConfig,
        GRADIENT,
        SIXTEEN_BITS,
    ),
    Family(
        "wgrad_direct.narrow",
        wgrad_direct.narrow_plans,
        wgrad_direct.NarrowConfig,
        GRADIENT,
        SIXTEEN_BITS,
    ),
    Family(
        "wgrad_direct.split",
        wgrad_direct.split_plans,
        wgrad_direct.SplitConfig,
        GRADIENT,
        ("fp32_split",),
    ),
    Family("wgrad_im2col", wgrad_im2col.plans, wgrad_im2col.Config, GRADIENT, SIXTEEN_BITS),
    Family(
        "wgrad_im2col.split",
        wgrad_im2col.plans,
        wgrad_im2col.Config,
        GRADIENT,
        ("fp32_split",),
    ),
)
