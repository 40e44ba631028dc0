from papers.dwm_2021.derived import memory
from tests.papers.dwm_2021.support import claims


def test_memory_claims():
    """Nine taps in 2-D and the larger maps of 7×7×7 are against what the paper saw."""
    found = claims(memory.TABLE14)
    assert len(found) == 9
    assert {text for text, holds in found.items() if not holds} == {
        "a larger kernel needs relatively more, 2-D: least growth of a step",
        "7×7×7 needs relatively less than 5×5×5, as outputs shrink, 28×28×28",
    }


def test_ratios_are_judged_as_far_as_there_are_some():
    """A step is from a kernel to the next, at one size."""
    ratios = {(2, 28, 3): 2.0, (2, 28, 5): 3.0, (2, 14, 7): 1.0, (3, 28, 5): 4.0, (3, 28, 7): 5.0}
    told = {text: (ours, low <= ours <= high) for text, ours, (low, high) in
            memory.memory_claims(ratios)}  # fmt: skip
    assert told == {
        "DWM always needs more memory: least ratio": (1.0, False),
        "a larger kernel needs relatively more, 2-D: least growth of a step": (1.5, True),
        "7×7×7 needs relatively less than 5×5×5, as outputs shrink, 28×28×28": (1.25, False),
    }
    assert not list(memory.memory_claims({}))
