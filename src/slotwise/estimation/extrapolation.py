"""How much work a phase has left, from the tasks that have finished (FLEX 2.5 and 4.2)."""

from __future__ import annotations

DEFAULT_WORK = 10.0
"""Seconds; what a task is taken to need of which nobody has said anything (FlowFlex 5.2)."""

RUNNING_FLOOR = 0.1
"""A running task that has outlived its estimate is taken to need this part of it still."""

WORK_LEAST = 1e-9
"""What a phase that is not done is taken to need at least, in seconds."""


def work_left(
    expected_pending: float,
    expected_running: float,
    expected_finished: float,
    observed: float,
    elapsed: float,
) -> float:
    """Extrapolate the work left of a phase, in seconds at speed 1, above 0.

    The `expected` sums are the estimates made beforehand of the pending, running and finished
    tasks; `observed` is what the finished ones really took and `elapsed` what the running ones
    have had so far. The finished tasks tell by which factor the estimates were wrong; the
    tasks left are taken to be wrong by the same factor. With equal tasks this is the paper's
    rule: average seen so far times number of tasks left. Before the first one finishes the
    factor is 1. O(1).
    """
    factor = observed / expected_finished if expected_finished > WORK_LEAST else 1.0
    running = expected_running * factor
    running_left = max(running - elapsed, RUNNING_FLOOR * running)
    return max(expected_pending * factor + running_left, WORK_LEAST)
