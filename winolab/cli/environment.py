"""Where a number came from: versions, commit, processor; and what ``doctor`` reports."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from functools import cache as once
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from winolab.arguments.words import plural
from winolab.bench import cudnn
from winolab.gpu import driver
from winolab.gpu.machine import MachineError, driver_cuda, install
from winolab.gpu.runtime import cache, nvrtc
from winolab.gpu.runtime.cache import own
from winolab.version import __version__

REPRODUCE = "experiments.harness.reproduce"  # of a checkout, what the command reproduce runs
PATIENCE = 20  # seconds that a command may take
CORE = ("numpy", "scipy", "mpmath", "ml_dtypes", "typer", "rich")
# Extra -> distributions of which one suffices for each import name.
EXTRAS = {
    "gpu": {"cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy")},
    "torch": {"torch": ("torch",)},
    "jax": {"jax": ("jax",)},
    "exact": {"flint": ("python-flint",)},
    "fast": {"numba": ("numba",)},
    "dask": {"distributed": ("distributed",)},
    "pictures": {"matplotlib": ("matplotlib",)},
    "experiments": {"pandas": ("pandas",), "matplotlib": ("matplotlib",)},
    "notebooks": {"jupyter": ("jupyter",), "jupytext": ("jupytext",), "nbclient": ("nbclient",)},
}


def installed(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, dict[str, str | None]]:
    """Per extra, the version of each of its packages, None where it is missing."""
    return {
        extra: {
            name: next(filter(None, map(installed, distributions)), None)
            for name, distributions in packages.items()
        }
        for extra, packages in EXTRAS.items()
    }


def checkout() -> Path | None:
    """The checkout: the current directory, else the folder that the package is imported from.

    A folder is one if its project is called winolab; the current directory only if it is this
    user's own, because what lies in it is run.
    """
    package = Path(__file__).resolve().parents[2]
    here = Path.cwd().resolve()
    folders = [here] if here == package or own(here / "pyproject.toml") else []
    return next(filter(_is_checkout, [*folders, package]), None)


def _is_checkout(folder: Path) -> bool:
    if not folder.joinpath(*REPRODUCE.split(".")).with_suffix(".py").is_file():
        return False
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return project == "winolab"


def experiments() -> Path:
    """The checkout, where papers can be reproduced and figures drawn.

    Says on standard error which it is where the package is imported from elsewhere. Raises
    ValueError without a checkout or the extra "experiments".
    """
    root = checkout()
    if root is None:
        raise ValueError(
            "reproducing papers and drawing need the checkout; run this in a clone of the "
            "repository"
        )
    missing = [name for name in EXTRAS["experiments"] if find_spec(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing: {install('experiments')}")
    if root != Path(__file__).resolve().parents[2]:
        print(f"winolab: running experiments of the checkout {root}", file=sys.stderr)
    return root


@once
def commit() -> str | None:
    """The checkout's commit, with "+" where files differ from it; None outside a checkout.

    WINOLAB_COMMIT names it on a machine that has the files without their history.
    """
    if named := os.environ.get("WINOLAB_COMMIT"):
        return named
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    head = _output("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--", "winolab")
    return head and head + ("+" if changed else "")


@once
def processor() -> str:
    """The processor's name as the system gives it, with the cores that this process may use."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        name = next((v.strip() for k, _, v in lines if k.strip() == "model name"), name)
    return f"{name}, {plural(cores(), 'core')}"


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def gpus() -> list[dict[str, str]]:
    """Name, memory, driver and compute capability of each GPU that nvidia-smi lists."""
    fields = ("name", "memory.total", "driver_version", "compute_cap")
    text = _output("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    rows = [line.split(", ") for line in (text or "").splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def clocks() -> dict[str, int]:
    """MHz of the first GPU's multiprocessors and memory as they run now, as far as it says them."""
    fields = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem"}
    query = f"--query-gpu={','.join(fields.values())}"
    text = _output("nvidia-smi", query, "--format=csv,noheader,nounits") or ""
    values = zip(fields, text.partition("\n")[0].split(", "), strict=False)
    return {name: int(value) for name, value in values if value.isdecimal()}


def compilers() -> dict[str, str | None]:
    """The release of nvcc on the path and of the NVRTC that kernels take; None where missing."""
    text = _output("nvcc", "--version") or ""
    release = next((line for line in text.splitlines() if "release" in line), None)
    return {
        "nvcc": release and release.split("release")[1].strip(),
        "nvrtc": found(lambda: "{}.{}".format(*nvrtc.version())),
    }


def cuda() -> dict[str, Any]:
    """The newest CUDA that the driver runs, CuPy's, and cuDNN's version (for winolab bench); None
    where missing. Where kernels are kept, and whether they can be."""
    driver = driver_cuda()
    return {
        "driver": driver and "{}.{}".format(*driver),
        "cupy": _cupy_cuda(),
        "cupy_wheels": cupy_wheels(),
        "cudnn": found(cudnn.version),
        "cache": found(lambda: str(cache.users_folder())),
        "cache_writable": found(cache.writable) or False,
    }


def cupy_wheels() -> list[str]:
    """The distributions of CuPy that are installed; two overwrite each other's files."""
    return [name for name in EXTRAS["gpu"]["cupy"] if installed(name)]


def _cupy_cuda() -> str | None:
    """The CUDA that CuPy is for: the major version where its only wheel says it."""
    wheels = cupy_wheels()
    for major in (13, 12):
        if wheels == [f"cupy-cuda{major}x"]:
            return str(major)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of several wheels, which doctor tells of
        version = driver.cupy_cuda()
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def found(ask: Callable[[], Any]) -> Any:
    """What is asked, None where the machine lacks it, or where it is broken."""
    try:
        return ask()
    except (MachineError, ImportError, OSError):
        return None


def provenance() -> dict[str, str | None]:
    """What a row says about where it was computed."""
    return {
        "winolab": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "numpy": installed("numpy"),
        "device": processor(),
    }


def _output(*command: str) -> str | None:
    """Standard output of a short command, or None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
