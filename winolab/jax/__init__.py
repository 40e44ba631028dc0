"""Convolutions of JAX arrays, which jit, grad and vmap know: this package imports jax."""

from winolab.gpu.machine import absent

if lacking := absent("jax"):
    raise lacking

from winolab.jax.conv import conv_general_dilated

__all__ = ["conv_general_dilated"]
