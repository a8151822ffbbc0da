"""Map-only without waiting: the same machines, none idle while a task could begin there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dmrs.waiting import eager, map_only_eager
from slotwise.policy.dmrs.algorithm import dmrs
from slotwise.policy.dmrs.planning import map_only
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Run, Runs, Stage


def job(
    maps: list[float], reduces: list[float], release: float = 0.0, weight: float = 1.0
) -> NumericJob:
    """A MapReduce job of these tasks."""
    return NumericJob((Stage(np.array(maps)), Stage(np.array(reduces), (0,))), release, weight)


def test_a_machine_runs_a_later_map_while_a_reduce_cannot_begin() -> None:
    """b's map was behind a's reduce, which waits until 4; it takes the gap, and ends at 2."""
    problem = RelatedMachines(np.array([1.0, 1.0]), [job([4.0], [1.0]), job([2.0], [1.0])])
    planned = Runs.of(
        problem,
        [
            Run(0, 0, 0, 0, 0.0, 4.0),
            Run(0, 1, 0, 1, 4.0, 5.0),
            Run(1, 0, 0, 1, 5.0, 7.0),
            Run(1, 1, 0, 0, 7.0, 8.0),
        ],
    )
    found = eager(problem, planned)
    found.check(problem)
    assert {(r.job, r.stage): (r.machine, r.start, r.end) for r in found.runs} == {
        (0, 0): (0, 0.0, 4.0),
        (1, 0): (1, 0.0, 2.0),
        (1, 1): (0, 4.0, 5.0),
        (0, 1): (1, 4.0, 5.0),
    }
    assert found.completion.tolist() == [5.0, 5.0]


@st.composite
def problems(draw: st.DrawFn) -> RelatedMachines:
    """A few jobs, some released later, on machines of different speeds."""
    numbers = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=4)
    jobs = draw(
        st.lists(
            st.builds(job, numbers, numbers, st.sampled_from([0.0, 3.0]), st.just(1.0)),
            min_size=1,
            max_size=4,
        )
    )
    return RelatedMachines(np.array(draw(numbers)), jobs)


@given(problems())
@settings(max_examples=60, deadline=None)
def test_it_is_feasible_on_the_same_machines_and_idle_only_if_no_task_is_ready(
    problem: RelatedMachines,
) -> None:
    """The task that ends an idle time was not ready before."""
    for planned, found in (
        (map_only(problem), map_only_eager(problem)),
        (dmrs(problem), eager(problem, dmrs(problem))),
    ):
        found.check(problem)
        assert {run[:4] for run in found.runs} == {run[:4] for run in planned.runs}
        ready = {}
        for number, one in enumerate(problem.jobs):
            maps = [r.end for r in found.runs if (r.job, r.stage) == (number, 0)]
            ready[number] = (one.release, max(maps))
        for machine in range(len(problem.speed)):
            mine = sorted(
                (r for r in found.runs if r.machine == machine), key=lambda r: r.start
            )
            free = 0.0
            for place, run in enumerate(mine):
                if run.start > free:
                    waited = [ready[later.job][later.stage] for later in mine[place:]]
                    assert run.start == pytest.approx(min(waited))
                free = run.end
