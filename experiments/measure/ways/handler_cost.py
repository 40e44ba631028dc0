"""Host time of ways from XLA to our code: ``python -m experiments.measure.ways.handler_cost``.

Each way is called by a jitted function of one small array on the CPU and computes nothing; a line
has the least mean of ROUNDS series of CALLS calls, in microseconds. The compiled handler needs a
C++ compiler, c++; what it takes to compile is a line of its own.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from winolab.jax import ffi

CALLS, ROUNDS = 2000, 7
COMPILED = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
XLA_FFI_DEFINE_HANDLER_SYMBOL(nothing, [](ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error::Success();
}, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
"""


def compiled(folder: Path) -> Any:
    """A handler by a C++ compiler and jaxlib's headers."""
    source, library = folder / "nothing.cc", folder / "nothing.so"
    source.write_text(COMPILED)
    include = f"-I{jax.ffi.include_dir()}"
    command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", include, str(source), "-o"]
    subprocess.run([*command, str(library)], check=True)
    return jax.ffi.pycapsule(ctypes.CDLL(str(library)).nothing)


def mean(function: Any, x: Any) -> float:
    """Microseconds a call, of the best series."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            y = function(x)
        y.block_until_ready()  # pyright: ignore[reportPossiblyUnboundVariable]
        found.append((time.perf_counter() - start) / CALLS)
    return 1e6 * min(found)


def main() -> None:
    """Print what each way from XLA to our code costs the host."""
    jax.config.update("jax_platforms", "cpu")  # and no GPU's memory is taken
    x = jnp.ones((4, 4))
    struct = jax.ShapeDtypeStruct(x.shape, x.dtype)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        jax.ffi.register_ffi_target("nothing_compiled", compiled(Path(folder)), platform="cpu")
        print(f"compiling a handler takes {time.perf_counter() - start:.1f} s")
        ffi.register("nothing_bare", "cpu", lambda call: None)
        ffi.register("nothing_read", "cpu", lambda call: (call.text, call.addresses))
        ones = np.ones((4, 4), np.float32)
        ways = {
            "x + 1 of XLA's own": lambda x: x + 1,
            "a compiled handler": jax.ffi.ffi_call("nothing_compiled", struct),
            "a handler in Python": jax.ffi.ffi_call("nothing_bare", struct),
            "the same, that reads its addresses": lambda x: jax.ffi.ffi_call(
                "nothing_read", struct
            )(x, asked="what is asked"),
            "jax.pure_callback": lambda x: jax.pure_callback(lambda _: ones, struct, x),
        }
        for name, way in ways.items():
            print(f"{mean(jax.jit(way), x):6.1f} µs  {name}", flush=True)


if __name__ == "__main__":
    typer.run(main)
