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
# # What fast convolution costs: Winograd against FFT
#
# Lavin & Gray compare tiles by normalized complexity: multiplications an output, and the
# instructions of each transform over the multiplications of a tile. Here they are counted from the
# programs that winolab runs, and the FFT that they compare with is run as well.

# %%
import numpy as np

import winolab
from winolab import Problem, Tile
from winolab.ref.cost.complexity import normalized, normalized_fft
from winolab.ref.cost.count import cost

for n in (2, 3, 4, 6):
    found = normalized([Tile(n, 3)] * 2)
    parts = (found.products, found.data, found.filter, found.inverse)
    print(f"Winograd, tile {n + 2:3}:", *(f"{float(v):6.2f}" for v in parts))
for size in (8, 16, 32, 64, 128, 256):
    found = normalized_fft([size] * 2, [3, 3], products=4)
    print(f"FFT, tile {size:8}:", *(f"{float(v):6.2f}" for v in (found.products, found.data)))

# %% [markdown]
# With three real products a complex one, counting the additions for each of the α² elements of a
# tile gives the paper's Table 2; counting them for the states that Hermitian symmetry leaves, less.

# %%
for size in (8, 16, 32):
    for half in (False, True):
        found = normalized_fft([size] * 2, [3, 3], half=half)
        print(size, half, *(f"{float(v):6.2f}" for v in (found.products, found.data, found.filter)))

# %% [markdown]
# ## Both run
#
# The same layer by direct convolution, Winograd and FFT: errors in FP32, and operations.

# %%
rng = np.random.default_rng(0)
x = rng.standard_normal((1, 30, 30, 32)).astype(np.float32)
w = rng.standard_normal((16, 3, 3, 32)).astype(np.float32)
exact = winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=np.float64)
problem = Problem.of(x.shape, w.shape, padding=1)
for text in ("direct", "winograd:2x2:3x3", "winograd:4x4:3x3", "fft:16:4", "fft:16:3", "fft:32:3"):
    y = winolab.conv_forward(x, w, padding=1, algorithm=text)
    error = np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    flops = cost(problem, winolab.parse_algorithm(text)).flops
    print(f"{text:18} relative RMS {error:.1e}  {flops / 1e6:6.1f} MFLOP")
