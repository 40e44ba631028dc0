"""Sections of device_model.toml: what a family's timing model takes from the file, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shared:
    """What kernels of several families meet, of an H100."""

    launch: float
    idle: float
    copy: float
    l2: float
    operand: float
    added: float
    clustered: float
    kept: float
    clustered_three: float
    phase: float


@dataclass(frozen=True)
class Overlap:
    """How well what goes on at once overlaps: exponents of ``overlapped``, and rows."""

    call: float
    stage: float
    threads: float
    reading: float
    producers: float
    flight: float


@dataclass(frozen=True)
class Gamma:
    """Γ on Tensor Cores, the main kernels aside (families/gamma)."""

    near: float
    stored: float
    scattered: float


@dataclass(frozen=True)
class Fused2d:
    """Fused F(2×2,3×3) on FFMA units (families/fused2d/cost.py)."""

    vector: float
    scalar: float
    filter: float
    filter_alone: float
    begin: float
    first: float
    first_alone: float
    work_tile: float
    outputs: float
    added: float


@dataclass(frozen=True)
class GammaFfma:
    """Γ on FFMA units (families/gamma_ffma/cost.py)."""

    vector: float
    scalar: float
    work_tile: float
    cluster: float
    latency: float
    issuer: float
    ones: float
    in_clusters: float
    all_shared: float
    fold: float
    earlier: float


@dataclass(frozen=True)
class GammaWgmma:
    """Γ on Tensor Cores by wgmma (families/gamma_wgmma/cost.py)."""

    stage: float
    held: float
    far: float
    shared: float
    x: float
    transform: float
    elements: float
    box: float
    store: float
    cluster: float
    rest: float
    wide: float


@dataclass(frozen=True)
class GammaMma:
    """Γ on Tensor Cores by mma.sync (families/gamma_mma/plan.py)."""

    hopper: float
    products: float
    state: float
    scalar: float
    stage: float
    work_tile: float


@dataclass(frozen=True)
class Nested:
    """Nested Winograd (families/nested/cost.py)."""

    transform: float
    narrow: float
    state: float
    cached: float
    products: float
    stage: float
    column: float
    row: float


@dataclass(frozen=True)
class Direct:
    """Direct forward and backward data (families/direct/plan.py)."""

    start: float
    products: float
    along: float
    begin: float
    step: float
    work_tile: float
    cluster: float
    filters: float
    askew: float
    filters_power: float
    ffma: float


@dataclass(frozen=True)
class ImplicitGemm:
    """Implicit GEMM (families/implicit_gemm/cost.py)."""

    start: float
    products: float
    ffma: float
    vector: float
    operand: float
    across: float
    step: float
    work_tile: float
    gather: float
    merged: float


@dataclass(frozen=True)
class ImplicitGemmWgmma:
    """Implicit GEMM of 16 bits on wgmma (families/implicit_gemm/cost.py)."""

    start: float
    products: float
    vector: float
    l2: float
    step: float
    work_tile: float


@dataclass(frozen=True)
class DirectSplit:
    """Direct products of split FP32 (families/direct/cost.py)."""

    start: float
    products: float
    step: float
    work_tile: float
    arrays: float
    filter: float


@dataclass(frozen=True)
class WgradFfma:
    """Ω on FFMA units (families/wgrad_ffma/plan.py)."""

    producer: float
    edge: float
    edge_wrapped: float
    work_tile: float
    store: float
    store_parted: float


@dataclass(frozen=True)
class WgradMma:
    """Fused Ω on mma.sync (families/wgrad_mma/cost.py)."""

    transform: float
    moved: float
    shared: float
    unpadded: float
    sharp: float
    stage: float
    waited: float
    work_tile: float
    store: float


@dataclass(frozen=True)
class WgradWinograd:
    """Ω on Tensor Cores (families/wgrad_winograd/cost.py)."""

    products: float
    split_products: float
    small: float
    block: float
    cached: float


@dataclass(frozen=True)
class WgradDirect:
    """Direct filter gradients (families/wgrad_direct)."""

    products: float
    copied: float
    copied_narrow: float
    split_products: float
    split_element: float
    part: float
    start: float
    split_part: float
    gather: float
    brought: float
    cached: float
    split_cached: float


@dataclass(frozen=True)
class Walked:
    """Direct products whose copies walk positions (families/clusters.py)."""

    products: float
    copied: float
    step: float
    start: float
    sum: float
    meeting: float
    brought: float


@dataclass(frozen=True)
class Threaded:
    """Kernels whose threads copy, multiply and store: what several families' have."""

    start: float
    copied: float
    read: float
    stored: float
    issued: float
    waited: float


@dataclass(frozen=True)
class Depthwise(Threaded):
    """Depthwise layers (families/depthwise/cost.py)."""

    again: float
    trip: float
    any: float
    narrow: float
    step: float
    least: float


@dataclass(frozen=True)
class Thin(Threaded):
    """Layers of few channels on one side (families/thin/cost.py)."""

    narrow: float
    step: float


@dataclass(frozen=True)
class Grouped(Threaded):
    """Grouped layers of few channels a group (families/grouped/cost.py)."""

    filled: float
    shared: float
    tile: float
    step: float


@dataclass(frozen=True)
class WgradGrouped(Threaded):
    """Their filter gradients (families/wgrad_grouped/cost.py)."""

    shared: float
    tile: float
    step: float


@dataclass(frozen=True)
class Skinny:
    """Filters of one tap that few positions meet (families/skinny/cost.py)."""

    start: float
    load: float
    added: float
    stored: float
    waited: float
    apart: float


@dataclass(frozen=True)
class Patches:
    """Few channels that are summed, on mma.sync (families/patches/cost.py)."""

    start: float
    filled: float
    copied: float
    products: float
    stored: float
    waited: float


@dataclass(frozen=True)
class WgradThin(Threaded):
    """Their filter gradients (families/wgrad_thin/cost.py)."""

    gathered: float
    alone: float
    stalled: float
    cold: float


@dataclass(frozen=True)
class Cublaslt:
    """cuBLASLt's products (families/cublaslt/cost.py)."""

    start: float
    start_ffma: float
    products: float
    operand: float
    misaligned: float
    arrays: float
    misaligned_arrays: float
    adding: float
    adding_gradient: float
    part: float
