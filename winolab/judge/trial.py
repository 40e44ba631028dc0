"""One trial: a kernel on one problem, with arrays of one kind, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from winolab.judge import around, data
from winolab.judge.around import FORKS, different, differing, grown, settings, together, watched
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.claim import Claim
from winolab.judge.explain import described, finite
from winolab.judge.libraries import Zone
from winolab.judge.problems import text
from winolab.problem import Problem, in_layout, shapes

LATE = 0.1  # seconds in which a result that is written too late is waited for
CALLS, AGAIN, THREADS = 10, 3, 4  # equal calls, of right and of wrong results; in threads
# Data whose errors no prediction holds of: signs of the two operands go together, digits are lost.
ROUGH = ("sums that cancel", "subnormal")
KINDS = {"subnormal": "subnormal", data.BEYOND: "overflow"}  # what a fault with such data is called
# What a kernel is refused for, and what is left out where ``--skip`` names it.
CHECKS = {
    "values": "the result is not what the algorithm may return",
    "nan": "NaN and infinity are not passed on as the algorithm passes them on",
    "subnormal": "subnormal numbers are lost",
    "overflow": "sums beyond the range of their type are finite",
    "shape": "the result has another shape or type",
    "unwritten": "results depend on what new memory held",
    "outside": "results depend on what lies around the operands",
    "stale": "results depend on the call before",
    "place": "arrays that are unaligned, padded or in another order are read as others",
    "stream": "the work is not on the current stream, or goes on after the call",
    "repeat": "equal calls return different bits",
    "threads": "calls from several threads at once return other numbers than one after the other",
    "fork": "a process that the kernel forks returns from the call, too",
    "leak": "memory grows with each call",
    "state": "a setting of the process is changed: NumPy's, PyTorch's, rounding, the environment",
    "inputs": "an operand was written to",
    "writes": "memory beside an array was written to",
    "pages": "memory beyond an array is read or written, whatever becomes of it",
    "kept": "a result changes with the next call",
    "declined": "a problem that is served was declined",
    "crash": "the kernel raised an error, or ended the process",
    "hang": "a call took longer than it may",
}


@dataclass(frozen=True)
class How:
    """What surrounds a call: ``guard`` what lies around arrays, ``memory`` what new memory holds,
    ``before`` whether another call was made, ``stream``: on another stream."""

    guard: str = "nan"
    memory: str = "nan"
    before: bool = True
    stream: bool = False
    place: str = "contiguous"


@dataclass(frozen=True)
class Case:
    """A problem, the name of its data, and how its arrays lie; ``calls``: how many are compared;
    ``around``: "threads" where several threads call at once, "leak" where memory is watched."""

    problem: Problem
    data: str = "uniform"
    place: str = "contiguous"
    stream: bool = False
    calls: int = 2
    around: str = ""

    def __str__(self) -> str:
        how = "" if self.place == "contiguous" else f", arrays {self.place}"
        how += ", on another stream" if self.stream else ""
        return f"{text(self.problem)}, data {self.data}{how}"


@dataclass(frozen=True)
class Finding:
    """What is wrong: one of CHECKS, and a sentence with numbers."""

    check: str
    said: str


@dataclass(frozen=True)
class Outcome:
    """A trial's end: a finding, or a reason why nothing was judged, or the result's errors."""

    finding: Finding | None = None
    left: str = ""
    errors: dict[str, float] = field(default_factory=dict)


@dataclass
class _Call:
    """What a call left behind."""

    y: np.ndarray
    raw: Any
    changed: str = ""
    beside: str = ""
    kept: bool = True


class Judge:
    """Runs trials of a kernel that claims something; ``skip``: checks that are left out."""

    def __init__(self, candidate: Candidate, claim: Claim, skip: frozenset[str] = frozenset()):
        self.candidate, self.claim, self.skip = candidate, claim, skip
        self.held: list[Zone] = []  # of a trial: no address is another array's meanwhile
        self.patient = True  # whether results that come late are waited for
        self._warm = False
        self._forks = FORKS.begin()
        self._changed: list[str] = []  # settings of the process, by a trial's first call
        self._watched = False

    @property
    def forks(self) -> bool:
        """Whether the kernel has forked."""
        return FORKS.count > self._forks

    def run(self, case: Case) -> Outcome:
        """The outcome of a case."""
        operands = self.operands(case)
        if operands is None:
            return Outcome(left="its numbers leave the range of their type")
        how = How(place=case.place, stream=case.stream)
        self.held.clear()
        self._changed.clear()
        self._watched = False
        served = False
        try:
            # What a library imports or compiles at the first call must not meet what fills memory.
            bare = None if self._warm else self.bare(case.problem, operands)
            first, self._changed = watched(bare) if bare else (None, [])
            call = self.call(case.problem, operands, how)
            self._warm = served = True
            finding = self._wrong(case, operands, how, call)
            if finding is None:
                finding = self._around(case, operands, how, call)
            if finding is None and first is not None and (differ := differing(first, call.y)):
                finding = Finding("repeat", f"{differ} from those of the very first call")
            if FORKS.back():
                finding = Finding("fork", "a process that it forks returns as its caller, too")
        except Declined as error:
            if not served:
                return Outcome(left=str(error))
            finding = Finding("repeat", f"it served a call and declined the next: {error}")
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            finding = Finding("crash", f"it raised {type(error).__name__}: {said}")
        if finding is not None:
            return Outcome(self.counted(finding))
        return Outcome(errors=self.errors(case, operands, call.y))

    def counted(self, finding: Finding) -> Finding | None:
        """The finding, if its check is not left out."""
        return None if finding.check in self.skip else finding

    def operands(self, case: Case) -> list[np.ndarray] | None:
        """Both, channels last, in their type; None where they, or results, are out of its range."""
        first, second, _ = shapes(self.candidate.direction, case.problem)
        return data.typed(case.data, first, second, self.claim.dtype)

    def call(self, problem: Problem, operands: list[np.ndarray], how: How) -> _Call:
        """Call the kernel on guarded arrays. Raises Declined, and what the kernel raises."""
        c, library, dtype = self.candidate, self.candidate.arrays, self.claim.dtype
        if c.serves.has("contiguous") and how.place in ("padded", "other order", "reversed"):
            raise Declined("arrays have to be contiguous")
        if c.serves.has("aligned") and how.place == "unaligned":
            raise Declined("arrays have to be aligned")
        first, second, third = c.shapes(problem)
        zones = [Zone.of(library, shape, dtype, how.place) for shape in (first, second)]
        out = Zone.of(library, third, dtype, how.place) if c.out else None
        self.held += [*zones, *([out] if out else [])]
        laid = [self.axes(v) for v in operands]
        previous: Any = None
        before: np.ndarray | None = None
        for zone, values in zip(zones, laid, strict=True):
            zone.fill(how.guard, np.roll(values[::-1], 1) * dtype.type(0.5) if how.before else None)
        if out:
            out.fill("nan")
        library.wait()
        if how.before:
            previous = self._called(zones, problem, out, how)
            before = library.get(previous) if out is None else None
        if out:
            out.fill(how.memory)
        # A copy from the CPU might wait for the busy stream, and a kernel on another be right.
        given = list(map(library.staged, laid)) if how.stream else laid
        library.wait()
        with ExitStack() as stack:
            if how.stream:
                stack.enter_context(library.stream())
            for zone, values in zip(zones, given, strict=True):
                zone.fill(how.guard, values)
            snaps = None if how.stream else [zone.bytes() for zone in zones]
            raw = self._called(zones, problem, out, how)
            y = library.get(raw)
        library.wait()
        found = _Call(y, raw)
        if snaps:
            for name, zone, snap in zip("ab", zones, snaps, strict=True):
                if zone.bytes() != snap:
                    at = zone.library.get(zone.array)
                    own = at.tobytes() != laid["ab".index(name)].tobytes()
                    found.changed += name if own else ""
                    found.beside += "" if own else name
        if out:
            library.put(out.array, dtype.type(0))
            around = library.get(out.flat).astype(np.float64)
            found.beside += "out" if np.isfinite(around).sum() > y.size else ""
            library.put(out.array, y)
        if before is not None and before.tobytes() != library.get(previous).tobytes():
            found.kept = False
        return found

    def _called(self, zones: list[Zone], problem: Problem, out: Zone | None, how: How) -> Any:
        a, b = (zone.array for zone in zones)
        given = (a, b, problem, out.array if out else None)
        with np.errstate(all="ignore"):
            before = {} if self._watched else settings(moved=True)
            try:
                with self.candidate.arrays.memory(how.memory):
                    found = self.candidate(*given)
            except Declined:
                raise
            except Exception:  # such as a compiler's that does not know what fills new memory
                found = self.candidate(*given)
            after = {} if self._watched else settings()
        self._changed += [name for name, value in before.items() if after.get(name) != value]
        self._watched = True
        return found

    def bare(self, problem: Problem, operands: list[np.ndarray]) -> Callable[[], np.ndarray]:
        """A call on arrays of its own, and a copy of its result."""
        c, dtype = self.candidate, self.claim.dtype
        zones = [Zone.of(c.arrays, shape, dtype, "contiguous") for shape in c.shapes(problem)]
        for zone, values in zip(zones, (*map(self.axes, operands), None), strict=True):
            zone.fill("nan", values)
        self.held += zones
        arrays = [zone.array for zone in zones]

        def run() -> np.ndarray:
            with np.errstate(all="ignore"):
                found = c(arrays[0], arrays[1], problem, arrays[2] if c.out else None)
            return c.arrays.get(found)

        return run

    def axes(self, values: np.ndarray) -> np.ndarray:
        """An operand, given channels last, in the kernel's layout."""
        first = self.candidate.layout == "channels_first"
        return np.moveaxis(values, -1, 1) if first else values

    def last(self, y: np.ndarray) -> np.ndarray:
        """A result, channels last."""
        return np.moveaxis(y, 1, -1) if self.candidate.layout == "channels_first" else y

    def _wrong(self, case: Case, operands: list, how: How, call: _Call) -> Finding | None:
        """What is wrong with the result, and the circumstance without which it would be right."""
        due = in_layout(shapes(self.candidate.direction, case.problem)[2], self.candidate.layout)
        if call.y.shape != due:
            return Finding("shape", f"the result has shape {call.y.shape}, expected {due}")
        if call.y.dtype != self.claim.dtype:
            return Finding("shape", f"the result is {call.y.dtype}, expected {self.claim.dtype}")
        if call.changed:
            return Finding("inputs", f"the kernel writes to operand {', '.join(call.changed)}")
        if self._changed and "state" not in self.skip:
            return Finding("state", f"the kernel changes {', '.join(sorted({*self._changed}))}")
        said = self.said(case, operands, call.y)
        if not said:
            return None
        if not how.stream and self.said(case, operands, self._later(call)) == "":
            return Finding("stream", f"the result was written after the call returned; {said}")
        for _ in range(max(AGAIN, case.calls - 1)):
            again = self.call(case.problem, operands, how)
            if differ := differing(again.y, call.y):
                return Finding("repeat", f"{said}; {differ} in an equal call")
        others: list[Finding] = []
        for check, what, changed in (
            ("stream", "on the default stream", replace(how, stream=False)),
            ("stale", "without another call before", replace(how, before=False)),
            ("unwritten", "where new memory holds zeros", replace(how, memory="zero")),
            ("outside", "where zeros lie around the operands", replace(how, guard="zero")),
            ("place", "of contiguous arrays", replace(how, place="contiguous")),
        ):
            if changed == how:
                continue
            again = self.call(case.problem, operands, changed)
            if not self.said(case, operands, again.y):
                where = "" if check != "place" else f" ({case.place} arrays)"
                return Finding(check, f"{said}{where}; right {what}")
            if different(again.y, call.y):
                others.append(Finding(check, f"{said}; other numbers {what}"))
        if others:
            return others[0]
        kind = "values"
        if not all(np.isfinite(v.astype(np.float64)).all() for v in operands):
            kind = "nan"
        elif case.data in KINDS:
            kind = KINDS[case.data]
        return Finding(kind, said)

    def _later(self, call: _Call) -> np.ndarray:
        if self.candidate.arrays.cuda or not self.patient:
            return call.y
        time.sleep(LATE)
        return self.candidate.arrays.get(call.raw)

    def _around(self, case: Case, operands: list, how: How, call: _Call) -> Finding | None:
        """What is wrong around a right result."""
        if call.beside:
            return Finding("writes", f"the kernel writes beside {call.beside}")
        if not call.kept:
            return Finding("kept", "the result of one call changes with the next call")
        new = case.calls == CALLS and not self.candidate.out
        marked = around.mark(self.candidate.arrays, call.raw, call.y) if new else None
        for number in range(1, case.calls):
            guard = "huge" if number == case.calls - 1 else "nan"
            again = self.call(case.problem, operands, replace(how, guard=guard, before=number == 1))
            differ = differing(again.y, call.y)
            if not differ:
                continue
            with np.errstate(all="ignore"):
                apart = np.abs(again.y.astype(np.float64) - call.y.astype(np.float64))
            most = np.max(apart, where=np.isfinite(apart), initial=0.0)
            amount = f"{differ}, by {most:.2g} at most"
            if guard == "huge" and self._settled(case, operands, how, call):
                return Finding("outside", f"{amount}, with what lies around the operands")
            if "repeat" not in self.skip:
                return Finding("repeat", f"{amount}, between equal calls (call {number + 1})")
        if marked is not None and different(self.candidate.arrays.get(call.raw), marked):
            return Finding("kept", f"the result of one call changes with {case.calls - 1} more")
        return self._surroundings(case, operands)

    def _surroundings(self, case: Case, operands: list) -> Finding | None:
        """What is wrong with calls from several threads, or with the memory of many calls."""
        library, said = self.candidate.arrays, ""
        # A process that is forked beside other threads may wait for a lock that none gives back.
        if case.around == "threads" not in self.skip and not self.forks:
            turned = ([np.roll(v, turn) for v in operands] for turn in range(THREADS))
            calls = [self.bare(case.problem, each) for each in turned]
            if not self.candidate.out:  # the same operands, which nobody may change meanwhile
                calls[2:] = calls[:2]
            said = together(library, calls, self.candidate.file)
        if case.around == "leak" not in self.skip:
            shape = shapes(self.candidate.direction, case.problem)[2]
            size = int(np.prod(shape)) * self.claim.dtype.itemsize
            said = grown(library, self.bare(case.problem, operands), size)
        return Finding(case.around, said) if said else None

    def _settled(self, case: Case, operands: list, how: How, call: _Call) -> bool:
        """Whether five more equal calls return equal bits."""
        again = [self.call(case.problem, operands, replace(how, before=False)) for _ in range(5)]
        return not any(different(each.y, call.y) for each in again)

    def said(self, case: Case, operands: list, y: np.ndarray) -> str:
        """Why a result is refused, with numbers, or ""; of ROUGH data it has to keep to the proven
        bound alone."""
        if case.problem.empty:
            return ""
        y = self.last(y)
        if case.data == data.BEYOND:
            return finite(self.claim, case.problem, operands, y)
        found = self.claim.check(case.problem, operands[0], operands[1], y)
        if found or found is None:
            return ""
        if case.data in ROUGH and found.at and not found.impossible:
            return ""
        return described(self.claim, case.problem, operands, y, found)

    def errors(self, case: Case, operands: list, y: np.ndarray) -> dict[str, float]:
        """The errors of a result that is accepted: relative RMS, what is accepted and predicted of
        it, and the largest error over its tolerance and over the proven bound."""
        if case.problem.empty or case.data == data.BEYOND:
            return {}
        limits = self.claim.limits(case.problem, *operands)
        found = limits.check(self.last(y))
        proven = limits.proven.atol
        return {
            "relative_rms": found.relative_rms,
            "predicted_rms": limits.relative_rms,
            "most_rms": found.most,
            **({} if case.data in ROUGH else {"over_tolerance": found.ratio}),
            "over_bound": found.largest / proven if proven else 0.0,
        }
