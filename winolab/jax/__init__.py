"""Convolutions of JAX arrays, which jit, grad and vmap know: this package imports jax."""

from winolab.jax.conv import conv_general_dilated

__all__ = ["conv_general_dilated"]
