"""LAS and UWFQ on every backend: small jobs pass large ones, and failures change no result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.test_backends import WORK, Stage, Trouble
from properties.test_pools import Case, cases
from slotwise.core.decisions import Reallocate
from slotwise.core.events import TaskFailed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.sessions.session import Session
from tiers import examples

Simulate = Callable[..., object]

NAMES = ("las", "uwfq")
every_name = pytest.mark.parametrize("name", NAMES)


def job(name: str, *counts: int, pool: str = "default", work: float | None = WORK) -> Job:
    """A job of phases with these numbers of tasks, each after the one before."""
    phases = [
        Phase(f"p{n}", Tasks(count, work), after=frozenset({f"p{n - 1}"} if n else ()))
        for n, count in enumerate(counts)
    ]
    return Job(name, tuple(phases), pool=pool)


@every_name
def test_a_small_job_is_complete_before_a_large_one(stage: Stage, name: str) -> None:
    """Three tasks are done before eighty that came first; the same is decided from the log."""
    play = stage([job("large", 80), job("small", 2, 1)], name=name)
    assert play.completed["small"] < play.completed["large"]
    assert replay_log(play.log).is_identical


@every_name
def test_a_task_that_fails_runs_again(stage: Stage, name: str) -> None:
    """Two attempts fail, and both jobs are complete."""
    trouble = {("a", "p0", 1): Trouble(2)}
    play = stage([job("a", 4, 2), job("b", 6)], trouble, name=name)
    assert play.completed.keys() == {"a", "b"}
    assert len(play.events(TaskFailed)) == 2


@every_name
def test_the_max_share_of_a_pool_holds(stage: Stage, name: str) -> None:
    """The tasks of a pool limited to one slot run one after another."""
    pools = [Pool("narrow", slots_max={"task": 1})]
    jobs = [job("a", 4, pool="narrow"), job("b", 3, pool="narrow")]
    play = stage(jobs, pools=pools, name=name)
    shares = [sum(one.slots.values()) for one in play.decisions(Reallocate)]
    assert max(shares) == pytest.approx(1.0)


@settings(max_examples=examples(4, slow=1000))
@given(cases(), st.sampled_from(NAMES))
def test_guarantees_hold_at_every_instant(simulated: Simulate, case: Case, name: str) -> None:
    """Every step is checked; jobs end above the bound; the log explains all decisions."""
    options = {**case.options, "name": name}
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **options
    )
    assert watch.state.completed.keys() | watch.state.failed.keys() == {j.id for j in case.jobs}
    assert replay_log(watch.log).is_identical
    outcome = MetricsCollector.of_log(watch.log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value + 1e-9


@every_name
def test_calls_of_unknown_work_pass_many_others(name: str) -> None:
    """Without stated work, two calls are done before forty that came first."""
    ended: list[str] = []
    with Session(2, name) as session, session.executor() as large, session.executor() as small:
        futures = [large.submit(sleep, 0.05) for _ in range(40)]
        futures += [small.submit(sleep, 0.01) for _ in range(2)]
        for number, future in enumerate(futures):
            label = "large" if number < 40 else "small"
            future.add_done_callback(lambda _, label=label: ended.append(label))
        wait(futures)
    assert ended[-1] == "large"
    assert "small" in ended[:30]
