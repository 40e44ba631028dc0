"""Public kernels of others, which ``winolab judge`` is tried on: where they are, how to build them.

Their code is in no file here: ``python -m experiments.judged.others.sources FOLDER`` brings it, at
the commits below, to a folder that git ignores, and a wrapper of this folder makes a function of
each. ``experiments.judged.on_gpu --sources FOLDER`` judges them.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import typer

from winolab.gpu import driver
from winolab.gpu.runtime import nvrtc

HERE = Path(__file__).parent
FOLDER = "WINOLAB_OTHERS"  # environment: where the sources lie, for wrappers in Python
COMMITS = {
    "Qwesh157/conv_op_optimization": "19f155703883a7a9f4f38efa330b59274f34ba01",
    "BobMcDear/attorch": "67c2772baf33913ef51c2d1064f746ca17b63749",
}
SIZES = "N C H W K R S"
GEMM = f"{SIZES} SH SW PH PW OH OW"
FLAGS = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-w")


class SourceError(ValueError):
    """A kernel of others cannot be built."""


@dataclass(frozen=True)
class Source:
    """A CUDA source: the repository, our file around it, what the compiler is told, with {} for the
    repository's folder, and the signature."""

    repository: str
    wrapper: str
    flags: tuple[str, ...]
    signature: str


def _gemm(file: str, rows: int, threads: int, lines: int = 1) -> Source:
    flags = (
        f'-DSOURCE="src/{file}"', f"-DROWS={rows}", f"-DCOLUMNS={rows}", f"-DTHREADS={threads}",
        f"-DLINES={lines}",
        "-I{}/cuda/implicitgemm", "-I{}/cuda/implicitgemm/include",
    )  # fmt: skip
    serves = "dilation=1 groups=1 contiguous"
    signature = _signature(GEMM, "channels_first", serves)
    return Source("Qwesh157/conv_op_optimization", "implgemm.cu", flags, signature)


def _signature(sizes: str, layout: str, serves: str) -> str:
    arguments = ["x", "w", "y", *(f"int {name}" for name in sizes.split()), "stream"]
    return (
        f'name = "conv"\narguments = {arguments}\nlayout = "{layout}"\ndevice = "cuda"\n'
        f'serves = "{serves}"\n'
    )


SOURCES = {
    "implgemm_direct": _gemm("implgemm_1_0.cu", 16, 16, 16),
    "implgemm_tiled": _gemm("implgemm_2.cu", 16, 256),
    "implgemm_buffered": _gemm("implgemm_5.cu", 128, 256),
    # It has neither strides nor padding, and masks no sums: its depth is a multiple of 8.
    "implgemm_cute": Source(
        "Qwesh157/conv_op_optimization", "cute.cu", ("-I{}/cute", "-I{}/cute/include"),
        _signature(f"{SIZES} OH OW", "channels_last", "stride=1 padding=0 dilation=1 groups=1 "
                   "channels=8n contiguous aligned"),
    ),
}  # fmt: skip


def built(name: str, folder: Path, into: Path) -> Path:
    """The .so of a source, for the GPU at hand, with its signature beside it.

    ``folder`` has a folder a repository. Raises SourceError where it lacks it, or nvcc refuses.
    """
    source = SOURCES[name]
    code = folder / source.repository.partition("/")[2]
    if not code.is_dir():
        raise SourceError(f"there is no {code}; bring it by python -m {__spec__.name} {folder}")
    if shutil.which("nvcc") is None:
        raise SourceError("there is no nvcc in PATH, which builds kernels of others")
    path = into / f"{name}.so"
    arch = nvrtc.architecture(driver.device(0).compute_capability)
    given = [flag.format(code) for flag in source.flags]
    command = ["nvcc", *FLAGS, f"-arch={arch}", *given, str(HERE / source.wrapper), "-o", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SourceError(f"nvcc: {' '.join(done.stderr.split())[:300]}")
    path.with_suffix(".toml").write_text(source.signature)
    return path


def fetched(folder: Path) -> None:
    """Bring the repositories' files, at COMMITS, by git."""
    for repository, commit in COMMITS.items():
        at = folder / repository.partition("/")[2]
        at.mkdir(parents=True, exist_ok=True)
        for step in (
            ["init", "-q"],
            ["fetch", "-q", "--depth", "1", f"https://github.com/{repository}", commit],
            ["checkout", "-q", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", str(at), *step], check=True)


if __name__ == "__main__":
    typer.run(fetched)
