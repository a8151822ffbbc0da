"""The generator of FLEX 4.1: properties for every seed, and averages over many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from slotwise.core.errors import InputError
from slotwise.workload.generators import DrawnJobs, FlexGenerator


def drawn(generator: FlexGenerator, experiments: int = 200) -> Iterator[DrawnJobs]:
    """Experiments of seeds from 0 on."""
    for seed in range(experiments):
        yield generator.draw(np.random.default_rng(seed))


EXTREMES = (
    FlexGenerator(),
    FlexGenerator(slack=0.05, tasks_total=12),  # Jobs of one task, min shares near 10.
    FlexGenerator(slack=0.99, small=1.0, tasks_total=1e9, whole=True),
    FlexGenerator(jobs=1, slots=1, small=0.0, steps=1),
    FlexGenerator(jobs=300, slots=7, slack=0.5, steps=8),
)


@pytest.mark.parametrize("generator", EXTREMES)
def test_every_experiment_keeps_the_constraints_of_the_paper(generator: FlexGenerator) -> None:
    """The work is a fixed total, 0 < least <= most <= slots, steps increase, weights fit."""
    for jobs in drawn(generator, 30):
        assert len(jobs) == generator.jobs
        assert jobs.work.sum() == pytest.approx(generator.work_total, rel=1e-12)
        assert np.all(jobs.work > 0)
        assert np.all((jobs.least > 0) & (jobs.least <= jobs.most))
        assert np.all((jobs.most >= 1) & (jobs.most <= generator.slots))
        assert np.all(jobs.most == np.round(jobs.most))
        assert np.all((jobs.weight > 0) & (jobs.weight <= 1))
        assert np.all(jobs.deadline > 0)
        assert jobs.step_instants.shape == (generator.jobs, generator.steps)
        assert np.all(np.diff(jobs.step_instants) > 0)
        assert np.all(np.diff(jobs.step_heights) > 0)
        if generator.whole:
            assert np.all(jobs.least == np.round(jobs.least))


def test_same_seed_same_jobs() -> None:
    """The jobs follow from the state of the random generator alone."""
    one, same, other = (FlexGenerator().draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    for name in ("work", "least", "most", "weight", "deadline", "step_instants"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert name == "most" or not np.array_equal(getattr(one, name), getattr(other, name))


def test_slack_changes_only_min_shares() -> None:
    """Experiments of one seed along the axis of Fig. 5(a) have the same jobs."""
    little, much = (
        FlexGenerator(slack=slack).draw(np.random.default_rng(5)) for slack in (0.2, 0.8)
    )
    assert np.array_equal(little.work, much.work)
    assert np.array_equal(little.deadline, much.deadline)
    assert np.all(little.least > much.least)


def test_small_and_large_jobs_are_as_far_apart_as_their_means() -> None:
    """Eight of ten are small; a large one is ten times a small one, deviations are a third."""
    small, large = [], []
    for jobs in drawn(FlexGenerator()):
        by_size = np.sort(jobs.work)
        small += list(by_size[:8] / by_size[:8].mean())
        large.append(by_size[8:].mean() / by_size[:8].mean())
    assert np.mean(large) == pytest.approx(10, rel=0.08)
    # By the mean of these eight the deviation is a little less than a third.
    assert np.std(small) == pytest.approx(1 / 3 * np.sqrt(7 / 8), rel=0.08)


def test_min_shares_leave_the_slack_on_average() -> None:
    """75 % of the slots are slack on average; a min share deviates by a third."""
    least = np.concatenate([jobs.least for jobs in drawn(FlexGenerator(slack=0.75))])
    assert least.mean() == pytest.approx(2.5, rel=0.03)
    assert least.std() == pytest.approx(2.5 / 3, rel=0.06)


def test_large_jobs_arrive_anywhere() -> None:
    """The order of arrival is random: the largest job is as likely to be first as last."""
    places = [int(np.argmax(jobs.work)) for jobs in drawn(FlexGenerator(), 400)]
    assert np.mean(places) == pytest.approx(4.5, abs=0.5)
    assert set(places) == set(range(10))


def test_deadlines_and_weights_are_uniform() -> None:
    """Deadlines reach up to the time that all jobs take on all slots, weights up to 1."""
    jobs = list(drawn(FlexGenerator(work_total=5_000, deadline_most=2)))
    deadlines = np.concatenate([j.deadline for j in jobs])
    assert deadlines.max() == pytest.approx(100, rel=0.01)
    assert deadlines.mean() == pytest.approx(50, rel=0.03)
    assert np.concatenate([j.weight for j in jobs]).mean() == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"jobs": 0}, "jobs is 0; give at least 1"),
        ({"slots": 0}, "slots is 0"),
        ({"small": 1.5}, "small is 1.5; give a share from 0 to 1"),
        ({"slack": 0.0}, "slack is 0.0; give a share between 0 and 1"),
        ({"tasks_total": float("nan")}, "tasks_total is nan; give a number > 0"),
        ({"work_total": -1.0}, "work_total is -1.0"),
        ({"steps": 0}, "steps is 0"),
    ],
)
def test_invalid_parameters_are_refused(parameters: dict[str, float], message: str) -> None:
    """The message names the parameter, its value and what it may be."""
    with pytest.raises(InputError, match=message):
        FlexGenerator(**parameters)
