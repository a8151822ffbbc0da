"""The generator of FlowFlex 5.1: properties for every seed, and averages over many."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import slotwise
from experiments.flowflex.generator import FlowGenerator, least_time, unweighted, wire
from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.insight.bound import Work, sizes_of
from tiers import examples


@cache
def draw(generator: FlowGenerator, seed: int) -> tuple[Job, ...]:
    """One experiment; several tests look at the same ones."""
    return generator.draw(np.random.default_rng(seed))


def drawn(
    generator: FlowGenerator, experiments: int = examples(25, slow=60)
) -> list[tuple[Job, ...]]:
    """Experiments of seeds from 0 on."""
    return [draw(generator, seed) for seed in range(experiments)]


EXTREMES = (
    FlowGenerator(),
    FlowGenerator(flows_least=1, flows_most=1, phases_least=1, phases_most=1, steps_most=1),
    FlowGenerator(slots=1, weight_most=1, waves=1, big=0.0, joined=0.0),
    FlowGenerator(joined=1.0, big=1.0, times=1e4, deadline_most=1e-3, waves=9, steps_most=12),
)


@pytest.mark.parametrize("generator", EXTREMES)
def test_every_experiment_keeps_the_constraints_of_the_paper(generator: FlowGenerator) -> None:
    """Numbers lie in their ranges, the last phase is last, every promise can be kept."""
    for jobs in drawn(generator, examples(12, slow=30)):
        assert generator.flows_least <= len(jobs) <= generator.flows_most
        for job in jobs:
            assert generator.phases_least <= len(job.phases) <= generator.phases_most
            assert ancestors(job, job.phases[-1]) == set(job.by_name) - {job.phases[-1].name}
            assert 1 <= job.weight <= generator.weight_most
            assert job.weight == int(job.weight)
            assert 1 <= len(job.steps) <= generator.steps_most
            heights = np.diff([0.0, *(cost for _, cost in job.steps)])
            assert np.all((heights >= 1) & (heights <= generator.weight_most))
            soonest = least_time(job, generator.slots)
            assert job.deadline is not None
            assert min(job.deadline, job.steps[0][0]) >= soonest
            for phase in job.phases:
                assert 1 <= phase.slots_most == phase.slots_max <= generator.slots
                work = phase.tasks.work_total()
                assert work is not None
                assert work > 0
        work = sum(job.work or 0.0 for job in jobs)
        horizon = generator.deadline_most * work / generator.slots
        for job in jobs:
            latest = least_time(job, generator.slots) + horizon
            assert max(job.deadline or 0.0, job.steps[-1][0]) <= latest * (1 + 1e-12)


def ancestors(job: Job, phase: Phase) -> set[str]:
    """The names of all phases that come before one, found by walking back."""
    found, left = set(), list(phase.after)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += job.by_name[name].after
    return found


def test_same_seed_same_jobs() -> None:
    """The jobs follow from the state of the random generator alone."""
    one, same, other = (FlowGenerator().draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_numbers_are_uniform() -> None:
    """Flows 5 to 20, phases 2 to 20, weights and heights 1 to 10, steps 1 to 5, on average."""
    experiments = drawn(FlowGenerator(), examples(150, slow=300))
    jobs = [job for experiment in experiments for job in experiment]
    assert {len(experiment) for experiment in experiments} == set(range(5, 21))
    assert {len(job.phases) for job in jobs} == set(range(2, 21))
    assert {job.weight for job in jobs} == set(range(1, 11))
    assert np.mean([len(experiment) for experiment in experiments]) == pytest.approx(
        12.5, rel=0.05
    )
    assert np.mean([len(job.phases) for job in jobs]) == pytest.approx(11, rel=0.03)
    assert np.mean([job.weight for job in jobs]) == pytest.approx(5.5, rel=0.03)
    assert np.mean([len(job.steps) for job in jobs]) == pytest.approx(3, rel=0.03)
    assert np.mean([job.steps[0][1] for job in jobs]) == pytest.approx(5.5, rel=0.03)


def test_two_phases_are_joined_with_probability_one_half() -> None:
    """Of the pairs that leave out the last node half are joined, more at its end."""
    rng = np.random.default_rng(3)
    pairs = [wire(10, 0.5, rng) for _ in range(400)]
    inner = [len(before) / n for one in pairs for n, before in enumerate(one) if 0 < n < 9]
    assert np.mean(inner) == pytest.approx(0.5, abs=0.02)
    assert np.mean([len(one[-1]) for one in pairs]) > 4.5


def test_phases_without_successors_come_before_the_last() -> None:
    """With no pair joined all are before the last; with all, each is before the next."""
    rng = np.random.default_rng(0)
    assert wire(4, 0.0, rng) == ((), (), (), (0, 1, 2))
    assert wire(4, 1.0, rng) == ((), (0,), (0, 1), (0, 1, 2))
    assert wire(1, 1.0, rng) == ((),)


def test_big_jobs_are_ten_times_as_big() -> None:
    """The volume is uniform from 1 to 10 times the least, for a big job ten times that."""
    small, large = (
        np.array([job.work for jobs in drawn(FlowGenerator(big=big)) for job in jobs])
        for big in (0.0, 1.0)
    )
    for work, least in ((small, 25.0), (large, 250.0)):
        assert work.min() >= least * (1 - 1e-12)
        assert work.max() <= 10 * least * (1 + 1e-12)
        assert work.mean() == pytest.approx(5.5 * least, rel=0.05)


def test_half_of_the_phases_are_tall() -> None:
    """Each job has its own probability of tall phases, 1/2 on average."""
    jobs = [
        job
        for jobs in drawn(FlowGenerator(), examples(120, slow=200))
        for job in jobs
        if len(job.phases) > 9
    ]
    parts = np.array([np.mean([p.slots_max == 25 for p in job.phases]) for job in jobs])
    assert parts.mean() == pytest.approx(0.5 + 0.5 / 25, abs=0.02)
    assert parts.std() > 0.25  # By one probability for all it would be 0.15 at most.


def test_the_least_time_is_the_longer_of_path_and_area() -> None:
    """A diamond of work 8, 4, 20 and 6 on 4 slots: 8/4 + 20/2 + 6/3 by path, 38/4 by area."""
    diamond = Job(
        "diamond",
        (
            Phase("a", Tasks(8, 1.0)),
            Phase("b", Tasks(4, 1.0), after=frozenset({"a"})),
            Phase("c", Tasks(2, 10.0), after=frozenset({"a"})),
            Phase("d", Tasks(3, 2.0), after=frozenset({"b", "c"})),
        ),
    )
    assert least_time(diamond, 4) == 14
    assert least_time(diamond, 1) == 38
    assert least_time(diamond, 100) == 1 + 10 + 2


def test_the_least_time_is_what_sizes_know_and_no_plan_beats_it() -> None:
    """As the module of bounds finds it, and a plan of the job alone takes as long or longer."""
    for jobs in drawn(FlowGenerator(flows_most=5), examples(2, slow=4)):
        sizes = sizes_of(jobs, Cluster.of_slots(25), Work.estimated(jobs))
        for job in jobs:
            soonest = least_time(job, 25)
            assert soonest == pytest.approx(max(sizes[job.id].alone, sizes[job.id].work / 25))
            assert slotwise.plan([job], "fair", slots=25).value >= job.weight * soonest * (
                1 - 1e-9
            )


def test_unweighted_jobs_differ_in_weights_and_heights_only() -> None:
    """Weight 1, costs 1, 2, 3 at the same instants; phases and deadlines as they were."""
    jobs = FlowGenerator().draw(np.random.default_rng(4))
    for plain, job in zip(unweighted(jobs), jobs, strict=True):
        assert (plain.phases, plain.deadline, plain.weight) == (job.phases, job.deadline, 1.0)
        assert [at for at, _ in plain.steps] == [at for at, _ in job.steps]
        assert [cost for _, cost in plain.steps] == [1.0, 2.0, 3.0, 4.0, 5.0][: len(job.steps)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"flows_least": 0}, "flows_least is 0; give at least 1"),
        ({"flows_most": 4}, "flows_most is 4; give at least flows_least, 5"),
        ({"phases_least": 21}, "phases_most is 20; give at least phases_least, 21"),
        ({"slots": 0}, "slots is 0"),
        ({"steps_most": 0}, "steps_most is 0"),
        ({"weight_most": 0}, "weight_most is 0"),
        ({"waves": 0}, "waves is 0"),
        ({"joined": 1.5}, "joined is 1.5; give a probability from 0 to 1"),
        ({"big": float("nan")}, "big is nan; give a probability"),
        ({"times": 0.0}, "times is 0.0; give a number > 0"),
        ({"volume_least": float("inf")}, "volume_least is inf"),
        ({"deadline_most": -1.0}, "deadline_most is -1.0"),
    ],
)
def test_invalid_parameters_are_refused(parameters: dict[str, float], message: str) -> None:
    """The message names the parameter, its value and what it may be."""
    with pytest.raises(InputError, match=message):
        FlowGenerator(**parameters)
