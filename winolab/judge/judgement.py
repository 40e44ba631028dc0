"""The whole judgement of a kernel: its trials, the smallest problem that fails, and the verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from winolab.arguments.words import plural
from winolab.judge.candidate import Candidate
from winolab.judge.claim import Claim
from winolab.judge.data import CHANGES
from winolab.judge.pages import trial as beside
from winolab.judge.problems import drawn, elsewhere, fixed, many, smaller, text
from winolab.judge.trial import CALLS, CHECKS, Case, Finding, Judge, Outcome
from winolab.problem import Problem

SHRINKING = 120  # trials in which the smallest failing problem is looked for
LEAST = 12  # trials that a kernel has to serve: what lies around arrays needs some of each place
MOST = 1 << 27  # products of a problem: more take too long in FP64
# No kernel is judged after these: the device is lost.
FATAL = ("illegal", "misaligned", "unspecified launch failure", "CUDA error")


@dataclass(frozen=True)
class Fault:
    """A finding, the case that showed it and the smallest that shows the same check's."""

    finding: Finding
    first: Case
    least: Case

    def __str__(self) -> str:
        first = f"seen with {text(self.first.problem)}, data {self.first.data}"
        return (
            f"{self.finding.check}: {self.finding.said} "
            f"[{first}; smallest failing problem {self.least}]"
        )


@dataclass
class Judgement:
    """What was found; true where the kernel is accepted. ``rows``: one a trial, then the times."""

    kernel: str
    claim: Claim
    facts: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    times: list[dict[str, Any]] = field(default_factory=list)

    @property
    def served(self) -> int:
        """Trials that the kernel served."""
        return sum(row["outcome"] != "left" for row in self.rows)

    def __bool__(self) -> bool:
        return not self.faults and self.served >= LEAST

    @property
    def verdict(self) -> str:
        """One sentence."""
        c = self.claim
        what = f"{self.kernel} as {c.algorithm} in {c.precision}, {c.direction}"
        if self.faults:
            return f"refused: {what}: {self.faults[0]}"
        trials = plural(len(self.rows), "trial")
        if self.served < LEAST:
            why = max(
                self.left, key=self.left.__getitem__, default="no problem fits what it serves"
            )
            return f"refused: {what}: it served {self.served} of {trials} ({why})"
        worst = max((row.get("over_tolerance", 0.0) for row in self.rows), default=0.0)
        alone = (
            "; it forks, and was called from one thread alone" if self.facts.get("forks") else ""
        )
        return (
            f"accepted: {what}: {self.served} of {trials} served, the largest error "
            f"{worst:.2g} of its tolerance{alone}"
        )


def cases(
    candidate: Candidate, count: int, seed: str, declined: set[Problem], pages: bool = False
) -> Iterator[Case]:
    """What a kernel is judged on: fixed ones, places, streams, adversarial data, random ones, and,
    for ``pages``, fixed ones beside protected pages, the smallest first.

    ``declined`` gains, while they are gone through, problems that the kernel does not serve.
    """
    plain = list(dict.fromkeys(_served(candidate, fixed(candidate.ndim))))
    largest = max(plain, key=lambda p: math.prod(p.y_shape), default=None)
    for number, problem in enumerate(plain):
        around = "leak" if problem == largest else "threads" if number < 2 else ""
        yield Case(problem, calls=CALLS, around=around)
    # What a kernel was compiled for, or keeps, may be of the maps that these filters had before.
    others = [elsewhere(problem) for problem in plain[:2]]
    outputs = many(candidate.ndim) if candidate.arrays.cuda else None
    for problem in _served(candidate, iter(others + ([outputs] if outputs else []))):
        yield Case(problem)
    plain = [problem for problem in plain if problem not in declined]
    deep = sorted(plain, key=lambda p: (p.stride != (1,) * p.ndim, abs(p.macs - 150_000)))
    places = [p for p in candidate.arrays.places if p != "contiguous"]
    for problem in plain[:4] + plain[11:13]:
        for place in places:
            yield Case(problem, place=place)
        if candidate.arrays.cuda:
            yield Case(problem, stream=True)
    for problem in dict.fromkeys((*deep[:1], *plain[1:4])):
        for name in CHANGES:
            if problem in deep[:1] or name in ("normal", "sums that cancel", "NaN", "infinity"):
                yield Case(problem, name)
    rng = Random(f"winolab judge {seed}")
    for _ in range(count):
        problem = next(_served(candidate, iter([drawn(rng, candidate.ndim)])), None)
        name = rng.choice(["uniform", "uniform", *CHANGES])
        place = rng.choice(candidate.arrays.places)
        if problem and not problem.empty:
            stream = candidate.arrays.cuda and rng.random() < 0.3
            yield Case(problem, name, place, stream)
    for problem in sorted(plain, key=lambda p: p.macs) if pages else ():
        if not problem.empty:
            yield Case(problem, place=beside.PLACE)


def _served(candidate: Candidate, problems: Iterator[Problem]) -> Iterator[Problem]:
    """The problems, changed to what the kernel says that it serves."""
    for problem in problems:
        if candidate.own:
            problem = candidate.own(problem)
        found = candidate.serves.nearest(problem)
        if found is not None and found.macs <= MOST:
            yield found


def judge(
    candidate: Candidate,
    claim: Claim,
    *,
    count: int = 40,
    seed: str = "0",
    skip: frozenset[str] = frozenset(),
    first: bool = False,
    seconds: float = 2.5,
    within: float = math.inf,
    told: Callable[[int, Case, Judgement], None] = lambda number, case, found: None,
    ending: Callable[[str], None] | None = None,
) -> Judgement:
    """Judge a kernel that claims something, on fixed, adversarial and ``count`` random problems.

    For ``seconds`` the smallest problem of each fault is looked for; ``within`` so many seconds
    trials begin.
    ``skip`` names checks (CHECKS) that are left out, ``first`` ends at the first fault, ``told`` is
    called before each trial. With ``ending`` arrays touch, at last, pages that may not be read: it
    hears what it means if the process ends now, which reads there make it do, "" for nothing known.
    Raises ValueError for an unknown check.
    """
    for name in skip:
        if name not in CHECKS:
            raise ValueError(f"check {name!r}; expected {', '.join(CHECKS)}")
    judge = Judge(candidate, claim, skip)
    found = Judgement(candidate.name, claim, {"seed": seed, "count": count, "skip": sorted(skip)})
    touching = ending is not None and "pages" not in skip and beside.possible(candidate)
    found.facts |= {"pages": touching, "forks": False}
    firm = bool(candidate.serves.said)
    declined: set[Problem] = set()
    end = time.monotonic() + within
    for number, case in enumerate(cases(candidate, count, seed, declined, touching)):
        if time.monotonic() > end:
            break
        told(number, case, found)
        started = time.perf_counter()
        last = case.place == beside.PLACE
        outcome = beside.run(judge, case, ending) if ending and last else judge.run(case)
        if outcome.left and firm and not _range(outcome) and case.place == "contiguous":
            finding = Finding("declined", f"it serves such problems, it says, and: {outcome.left}")
            outcome = Outcome(None if "declined" in skip else finding)
        found.facts["forks"] = judge.forks
        found.rows.append(_row(candidate, claim, case, outcome, time.perf_counter() - started))
        if outcome.left:
            found.left[outcome.left] = found.left.get(outcome.left, 0) + 1
            if case.data == "uniform" and case.place == "contiguous":
                declined.add(case.problem)
        finding = outcome.finding
        if finding and all(finding.check != fault.finding.check for fault in found.faults):
            lost = finding.check in ("crash", "pages") and any(w in finding.said for w in FATAL)
            least = case if lost or last else shrunk(judge, case, finding, seconds)
            found.faults.append(Fault(finding, case, least))
            if lost or first:
                break
    return found


def _range(outcome: Outcome) -> bool:
    return "leave the range" in outcome.left


def shrunk(judge: Judge, case: Case, finding: Finding, seconds: float) -> Case:
    """The smallest case found, by one step after the other, that fails the same check."""
    if finding.check != "repeat":
        case = replace(case, calls=2, around=case.around if finding.check == case.around else "")
    end, left = time.monotonic() + seconds, SHRINKING
    judge.patient = finding.check == "stream"
    simpler = [replace(case, data="uniform"), replace(case, place="contiguous")]
    serves, own = judge.candidate.serves, judge.candidate.own
    moved = True
    while moved:
        moved = False
        problems = () if own else smaller(case.problem)
        for less in (*simpler, *(replace(case, problem=p) for p in problems if p in serves)):
            if less == case or left <= 0 or time.monotonic() > end:
                continue
            left -= 1
            found = judge.run(less).finding
            if found and found.check == finding.check:
                case, moved = less, True
                break
        simpler = []
    judge.patient = True
    return case


def _row(
    candidate: Candidate, claim: Claim, case: Case, outcome: Outcome, seconds: float
) -> dict[str, Any]:
    row = {
        "row": "trial",
        "kernel": candidate.name,
        "direction": candidate.direction,
        "algorithm": claim.algorithm,
        "precision": claim.precision,
        "problem": text(case.problem),
        "data": case.data,
        "arrays": f"{candidate.arrays.name} {case.place}",
        "stream": "other" if case.stream else "current",
        "calls": case.calls,
        "outcome": "accepted",
        "took_s": round(seconds, 4),
        **outcome.errors,
    }
    if outcome.left:
        row |= {"outcome": "left", "why": outcome.left}
    if outcome.finding:
        row |= {"outcome": "refused", "check": outcome.finding.check, "why": outcome.finding.said}
    return row
