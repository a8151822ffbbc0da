"""What DMRS was compared with, as we model it; and that DMRS is better on average."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import related_machines
from slotwise.policy.dmrs.algorithm import dmrs, linear_program
from slotwise.policy.dmrs.planning import PLANNERS, fifo, identical_machine, map_only
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.policy.search.budget import Budget
from tiers import examples

FAST_AND_SLOW = np.array([4.0, 1.0])


@settings(max_examples=examples(15, slow=1000))
@given(st.integers(0, 2**32), st.sampled_from(sorted(PLANNERS)), st.booleans())
def test_every_planner_makes_a_feasible_schedule(seed: int, name: str, dags: bool) -> None:
    """All tasks, one at a time, none too early; never better than the bound."""
    random = Random(seed)
    problem = related_machines.drawn(
        random, random.randint(1, 8), random.randint(1, 6), 7, random.choice([0.0, 30.0]), dags
    )
    runs = PLANNERS[name](problem, Budget(20))
    runs.check(problem)
    assert problem.value(runs.completion) >= linear_program(problem).value * (1 - 1e-9)


def test_dmrs_is_better_on_average() -> None:
    """Random problems of fast and slow machines, without and with releases."""
    ratios: dict[str, list[float]] = {name: [] for name in PLANNERS if name != "dmrs-best"}
    for seed in range(examples(50, slow=200)):
        random = Random(seed)
        problem = related_machines.drawn(
            random, 15, random.randint(4, 12), 8, random.choice([0.0, 60.0])
        )
        bound = linear_program(problem).value
        for name, found in ratios.items():
            value = problem.value(PLANNERS[name](problem, Budget(0)).completion)
            found.append(value / bound)
    mean = {name: float(np.mean(found)) for name, found in ratios.items()}
    assert mean["dmrs"] < mean["identical-machine"]
    assert mean["dmrs"] < mean["map-only"]
    assert mean["dmrs"] < mean["fifo"]


def test_identical_machine_gives_all_machines_the_same() -> None:
    """Four equal tasks, two for each; the slow machine is done four times later."""
    problem = RelatedMachines(FAST_AND_SLOW, [NumericJob((Stage(np.full(4, 4.0)),))])
    assert identical_machine(problem).completion.tolist() == [8.0]
    assert dmrs(problem).completion.tolist() == [4.0]


def test_map_only_places_maps_well_and_reduces_anywhere() -> None:
    """The maps run as DMRS has them; of 40 reduces many run on each machine, for any seed."""
    job = NumericJob((Stage(np.full(4, 4.0)), Stage(np.full(40, 1.0), (0,))))
    problem = RelatedMachines(FAST_AND_SLOW, [job])
    runs = map_only(problem).runs
    assert [run[:5] for run in runs[:4]] == [run[:5] for run in dmrs(problem).runs[:4]]
    for seed in range(5):
        slow = sum(run.machine for run in map_only(problem, seed).runs if run.stage)
        assert 10 < slow < 30
    assert map_only(problem, 1).runs == map_only(problem, 1).runs
    assert map_only(problem, 1).runs != map_only(problem, 2).runs


def test_fifo_holds_fast_machines_by_reduces_that_wait() -> None:
    """The reduce takes the fast machine at 2 s and waits for the slow map until 8 s."""
    job = NumericJob((Stage(np.array([8.0, 8.0])), Stage(np.array([8.0]), (0,))))
    problem = RelatedMachines(FAST_AND_SLOW, [job])
    runs = fifo(problem)
    (reduce,) = [run for run in runs.runs if run.stage == 1]
    assert (reduce.machine, reduce.start, reduce.end) == (0, 2.0, 10.0)
    runs.check(problem)
    # Another job that could have used the machine meanwhile has to wait.
    other = NumericJob((Stage(np.array([4.0])),))
    both = fifo(RelatedMachines(FAST_AND_SLOW, [job, other]))
    assert both.completion[1] > 8.0
    assert dmrs(RelatedMachines(FAST_AND_SLOW, [job, other])).completion[1] < 8.0


def test_fifo_takes_jobs_by_release() -> None:
    """Not by weight, nor by size, nor by their place."""
    long, short = Stage(np.array([10.0])), Stage(np.array([1.0]))
    jobs = [NumericJob((short,), 2.0, 9.0), NumericJob((long,), 0.0), NumericJob((long,), 1.0)]
    problem = RelatedMachines(np.array([1.0]), jobs)
    assert fifo(problem).completion.tolist() == [21.0, 10.0, 20.0]


def test_fifo_begins_nothing_before_its_release() -> None:
    """The machine stays idle until then."""
    problem = RelatedMachines(np.array([2.0]), [NumericJob((Stage(np.array([4.0])),), 3.0)])
    assert fifo(problem).completion.tolist() == [pytest.approx(5.0)]
