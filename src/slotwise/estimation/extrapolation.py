"""How much work a phase has left, from the tasks that have finished (FLEX 2.5 and 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

RUNNING_FLOOR = 0.1
"""A running task that has outlived its estimate is taken to need this part of it still."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a phase: sums over its tasks, in seconds of work at speed 1.

    `expected_*` are the estimates made beforehand (of pending, running and finished tasks),
    `observed` is what the finished ones really took, `elapsed` what the running ones have had.
    """

    expected_pending: float
    expected_running: float
    expected_finished: float
    observed: float
    elapsed: float


def work_left(progress: Progress) -> float:
    """Extrapolate the work left of a phase, in seconds at speed 1.

    The finished tasks tell by which factor the estimates were wrong; the tasks left are taken
    to be wrong by the same factor. With equal tasks this is the paper's rule: average seen so
    far times number of tasks left. Before the first one finishes the factor is 1.
    """
    factor = 1.0
    if progress.expected_finished > 0:
        factor = progress.observed / progress.expected_finished
    running = progress.expected_running * factor
    return progress.expected_pending * factor + max(
        running - progress.elapsed, RUNNING_FLOOR * running
    )
