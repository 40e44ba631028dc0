"""Structs as kernel files declare them: what is read from there lies as a C++ compiler has it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from struct import calcsize

import pytest

from tests.gpu import hosted
from winolab.gpu.codegen import emit
from winolab.gpu.codegen.structs import layout, layouts, size
from winolab.gpu.families import scale, wgrad
from winolab.gpu.families.depthwise import launch as depthwise
from winolab.gpu.families.direct import ffma as direct_ffma
from winolab.gpu.families.direct import split as direct_split
from winolab.gpu.families.direct.axes import PARAMS as AXIS
from winolab.gpu.families.direct.plan import PARAMS as DIRECT
    "fused2d": ("Fused2dParams", "fused2d/block", [fused2d.PARAMS], []),
    "fused2d filter": ("Fused2dFilterParams", "fused2d/filter", [fused2d.FILTER_PARAMS], []),
