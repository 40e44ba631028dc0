"""What ``winolab judge`` says of public kernels on a CPU: ``python -m experiments.judged.rows``.

A row a kernel: what it claims, trials that it served, its largest error over the tolerance, and
every fault. Rows replace experiments/results/judged.jsonl. Takes minutes of one core.
"""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from winolab.cli import environment
from winolab.judge.apart import judge_apart
from winolab.judge.claim import Claim

RESULTS = ROOT / "experiments" / "results" / "judged.jsonl"
PUBLIC = "experiments.judged.public"
# Kernel, claim (algorithm, precision, direction), the packages whose code it is.
KERNELS: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "torch.nn.functional:conv2d": (("direct", "fp32", "forward"), ("torch",)),
    "torch.nn.functional:conv3d": (("direct", "fp32", "forward"), ("torch",)),
    "torch.nn:Conv1d": (("direct", "fp32", "forward"), ("torch",)),
    f"{PUBLIC}:mkldnn": (("direct", "fp32", "forward"), ("torch",)),
    f"{PUBLIC}:unfold": (("direct", "fp32", "forward"), ("torch",)),
    f"{PUBLIC}:scipy_signal": (("direct", "fp32", "forward"), ("scipy",)),
    f"{PUBLIC}:scipy_ndimage": (("direct", "fp32", "forward"), ("scipy",)),
    f"{PUBLIC}:xla": (("direct", "fp32", "forward"), ("jax", "jaxlib")),
    "winolab:conv_forward": (("direct", "fp32", "forward"), ()),
    "winolab:conv_backward_data": (("direct", "fp32", "backward_data"), ()),
    "winolab:conv_backward_filter": (("direct", "fp32", "backward_filter"), ()),
}


def row(kernel: str, count: int) -> dict[str, Any]:
    """The verdict of a kernel, on ``count`` random problems beside the fixed ones."""
    (algorithm, precision, direction), packages = KERNELS[kernel]
    claim = Claim(algorithm, precision, direction)
    arrays = "torch" if kernel.startswith("torch") else "numpy"
    dims = {"1": 1, "3": 3}.get(kernel[-2], 2)
    loaded = {"arrays": arrays, "direction": direction, "dims": dims}
    found, _ = judge_apart(kernel, claim, loaded, {"count": count})
    worst = max((r.get("over_tolerance", 0.0) for r in found.rows), default=0.0)
    return {
        "kernel": kernel,
        "algorithm": algorithm,
        "precision": precision,
        "direction": direction,
        "packages": {name: metadata.version(name) for name in packages},
        "accepted": bool(found),
        "trials": len(found.rows),
        "served": found.served,
        "over_tolerance": float(f"{worst:.3g}"),
        "faults": [str(fault) for fault in found.faults],
        "left": found.left,
        **found.facts,
        **environment.provenance(),
    }


def main(
    output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS,
    count: Annotated[int, typer.Option(help="Random problems of each.")] = 40,
) -> None:
    """Judge the public kernels, and ours, on this machine's processor."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # of the processes that judge
    rows = []
    for kernel in KERNELS:
        rows.append(row(kernel, count))
        said = "accepted" if rows[-1]["accepted"] else "; ".join(rows[-1]["faults"])
        print(f"{kernel}: {rows[-1]['served']} of {rows[-1]['trials']} trials: {said}", flush=True)
        output.write_text("".join(json.dumps(r, sort_keys=True) + "\n" for r in rows))


if __name__ == "__main__":
    typer.run(main)
