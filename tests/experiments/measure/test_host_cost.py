"""How the host's cost of a call is measured, by a clock of its own."""

from __future__ import annotations

from experiments.measure import host_cost


def test_ways_take_turns_and_the_least_mean_counts() -> None:
    now, order = 0.0, []

    def way(name: str):
        def call() -> None:
            nonlocal now
            order.append(name)
            slow = len(order) < host_cost.CALLS * host_cost.ROUNDS  # the processor, at first
            now += 3e-6 if slow else 2e-6 if name == "a" else 1e-6

        return call

    calls = {(name, "CuPy"): way(name) for name in "ab"}
    found = host_cost.seconds(calls, lambda: None, lambda: now)
    assert {name: round(cost * 1e6, 3) for (name, _), cost in found.items()} == {"a": 2, "b": 1}
    series = order[2 * host_cost.WARM :]
    assert series[: 2 * host_cost.CALLS] == ["a"] * host_cost.CALLS + ["b"] * host_cost.CALLS


def test_other_work_goes_before_and_is_not_counted() -> None:
    now, order = 0.0, []

    def other() -> None:
        nonlocal now
        order.append("other")
        now += 1e-3

    def call() -> None:
        nonlocal now
        order.append("call")
        now += 5e-3 if len(order) < 20 else 2e-6  # the first are slow: the median is not

    (cost,) = host_cost.between({("a", "torch"): call}, other, lambda: None, lambda: now).values()
    assert round(cost * 1e6, 3) == 2
    assert order == ["other", "call"] * host_cost.APART * host_cost.ROUNDS
