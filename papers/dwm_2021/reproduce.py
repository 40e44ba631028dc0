# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # DWM: large filters and strides as sums of small convolutions
#
# The Decomposable Winograd Method cuts a filter into pieces of at most three taps a dimension,
# and a stride into phases of the input, so that every piece is a small convolution with stride 1.
# A cut is a value that can be looked at.

# %%
import numpy as np

import winolab
from winolab import Problem, decomposition

print(decomposition(Problem.of((1, 9, 9, 1), (1, 5, 5, 1)), winolab.dwm()))

# %% [markdown]
# With stride 2 the pieces are phases: each reads every second element of the input.

# %%
print(decomposition(Problem.of((1, 9, 9, 1), (1, 5, 5, 1), stride=2), winolab.dwm()))

# %% [markdown]
# ## It is convolution
#
# In exact arithmetic all three directions equal direct convolution, whatever the stride and the
# dilation.

# %%
rng = np.random.default_rng(0)
x, w = rng.integers(-9, 10, (2, 17, 16, 4)), rng.integers(-9, 10, (6, 7, 5, 2))
options = {"stride": (2, 3), "dilation": (1, 2), "padding": 3, "groups": 2, "precision": "exact"}
y = winolab.conv_forward(x, w, **options)
dy = rng.integers(-9, 10, y.shape)
checks = [
    (winolab.conv_forward, (x, w)),
    (winolab.conv_backward_data, (dy, w, x.shape)),
    (winolab.conv_backward_filter, (x, dy, w.shape)),
]
for function, arguments in checks:
    same = function(*arguments, **options) == function(*arguments, **options, algorithm="dwm:3:2")
    assert same.all()
    print(function.__name__, "equal")

# %% [markdown]
# ## What it saves
#
# A block of two outputs a dimension takes ∏(Sᵢ + mᵢ) multiplications for Sᵢ taps in mᵢ pieces. The
# extremes over strides, kernels and dimensions are the abstract's 1.44 and 3.38.

# %%
for ndim, kernel, stride in [(2, 3, 2), (2, 5, 1), (2, 7, 2), (3, 3, 1), (3, 3, 2), (3, 7, 2)]:
    size = stride + kernel
    layer = Problem.of((1, *[size] * ndim, 1), (1, *[kernel] * ndim, 1), stride=stride)
    saved = layer.macs / decomposition(layer, winolab.dwm()).multiplications()
    print(f"{ndim}-D, {kernel} taps, stride {stride}: {saved:.2f}")

# %% [markdown]
# ## What it does to the error
#
# Mean squared errors of FP32 against FP64 over 16 channels. F(2, r) loses digits with every tap;
# DWM loses less than one long sum does.

# %%
for kernel in (3, 5, 7, 9, 11):
    x = rng.standard_normal((1, kernel + 5, kernel + 5, 16)).astype(np.float32)
    w = rng.standard_normal((8, kernel, kernel, 16)).astype(np.float32)
    exact = winolab.conv_forward(x, w, precision="fp64", out_dtype=np.float64)
    errors = {}
    for text in ("direct", f"winograd:2x2:{kernel}x{kernel}@wincnn", "dwm:3:2"):
        errors[text] = np.mean((winolab.conv_forward(x, w, algorithm=text) - exact) ** 2)
    print(f"{kernel:2}×{kernel:<2}", "  ".join(f"{k} {v:.1e}" for k, v in errors.items()))

# %% [markdown]
# ## Six dimensions
#
# Seven taps in each of six dimensions, one channel, two outputs a dimension (the paper's Table 7).

# %%
shape = ((1, *[8] * 6, 1), (1, *[7] * 6, 1))
x, w = (np.random.default_rng(11).standard_normal(s).astype(np.float32) for s in shape)
exact = winolab.conv_forward(x, w, precision="fp64", out_dtype=np.float64)
for text in ("dwm:3:2", "winograd:2x2x2x2x2x2:7x7x7x7x7x7@wincnn"):
    error = np.mean((winolab.conv_forward(x, w, algorithm=text) - exact) ** 2)
    print(f"{text:45} {error:.1e}")

# %% [markdown]
# `winolab reproduce dwm_2021` regenerates Tables 1, 2, 3, 4, 7, 8 and 14 and holds them against the
# claims of the paper's text.
