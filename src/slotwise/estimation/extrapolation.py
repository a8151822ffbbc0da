"""The remaining work of a phase, from its finished tasks (FLEX 2.5 and 4.2)."""

from __future__ import annotations

DEFAULT_WORK = 10.0
"""Seconds; the assumed work of a task without an estimate (FlowFlex 5.2)."""

RUNNING_FLOOR = 0.1
"""A running task that exceeds its estimate is assumed to need this part of it in addition."""

MIN_WORK = 1e-9
"""The minimum remaining work of an unfinished phase, seconds."""


def work_left(
    expected_pending: float,
    expected_running: float,
    expected_finished: float,
    observed: float,
    elapsed: float,
    factor_before: float = 1.0,
) -> float:
    """The extrapolated remaining work of a phase, in seconds at speed 1, > 0.

    The `expected` sums are the initial estimates of the pending, running and finished tasks.
    `observed` is the real work of the finished tasks, `elapsed` the work done so far on the
    running ones. The ratio of `observed` to `expected_finished` is applied to the remaining
    tasks; it is `factor_before` until the first task finishes. With equal tasks this is the
    paper's rule: the average so far times the number of remaining tasks. O(1).
    """
    factor = observed / expected_finished if expected_finished > MIN_WORK else factor_before
    running = expected_running * factor
    running_left = max(running - elapsed, RUNNING_FLOOR * running)
    return max(expected_pending * factor + running_left, MIN_WORK)
