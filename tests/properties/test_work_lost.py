"""The work that a meter counts is never more than was needed, whatever output is lost."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch, Locality
from slotwise.core.events import Event, JobArrived, OutputLost, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header
from slotwise.insight.metrics import MetricsCollector
from tiers import examples

TASKS = 3
PHASE = PhaseId("j", "map")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["done", "kept", "lost", "done and lost"]),
        st.integers(0, TASKS - 1),
        st.sampled_from([0.5, 1.0, 3.0]),
    ),
    max_size=12,
)
"""What happens to which task, and its seconds."""


@given(STEPS, st.integers(1, 3))
@settings(max_examples=examples(200, slow=5000))
def test_work_that_is_lost_is_not_counted_again(
    steps: list[tuple[str, int, float]], slots: int
) -> None:
    """Against a count for each task. Without losses both are equal."""
    meter = MetricsCollector(
        Header(
            backend="simulated",
            scheduler={"name": "fair"},
            objective={"penalty": "response", "aggregate": "sum"},
            cluster=Cluster.of_slots(TASKS * slots),
            pools=(),
            jobs_expected=1,
        )
    )
    reduces = Phase("reduce", Tasks(1), after=frozenset({"map"}))
    job = Job("j", (Phase("map", Tasks(TASKS), slots=slots), reduces))
    meter(0.0, [JobArrived(0.0, job)], [])
    now, attempts, work = 0.0, [0] * TASKS, defaultdict[int, float](float)
    done: set[int] = set()
    for what, task, seconds in steps:
        events: list[Event] = []
        if what != "lost" and task not in done:
            attempts[task] += 1
            launch = Launch(PHASE, task, attempts[task], "cluster", Locality.NODE)
            started: list[Decision] = [launch]
            meter(now, [], started)
            now += seconds
            work[task] += seconds * slots
            if what == "kept":
                events.append(TaskKilled(now, PHASE, task, attempts[task], seconds))
            else:
                events.append(TaskFinished(now, PHASE, task, attempts[task], seconds))
                done.add(task)
        if "lost" in what and task in done:
            events.append(OutputLost(now, PHASE, (task,)))
            done.remove(task)
            work[task] = 0.0
        meter(now, events, [])
    needed = sum(work.values())
    assert meter._work[PHASE] <= needed + 1e-9
    if not any("lost" in what for what, *_ in steps):
        assert meter._work[PHASE] == needed
