"""Algorithm 1 by hand: the order of the program, then task by task."""

from __future__ import annotations

import numpy as np

from slotwise.policy.dmrs.algorithm import dmrs, list_jobs, program_order
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage


def job(*stages: list[float]) -> NumericJob:
    """A chain of stages with tasks of this work."""
    made = (Stage(np.array(s), (n - 1,) if n else ()) for n, s in enumerate(stages))
    return NumericJob(tuple(made))


LONG_FIRST = RelatedMachines(np.array([2.0, 1.0]), [job([4.0, 3.0], [2.0]), job([1.0])])
"""A job of two maps and a reduce before one of a single task, on speeds 2 and 1."""


def test_the_short_job_is_first() -> None:
    """Lines 1 and 2: it completes first in the linear program."""
    assert program_order(LONG_FIRST) == [1, 0]


def test_each_task_goes_where_it_is_done_first() -> None:
    """Lines 3 to 17: the reduce begins on the fast machine when the later map is done."""
    placed = {tuple(run[:3]): run[3:] for run in dmrs(LONG_FIRST).runs}
    assert placed[1, 0, 0] == (0, 0.0, 0.5)
    assert placed[0, 0, 0] == (0, 0.5, 2.5)
    assert placed[0, 0, 1] == (1, 0.0, 3.0)
    assert placed[0, 1, 0] == (0, 3.0, 4.0)


def test_another_choice_of_machines_keeps_the_order_of_tasks() -> None:
    """All tasks on the slow machine run one after another."""
    runs = list_jobs(LONG_FIRST, [1, 0], lambda job, stage, task, done: 1).runs
    assert [run.start for run in runs] == [0.0, 1.0, 5.0, 8.0]
    assert {run.machine for run in runs} == {1}
