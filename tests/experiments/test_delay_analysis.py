"""The analysis of delay scheduling: its numbers, and agreement with a simulated cluster."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slotwise
from experiments.slides.delay_analysis import (
    expected_gain,
    expected_wait,
    locality_of_job,
    locality_of_job_least,
    locality_of_launch,
    part_with_data,
    pays_to_wait,
    skips_for,
    wait_for_skips,
)
from slotwise import Block, Cluster, Host, Job, Phase, Pool, Tasks, Workload
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputError
from tiers import examples

NODES, TASKS, REPLICAS = 100, 20, 3
STANDARD_ERRORS = 4.0
"""How far from its mean a sample may lie: farther, once in 30,000 times."""


def test_more_skipped_offers_make_more_launches_local() -> None:
    """Data on a tenth of the nodes: 65 % after 10 skips, 98.5 % after 40."""
    assert locality_of_launch(0.1, 10) == pytest.approx(1 - 0.9**10)
    assert locality_of_launch(0.1, 10) == pytest.approx(0.65, abs=0.005)
    assert locality_of_launch(0.1, 40) == pytest.approx(0.985, abs=0.0005)


def test_the_part_of_the_nodes_with_data() -> None:
    """One block of three copies on 100 nodes; as many tasks as nodes are everywhere."""
    assert part_with_data(1, 100) == pytest.approx(1 - 0.99**3)
    assert part_with_data(100, 100) == part_with_data(250, 100) == 1


def test_twenty_tasks_need_less_than_a_quarter_of_the_nodes_as_skips() -> None:
    """95 % for 20 tasks with 3 copies: 0.231 M skips; with 8 slots a node 2.9 % of a task."""
    assert log(2) / 3 == pytest.approx(0.231, abs=0.0005)
    assert skips_for(0.95, 20, 100_000, 3) == 23_105
    assert skips_for(0.95, 20, 100, 3) == 24
    wait = wait_for_skips(0.23105, nodes=1, slots_per_node=8, task_seconds=1.0)
    assert wait == pytest.approx(0.029, abs=0.0005)


def test_a_job_of_two_tasks_by_hand() -> None:
    """With both left, 2 of 10 nodes have data, with one left 1 of 10; three skips for each."""
    by_hand = ((1 - 0.8**3) + (1 - 0.9**3)) / 2
    assert locality_of_job(2, 3, nodes=10, replicas=1) == pytest.approx(by_hand)


@given(
    tasks=st.integers(1, 500),
    nodes=st.integers(1, 500),
    replicas=st.integers(1, 5),
    wished=st.floats(0, 0.999),
)
def test_the_promised_locality_is_reached(
    tasks: int, nodes: int, replicas: int, wished: float
) -> None:
    """The bound stays below the locality, and reaches what was wished with no skip to spare."""
    skips = skips_for(wished, tasks, nodes, replicas)
    locality = locality_of_job_least(tasks, skips, nodes, replicas)
    assert locality <= locality_of_job(tasks, skips, nodes, replicas) + 1e-12
    assert locality >= wished - 1e-9
    assert skips >= 1
    assert locality_of_job_least(tasks, skips - 1, nodes, replicas) < wished + 1e-9


@pytest.mark.parametrize(
    "skips",
    [24, pytest.param(10, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)],
)
def test_the_runtime_reaches_what_the_analysis_promises(skips: int) -> None:
    """Jobs of 20 tasks in a busy cluster of 100 nodes, with a wait worth this many skips.

    The analysis counts the skips from each launch, so levels restart.

    A wait of D skips begins with one offer that is let pass and ends with one that is taken:
    so the locality lies between the promises of D and of D + 2 skips.
    """
    task_seconds, slots_per_node = 100.0, 2
    wait = wait_for_skips(skips, NODES, slots_per_node, task_seconds)
    seen = _localities_of_jobs(wait, slots_per_node, task_seconds, examples(15, slow=40))
    mean, error = float(seen.mean()), float(seen.std(ddof=1)) / len(seen) ** 0.5
    assert mean >= locality_of_job(TASKS, skips, NODES, REPLICAS) - STANDARD_ERRORS * error
    assert mean <= locality_of_job(TASKS, skips + 2, NODES, REPLICAS) + STANDARD_ERRORS * error


@pytest.mark.slow
def test_without_a_wait_the_runtime_is_as_local_as_its_offers() -> None:
    """Waits of 0 skips: each launch takes the first offer, local with probability p."""
    seen = _localities_of_jobs(
        0.0, slots_per_node=2, task_seconds=100.0, jobs=examples(15, slow=40)
    )
    error = float(seen.std(ddof=1)) / len(seen) ** 0.5
    promised = locality_of_job(TASKS, 1, NODES, REPLICAS)
    assert abs(float(seen.mean()) - promised) <= STANDARD_ERRORS * error


def _localities_of_jobs(
    wait: float, slots_per_node: int, task_seconds: float, jobs: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The part of node-local launches of each of many jobs, which come one after another.

    Another job keeps the cluster busy. Its tasks and theirs end at random (exponentially), so
    every slot is equally likely to come free next. A job that waits is asked first: the pools'
    weights see to that.
    """
    rng = np.random.default_rng(5)
    slots = NODES * slots_per_node
    cluster = Cluster(tuple(Host(f"h{n}", {"task": slots_per_node}) for n in range(NODES)))
    apart = 3 * TASKS * wait / 10 + 4 * task_seconds
    count = int(1.3 * apart * jobs * slots / task_seconds)
    crowd = Job("crowd", (Phase("map", Tasks(count, _lengths(rng, task_seconds, count))),))
    observed = [
        Job(
            f"job-{number}",
            (Phase("map", Tasks(TASKS, _lengths(rng, task_seconds, TASKS), _blocks(rng))),),
            arrival=2 * task_seconds + apart * number,
            pool="observed",
        )
        for number in range(jobs)
    ]
    workload = Workload(
        (crowd, *observed), cluster, pools=(Pool("observed", weight=1e6),), replicas=0
    )
    launches: dict[str, list[Locality]] = {job.id: [] for job in observed}

    def take_down(now: float, events: object, decisions: list[object]) -> None:
        for decision in decisions:
            if isinstance(decision, Launch) and decision.phase.job in launches:
                launches[decision.phase.job].append(decision.locality)

    slotwise.simulate(
        workload,
        "fair",
        assigner="delay",
        waits=(wait, wait),
        levels="restart",
        epoch_seconds=1e6,
        progress=take_down,
    )
    assert all(len(levels) == TASKS for levels in launches.values())
    return np.array(
        [np.mean([level is Locality.NODE for level in levels]) for levels in launches.values()]
    )


def _lengths(rng: np.random.Generator, mean: float, count: int) -> tuple[float, ...]:
    return tuple(rng.exponential(mean, count).tolist())


def _blocks(rng: np.random.Generator) -> tuple[Block, ...]:
    return tuple(
        Block(frozenset(f"h{n}" for n in rng.choice(NODES, REPLICAS, replace=False)))
        for _ in range(TASKS)
    )


@pytest.mark.parametrize(("wait", "local_after", "delay"), [(2, 3, 5), (8, 3, 5), (4, 5, 2)])
def test_the_expected_gain_matches_random_draws(
    wait: float, local_after: float, delay: float
) -> None:
    """Draw when the next local slot comes: within the wait it saves the delay, else nothing.

    Both ways are counted from now on: running elsewhere at once loses the delay; waiting
    in vain loses the delay and the wait.
    """
    rng = np.random.default_rng(11)
    comes = rng.exponential(local_after, 200_000)
    waited = np.minimum(comes, wait)
    gain = delay - waited - np.where(comes <= wait, 0.0, delay)
    for seen, said in (
        (gain, expected_gain(wait, local_after, delay)),
        (waited, expected_wait(wait, local_after)),
    ):
        error = float(seen.std(ddof=1)) / len(seen) ** 0.5
        assert abs(float(seen.mean()) - said) <= STANDARD_ERRORS * error


@given(
    wait=st.floats(0.01, 100),
    longer=st.floats(0.01, 100),
    local_after=st.floats(0.1, 100),
    delay=st.floats(0, 100),
)
def test_when_it_pays_the_longest_wait_is_best(
    wait: float, longer: float, local_after: float, delay: float
) -> None:
    """Where the delay is above the time to a local slot, more waiting gains more."""
    gains = [expected_gain(w, local_after, delay) for w in (0.0, wait, wait + longer, inf)]
    if pays_to_wait(local_after, delay):
        assert gains == sorted(gains)
        assert gains[1] > 0
    else:
        assert gains == sorted(gains, reverse=True)
    assert gains[-1] == pytest.approx(delay - local_after)


def test_invalid_parameters_are_refused() -> None:
    """The message names the value and what to give."""
    with pytest.raises(InputError, match="locality is 1; wish for 0 or more, but less than 1"):
        skips_for(1, 20, 100)
    with pytest.raises(InputError, match="nodes is 0; give at least 1"):
        locality_of_job(20, 5, 0)
    with pytest.raises(InputError, match=r"part is 1.5 and skips 3"):
        locality_of_launch(1.5, 3)
    with pytest.raises(InputError, match="local_after 0"):
        expected_gain(5, 0, 10)
