"""What the microbenchmark's kernels are compiled to: the accesses that are timed, and no others."""

from __future__ import annotations

from collections import Counter

from experiments.measure.fused.shared_memory import UNROLLED, accesses, source
from tests.gpu.instructions import sections
from winolab.gpu.runtime import nvrtc

# Machine code of compute capability 7.0 and later: 16 bytes an instruction, its opcode in the first
# 12 bits, the width of an access in bits 73 to 75.
OPCODES, SIZES = {0x984: "LDS", 0x388: "STS"}, {4: 32, 5: 64, 6: 128}


def counted(code: bytes) -> Counter[tuple[str, int]]:
    """Accesses of shared memory by type and width."""
    found: Counter[tuple[str, int]] = Counter()
    for at in range(0, len(code), 16):
        bits = int.from_bytes(code[at : at + 16], "little")
        if kind := OPCODES.get(bits & 0xFFF):
            found[kind, SIZES[bits >> 73 & 7]] += 1
    return found


def test_the_compiler_keeps_every_access() -> None:
    """Sixty-four of the kind, and the one store of 32 bits that fills the memory before."""
    code = sections(nvrtc.compile_cubin(source(), "sm_90a").cubin)
    assert set(code) == {a.kernel for a in accesses()}
    for a in accesses():
        expected = Counter({("STS", 32): 1})
        expected[a.type, a.width] += UNROLLED
        assert counted(code[a.kernel]) == expected, a
