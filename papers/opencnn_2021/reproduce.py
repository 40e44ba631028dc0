# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # openCNN: a fused F(2×2, 3×3) in CUDA
#
# openCNN computes F(2×2, 3×3) in one kernel, from filters that another kernel transforms. Its
# layouts of the output transform run in a kernel of winolab's (family `fused2d`), measured on an
# H100; matrices and counts are checked, and the rest is listed as not reproduced.
#
# The code below uses `winolab` for whatever a reader would reuse. What comes from `experiments`
# and `papers` belongs to this checkout: the paper's printed numbers, the rows that are kept of
# long runs, and the figures. Tables have the paper's column beside ours and a verdict: a cell
# that a constant was fitted on is called fitted and is not counted.
# %%
# %matplotlib inline

# %%
# %matplotlib inline
import numpy as np
from matplotlib.figure import Figure

import winolab
from experiments.harness.facts import facts, matrices, table
from experiments.report.beside import Paper
from winolab import Transforms

paper = Paper("opencnn_2021")
paper

# %% [markdown]
# ## Equation 3: the matrices
#
# The paper prints B, G and A of F(2, 3) at the points 0, 1, −1 and ∞. They are proved to be
# convolution, and are those of the points up to the order and the scale of their rows.

# %%
printed = matrices("opencnn_2021", "eq3")
f23 = winolab.transforms(2, 3, printed["points"])
theirs = Transforms(printed["AT"], printed["G"], printed["BT"])
assert f23.equivalent(theirs)
f23

# %% [markdown]
# The paper counts four multiplications and eight additions for two outputs of three taps, the
# filter's transform precomputed, where direct convolution has six and four.

# %%
counted = facts("opencnn_2021")["counts"]
programs = f23.programs
additions = programs.BT.counts.additions + programs.AT.counts.additions
print(f"multiplications {f23.alpha}, paper {counted['multiplications']}")
print(f"additions {additions}, paper {counted['additions']}")
assert (f23.alpha, additions) == (counted["multiplications"], counted["additions"])

# %% [markdown]
# ## The layers
#
# The 3×3 layers of ResNet that Tables 3 and 4 time (Table 2), at batch 32: multiplications that
# F(2×2, 3×3) saves, tiles at the edges counted whole, and its error on zero-mean data beside direct
# convolution's, in FP32, over a sample of each layer's channels.

# %%
rng = np.random.default_rng(0)
for row in table("opencnn_2021", 2)["rows"]:
    h, w, c = row["H"], row["W"], row["C"]
    tiles = -(-h // 2) * -(-w // 2)
    saved = h * w * 9 / (tiles * 16)
    x = rng.standard_normal((1, h, w, c)).astype(np.float32)
    filters = rng.standard_normal((4, 3, 3, c)).astype(np.float32)
    exact = winolab.conv_forward(x, filters, padding=1, precision="fp64", out_dtype=np.float64)
    errors = []
    for text in ("winograd:2x2:3x3", "direct"):
        y = winolab.conv_forward(x, filters, padding=1, algorithm=text)
        errors.append(np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)))
    print(f"{row['layer']}  {h:2}×{w:<2} {c:3} channels  saves {saved:.2f}  relative RMS "
          f"{errors[0]:.1e}, direct {errors[1]:.1e}")  # fmt: skip

# %% [markdown]
# ## The layouts: drawn, counted, measured
#
# A block's sums go from registers through shared memory, where they are transposed. Layouts are
# data here: a few functions of integers from which the kernel's indexing is printed, and by which a
# model of 32 banks counts what a warp's instructions cost. Lanes of the first round, as Figures 5
# to 8 have them, and a layout that a search found:

# %%
paper.figure("layouts")

# %%
from winolab.gpu.families.fused2d.banks import Cost
from winolab.gpu.families.fused2d.layouts import layouts

for made in layouts(64):
    cost = Cost.of(made)
    print(f"{made.name:12} {made.bytes / 1024:5.1f} KB  {made.rounds} rounds  "
          f"{cost.stores.idle_share:4.0%} of lanes idle  "
          f"{cost.stores.conflicts + cost.loads.conflicts} conflicts  "
          f"{cost.cycles():6,.0f} cycles on Turing")  # fmt: skip

# %%
paper.table("layouts")

# %% [markdown]
# The cycles behind that are Table 1's. On an H100 one warp's stores take nearly the same; sixteen
# warps, as a block has them, fill the gaps:

# %%
paper.table("table1b")

# %%
paper.figure("table1b")

# %% [markdown]
# ## Tables 3 and 4: the paper's speedups
#
# As printed, over cuDNN 8.2's fused Winograd and over the authors' CUDA version of Yan et al.
# Ours, on another device and not judged, stand beside them under "Every table".

# %%
figure = Figure(figsize=(9, 3.4), layout="constrained")
panels = figure.subplots(1, 2, sharey=True)
for panel, number, device in zip(panels, (3, 4), ("RTX 2080 Ti", "RTX 3090"), strict=True):
    printed = table("opencnn_2021", number)
    for baseline, name, colour in (
        ("cudnn", "over cuDNN", "#4c72b0"),
        ("yan", "over Yan et al.", "#dd8452"),
    ):
        for batch, mark in ((32, "v"), (64, "o"), (96, "s"), (128, "^")):
            (row,) = (r for r in printed["rows"] if (r["baseline"], r["N"]) == (baseline, batch))
            panel.plot(
                printed["layers"], row["speedup"], mark, color=colour, label=f"{name}, N = {batch}"
            )
    panel.axhline(1, color="#333333", linewidth=0.8)
    panel.set(title=f"{device}, as printed")
panels[0].set_ylabel("speedup")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure

# %% [markdown]
# The averages that the paper states are those of its entries, to a unit of the last digit:

# %%
stated = {3: {"cudnn": 1.34, "yan": 1.58}, 4: {"cudnn": 1.34, "yan": 1.49}}
for number, averages in stated.items():
    for baseline, average in averages.items():
        entries = [row["speedup"] for row in table("opencnn_2021", number)["rows"]
                   if row["baseline"] == baseline]  # fmt: skip
        print(f"Table {number}, over {baseline}: {np.mean(entries):.2f}, stated {average}")

# %% [markdown]
# ## Every table
#
# With what is judged, and what waits for the kernels.

# %%
paper.rest()
