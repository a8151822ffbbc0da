"""Outputs of done tasks that are lost, under all schedulers: the tasks are done again.

State and scheduler are watched at every single step (see tests/conftest.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.test_outages import Case, cases
from slotwise.core.events import OutputLost, TaskFinished
from slotwise.core.job import Phase, Shuffle, Tasks
from slotwise.core.log import Log
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from tiers import examples


@dataclass(frozen=True)
class Loss:
    """The outputs of some attempts are lost, chosen by their numbers; not for ever."""

    seconds: float
    every: int
    attempts: int = 3

    def __call__(self, event: TaskFinished) -> float | None:
        """The same ones each time."""
        chosen = (event.task + event.attempt) % self.every == 0
        return self.seconds if chosen and event.attempt <= self.attempts else None


def split(case: Case) -> Case:
    """The same case with copying as a phase that the reduces continue."""
    shuffle = Shuffle(slow_start=0.4, split=True)
    cluster = shuffle.cluster(case.cluster)
    plain = (
        replace(j, phases=tuple(replace(p, slow_start=1.0) for p in j.phases))
        for j in case.jobs
    )
    return replace(
        case, jobs=tuple(shuffle.job(job, cluster) for job in plain), cluster=cluster
    )


@st.composite
def lossy(draw: st.DrawFn) -> Case:
    """A small cluster that forgets. Some jobs have a third phase, or a phase that copies."""
    case = draw(cases())
    if case.name != "dmrs" and draw(st.booleans()):
        case = split(case)
    if draw(st.booleans()):
        last = Phase("last", Tasks(2, 0.5), "map", frozenset({"map", "reduce"}))
        jobs = tuple(replace(job, phases=(*job.phases, last)) for job in case.jobs)
        case = replace(case, jobs=jobs)
    loss = Loss(draw(st.sampled_from([0.0, 0.25, 1.0, 3.0])), draw(st.integers(1, 3)))
    outages = draw(st.sampled_from([(), case.simulation.outages]))
    return replace(case, simulation=replace(case.simulation, loss=loss, outages=outages))


@pytest.fixture(scope="session")
def run_case(simulated: Callable[..., object]) -> Callable[[Case], Any]:
    """Runs a case on the simulated backend, with checks."""

    def run(case: Case) -> Any:
        cluster, truth, name = case.cluster, case.simulation, case.name
        options: dict[str, object] = {"parameters": truth.troubles(cluster, cluster)}
        if name == "delay":
            name, options = "fair", options | {"assigner": "delay", "waits": (0.3, 0.6)}
        return simulated(case.jobs, cluster, case.pools, name, truth, **options)

    return run


@given(lossy())
@settings(max_examples=examples(8, slow=1000))
def test_what_is_lost_is_done_again(run_case: Callable[[Case], Any], case: Case) -> None:
    """All jobs are done; each task succeeds once more for each loss; replay is identical."""
    watch = run_case(case)
    log: Log = watch.log
    assert watch.state.completed.keys() == {job.id for job in case.jobs}
    done: Counter[object] = Counter()
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                done[event.phase, event.task] += 1
            elif isinstance(event, OutputLost):
                for task in event.tasks:
                    done[event.phase, task] -= 1
                    assert done[event.phase, task] == 0, (
                        "only the output of a done task is lost"
                    )
    assert set(done.values()) == {1}
    assert sum(done.values()) == sum(p.tasks.count for job in case.jobs for p in job.phases)
    assert replay_log(log).is_identical
    outcome = MetricsCollector.of_log(log).outcome()
    assert outcome.is_over
    assert outcome.bound <= outcome.metrics["value"] * (1 + 1e-9)
