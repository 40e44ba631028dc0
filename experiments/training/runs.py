"""What is trained, by whom, and whose a row is: without PyTorch, for tables, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

RATE = 0.001
NOISE = 1.2  # its strength beside an image's texture
METHODS = ("winolab", "torch", "tf32")
SEEDS = 5
# Tables 4 and 5: networks, and the optimizers that each was trained by; what else there is comes
# last. Steps, images and batch of each are the plans' (``run.py``).
OF_CIFAR = tuple(product(("resnet18", "resnet34", "vgg16", "vgg19", "vgg16x5"), ("adam", "sgdm")))
OF_ILSVRC = (
    *((name, "adam") for name in ("resnet18", "resnet34", "vgg16", "vgg16x5")),
    *((name, "adam") for name in ("vgg19", "resnet50")),
    ("vgg16x7", "sgdm"),
)
SOON = 4  # of them that a sitting has time for
# Until this commit gradients in split FP32 were computed again where channels are seldom active
# (docs/notes/113); and the commits before it that rows of networks are of.
EARLIER = "735774cb"
COMMITS = ("f421becf", "c0200c8f", "6308936b", "789add7b", "648dbea1", "23844fb1", "74fc64cb",
           "4368f3a1", "a22317ff")  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What is trained, and how; a row begins with its fields.

    ``batch`` is of all processes. ``images`` of training make an epoch, ``tested`` are looked at in
    the end. ``algorithm`` and ``precision`` are of winolab's layers, None its own choice. ``amp``:
    under autocast with that type of numbers, "fp16", whose loss scale grows and shrinks. ``parts``
    of a batch are computed one after another and their gradients summed, as so many processes do.
    """

    network: str = "small"
    size: int = 32
    classes: int = 10
    optimizer: str = "adam"
    batch: int = 64
    images: int = 2000
    tested: int = 1000
    steps: int = 100
    seed: int = 0
    method: str = "winolab"
    rate: float = RATE
    noise: float = NOISE
    algorithm: str | None = None
    gradients: str | None = None
    precision: str | None = None
    scale: float = 1.0
    processes: int = 1
    amp: str = ""
    parts: int = 1


def key(row: Row) -> tuple[Any, ...]:
    """Whose run a row is; rows of before a field came have its default."""
    return tuple(row.get(name, field.default) for name, field in Run.__dataclass_fields__.items())


def latest(rows: Iterable[Row]) -> list[Row]:
    """The row of each plan's runs, on each device, that was added last, where it was added."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        where = (row["plan"], row["device"], *key(row))
        found.pop(where, None)
        found[where] = row
    return list(found.values())


def earlier(row: Row) -> bool:
    """Whether a row is of a commit before EARLIER."""
    return row["commit"].startswith(COMMITS)


def lacks(row: Row) -> str:
    """Why a run is to be trained again although it has a row; "" where it is not: a GPU's rows say
    the memory that steps take, and ours in FP32 are of today's gradients."""
    if row["device"] == "CPU":
        return ""
    ours = row["method"] == "winolab" and not row.get("amp")
    found = ["memory"] * (not row.get("memory_mb"))
    found += ["gradients of today"] * (ours and earlier(row))
    return " and ".join(found)
