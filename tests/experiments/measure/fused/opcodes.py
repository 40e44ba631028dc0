"""Instructions of a kernel's machine code, by kind."""

from __future__ import annotations

import struct
from collections import Counter

from tests.gpu.instructions import sections

FADD, FFMA, LDG = 0x221, 0x223, 0x981


def opcodes(cubin: bytes, kernel: str) -> Counter[int]:
    """How many instructions of each kind a kernel's machine code has, 16 bytes each."""
    code = sections(cubin)[kernel]
    return Counter(struct.unpack_from("<Q", code, at)[0] & 0xFFF for at in range(0, len(code), 16))
