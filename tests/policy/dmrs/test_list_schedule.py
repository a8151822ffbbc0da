"""Algorithm 1: as one reads it, on plain numbers, by machine code, and with gaps filled."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import related_machines
from oracles.gaps import list_with_gaps
from slotwise.policy.compiled import has_numba
from slotwise.policy.dmrs.algorithm import by_completion, linear_program, list_jobs
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.problem import JobColumns, NumericJob, RelatedMachines, Runs, Stage
from tiers import examples

seeds = st.integers(0, 2**32)


def problem_of(seed: int) -> tuple[RelatedMachines, list[int]]:
    """A random problem, and an order of its jobs."""
    random = Random(seed)
    problem = related_machines.drawn(
        random,
        random.randint(1, 10),
        random.randint(1, 8),
        random.choice([1, 5, 20]),
        released=random.choice([0.0, 20.0]),
        dags=random.random() < 0.5,
    )
    order = list(range(len(problem)))
    random.shuffle(order)
    return problem, order


def key_of(runs: Runs) -> list[tuple[float, ...]]:
    """The runs, in an order that does not tell how they were found."""
    return sorted(tuple(run) for run in runs.runs)


@settings(max_examples=examples(15, slow=1000))
@given(seeds)
def test_the_lister_makes_the_schedule_of_algorithm_one(seed: int) -> None:
    """Run for run the same as `list_jobs`, and completions without runs as well."""
    problem, order = problem_of(seed)
    read = list_jobs(problem, order)
    lister = TaskLister(problem)
    assert key_of(lister.runs(order)) == key_of(read)
    assert lister.completions(order).tolist() == read.completion.tolist()


@settings(max_examples=examples(15, slow=1000))
@given(seeds)
def test_gaps_are_filled_as_one_reads_it(seed: int) -> None:
    """Run for run the same as task by task."""
    problem, order = problem_of(seed)
    assert key_of(TaskLister(problem).runs(order, True)) == key_of(
        list_with_gaps(problem, order)
    )


@settings(max_examples=examples(15, slow=1000))
@given(seeds)
def test_jobs_as_arrays_are_the_same_jobs(seed: int) -> None:
    """All of a job can be read back, and a problem of arrays has the same schedule."""
    problem, order = problem_of(seed)
    columns = JobColumns.of(problem.jobs)
    for job, same in zip(problem.jobs, columns, strict=True):
        assert (same.release, same.weight) == (job.release, job.weight)
        for stage, twin in zip(job.stages, same.stages, strict=True):
            assert (twin.before, twin.ready) == (stage.before, stage.ready)
            assert twin.follows == stage.follows
            assert twin.work.tolist() == stage.work.tolist()
    again = RelatedMachines(problem.speed, columns, problem.busy)
    assert key_of(list_jobs(again, order)) == key_of(list_jobs(problem, order))


@settings(max_examples=examples(15, slow=1000))
@given(seeds)
def test_chains_and_arcs_of_arrays_are_those_of_the_stages(seed: int) -> None:
    """A chain is a job whose stages each wait for exactly the one before."""
    problem, _ = problem_of(seed)
    graphs = problem.columns.graphs
    chains = [
        all(stage.before == ((n - 1,) if n else ()) for n, stage in enumerate(job.stages))
        for job in problem.jobs
    ]
    assert graphs.is_chain.tolist() == chains
    arcs = [pair for pairs in graphs.arcs for pair in pairs.tolist()]
    assert sorted(arcs) == [
        [begin + n, begin + other]
        for begin, job in zip(graphs.first.tolist(), problem.jobs, strict=False)
        for n, stage in enumerate(job.stages)
        for other in stage.before
    ]


@pytest.mark.skipif(not has_numba(), reason="numba is not installed")
@pytest.mark.parametrize("seed", range(examples(6, slow=30)))
@pytest.mark.slow
def test_machine_code_makes_the_same_schedule(seed: int) -> None:
    """To the last bit, with and without gaps filled."""
    problem, order = problem_of(seed)
    plain, fast = TaskLister(problem), TaskLister(problem, float("inf"))
    for fills in (False, True):
        assert key_of(fast.runs(order, fills)) == key_of(plain.runs(order, fills))
        same = fast.completions(order, fills) == plain.completions(order, fills)
        assert same.all()


@settings(max_examples=examples(15, slow=1000))
@given(seeds)
def test_filling_gaps_delays_no_placed_task(seed: int) -> None:
    """Adding one more job to an order leaves all runs of those before it as they are."""
    problem, order = problem_of(seed)
    lister = TaskLister(problem)
    whole = lister.runs(order, fills=True)
    whole.check(problem)
    shorter = RelatedMachines(problem.speed, [problem.jobs[number] for number in order[:-1]])
    if not shorter.jobs:
        return
    before = TaskLister(shorter).runs(range(len(shorter)), fills=True)
    least = min(stage.work.min() for job in problem.jobs for stage in job.stages)
    if least < min(stage.work.min() for job in shorter.jobs for stage in job.stages):
        return  # Shorter gaps are kept then: other machines may tie.
    kept = [run for run in whole.runs if run.job != order[-1]]
    names = {number: place for place, number in enumerate(order)}
    assert key_of(before) == sorted((names[run.job], *run[1:]) for run in kept)


def test_a_gap_is_filled_by_hand() -> None:
    """While a machine waits for a map that runs elsewhere, it runs the map of the next job."""
    first = NumericJob((Stage(np.array([6.0, 2.0])), Stage(np.array([4.0, 4.0]), (0,))))
    second = NumericJob((Stage(np.array([3.0])),))
    problem = RelatedMachines(np.array([1.0, 1.0]), [first, second])
    lister = TaskLister(problem)
    assert lister.completions([0, 1]).tolist() == [10.0, 13.0]
    assert lister.completions([0, 1], fills=True).tolist() == [10.0, 5.0]
    (run,) = [run for run in lister.runs([0, 1], fills=True).runs if run.job == 1]
    assert (run.machine, run.start, run.end) == (1, 2.0, 5.0)


def test_a_task_that_would_be_late_does_not_fill_a_gap() -> None:
    """The gap is 4 s long; a task of 5 s goes behind everything."""
    first = NumericJob((Stage(np.array([6.0, 2.0])), Stage(np.array([4.0, 4.0]), (0,))))
    second = NumericJob((Stage(np.array([5.0])),))
    problem = RelatedMachines(np.array([1.0, 1.0]), [first, second])
    assert TaskLister(problem).completions([0, 1], fills=True).tolist() == [10.0, 15.0]


def test_a_task_waits_for_a_fast_machine_where_it_is_done_first() -> None:
    """Three tasks of 4 s on speeds 4 and 1: all on the fast one, the third ends at 3 s."""
    problem = RelatedMachines(
        np.array([1.0, 4.0]), [NumericJob((Stage(np.array([4.0, 4.0, 4.0])),))]
    )
    runs = list_jobs(problem, [0]).runs
    assert [(run.machine, run.end) for run in runs] == [(1, 1.0), (1, 2.0), (1, 3.0)]


def test_gaps_filled_gain_on_average() -> None:
    """Single problems may lose by it, as the tasks that are placed later go elsewhere."""
    plain = filled = 0.0
    for seed in range(examples(15, slow=60)):
        problem = related_machines.drawn(Random(seed), 12, 5, 6)
        lister = TaskLister(problem)
        program = linear_program(problem)
        order = by_completion(program.completion)
        plain += problem.value(lister.completions(order)) / program.value
        filled += problem.value(lister.completions(order, fills=True)) / program.value
    assert filled < plain


@pytest.mark.parametrize("broken", ["early", "short", "twice", "before", "overlap", "lost"])
def test_a_wrong_schedule_does_not_pass(broken: str) -> None:
    """The check that all tests rely on sees each kind of fault."""
    job = NumericJob((Stage(np.array([2.0, 2.0])), Stage(np.array([2.0]), (0,))), release=1.0)
    problem = RelatedMachines(np.array([1.0, 1.0]), [job])
    runs = list(list_jobs(problem, [0]).runs)
    Runs.of(problem, runs).check(problem)
    first, second, reduce = runs
    match broken:
        case "early":
            runs[0] = first._replace(start=0.0, end=2.0)
        case "short":
            runs[2] = reduce._replace(end=reduce.end - 1)
        case "twice":
            runs[1] = first
        case "before":
            runs[2] = reduce._replace(start=2.0, end=4.0, machine=1)
            runs[1] = second._replace(start=4.0, end=6.0)
        case "overlap":
            runs[1] = second._replace(machine=first.machine)
        case "lost":
            runs.pop()
    with pytest.raises(AssertionError):
        Runs.of(problem, runs).check(problem)
