"""Tasks that an earlier run of the scheduler has begun and that run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Locality, Preempt
from slotwise.core.events import (
    Event,
    HostDrained,
    JobArrived,
    JobsClosed,
    TaskAdopted,
    TaskFinished,
    launches,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, LogFile, read_log
from slotwise.core.loop import initial_state, run
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.resources import GPU, MEMORY, UNIT, requested
from slotwise.core.state import State
from slotwise.insight.explain import explain
from slotwise.insight.replay import replay_log
from slotwise.insight.timeline import timeline_of
from slotwise.policy.scheduler import make_scheduler

PHASE = PhaseId("j", "command")


def job(name: str = "j", tasks: int = 2, pool: str = "default", **about: object) -> Job:
    """A job of one phase."""
    return Job(name, (Phase("command", Tasks(tasks, 1.0), **about),), pool=pool)  # type: ignore[arg-type]


def adopted(task: int = 0, host: str = "h", attempt: int = 1, *devices: int) -> TaskAdopted:
    """A task of the job j that runs on a host."""
    return TaskAdopted(0.0, PHASE, task, attempt, host, devices)


needs = st.sampled_from([{}, {"memory": "1GiB"}, {"memory": "2GiB"}, {"gpu": 1}])
jobs = st.lists(
    st.tuples(
        st.integers(1, 4), st.sampled_from("abc"), st.integers(1, 2), needs, st.booleans()
    ),
    min_size=1,
    max_size=6,
)
hosts = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2)), max_size=3)


@given(jobs, hosts)
def test_adopted_tasks_count_as_launched_ones(
    given_jobs: list[tuple[int, str, int, dict[str, object], bool]],
    given_hosts: list[tuple[int, int, int]],
) -> None:
    """The same attempts run, and the same is free of each host, pool and resource."""
    cluster = Cluster(
        tuple(
            Host(f"h{n}", {ANY_KIND: slots}, resources={MEMORY: memory << 30, GPU: gpus * UNIT})
            for n, (slots, memory, gpus) in enumerate([*given_hosts, (4, 8, 1)])
        )
    )
    pools = (Pool("a", slots_min={ANY_KIND: 1}), Pool("b", slots_max={ANY_KIND: 2}), Pool("c"))
    arrivals = []
    for n, (tasks, pool, width, request, is_last) in enumerate(given_jobs):
        about = {"slots": width, "resources": requested("j", request)}
        after = {"after": frozenset({"j0"})} if is_last and n else {}
        phase = Phase("command", Tasks(tasks, 1.0), **about)  # type: ignore[arg-type]
        arrivals.append(JobArrived(0.0, Job(f"j{n}", (phase,), pool=pool, **after)))
    states = [State(cluster, pools), State(cluster, pools)]
    for state in states:
        state.at(0.0)
        for event in arrivals:
            state.apply(event)
    scheduler, launched = make_scheduler("fair"), []
    while decisions := scheduler.decide(states[0]):
        for decision in decisions:
            states[0].apply(decision)
        launched += [one for one in decisions if isinstance(one, Launch)]
    for one in launched:
        event = TaskAdopted(0.0, one.phase, one.task, one.attempt, one.host, one.devices)
        assert event.launch == one
        states[1].apply(event)
    assert set(states[1].adopted.values()) <= {True}
    expected, found = (_seen(state) for state in states)
    assert found == expected


def _seen(state: State) -> object:
    state.check()
    phases = [phase for phases in state.jobs_left() for phase in phases]
    return (
        dict(state.free(ANY_KIND)),
        {host.name: state.spare.free(host.name) for host in state.cluster.hosts},
        [(p.id, p.launches, p.running, p.pending, p.is_ready) for p in phases],
        [(share.key, share.running) for share in state.shares(ANY_KIND)],
    )


@pytest.mark.parametrize(
    "event",
    [
        adopted(host="other"),
        adopted(host="left"),
        adopted(host="full"),
        adopted(host="small"),
        adopted(attempt=2),
        adopted(0, "h", 1, 0),
        TaskAdopted(0.0, PhaseId("unknown", "command"), 0, 1, "h"),
        TaskAdopted(0.0, PhaseId("waits", "command"), 0, 1, "h"),
        TaskAdopted(0.0, PhaseId("gang", "command"), 0, 1, "h"),
    ],
)
def test_a_task_stays_pending_where_there_is_no_room(event: TaskAdopted) -> None:
    """It changes nothing: it is launched later, like any other task."""
    big = {MEMORY: 4 << 30}
    cluster = Cluster(
        (
            Host("h", {ANY_KIND: 2}, resources=big),
            Host("left", {ANY_KIND: 2}, resources=big),
            Host("full", {ANY_KIND: 1}, resources=big),
            Host("small", {ANY_KIND: 2}, resources={MEMORY: 1 << 30}),
        )
    )
    state = State(cluster)
    state.at(0.0)
    state.apply(JobArrived(0.0, job(resources=requested("j", {"memory": "2GiB"}))))
    state.apply(JobArrived(0.0, job("other")))
    state.apply(JobArrived(0.0, job("gang", gang=True)))
    waits = Job("waits", job().phases, after=frozenset({"other"}))
    state.apply(JobArrived(0.0, waits))
    state.apply(Launch(PhaseId("other", "command"), 0, 1, "full", Locality.NODE))
    state.apply(HostDrained(0.0, "left"))
    before = _seen(state)
    state.apply(event)
    assert state.adopted == {event: False}
    assert _seen(state) == before


def test_the_limit_of_a_pool_does_not_end_what_runs() -> None:
    """Its limit was lowered between the runs; nothing else begins in it."""
    state = State(Cluster((Host("h", {ANY_KIND: 4}),)), [Pool("p", slots_max={ANY_KIND: 1})])
    state.at(0.0)
    state.apply(JobArrived(0.0, job(tasks=3, pool="p")))
    for task in (0, 1):
        state.apply(adopted(task))
    state.check()
    phase = state.phase(PHASE)
    assert (phase.running, phase.may_launch) == (2, False)
    state.apply(TaskFinished(0.0, PHASE, 0, 1, 1.0))
    state.check()
    assert not phase.may_launch


def test_the_time_before_the_adoption_is_work_of_the_task() -> None:
    """A task of which 9 s are done ends after 1 s; the other one is expected to take 10 s."""
    state = State(Cluster((Host("h", {ANY_KIND: 4}),)))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("command", Tasks(2)),))))
    state.apply(TaskAdopted(0.0, PHASE, 0, 1, "h", kept=9.0))
    state.at(1.0).apply(TaskFinished(1.0, PHASE, 0, 1, 1.0))
    state.check()
    assert state.phase(PHASE).work_left(1.0) == 10.0


class Adopting:
    """A backend on which two tasks of a job run already, one of them on a host that is gone.

    Attempts end a second after they began.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.performed: list[Launch] = []
        places = adopted(1), adopted(2, "gone")
        self._next: list[Event] = [JobArrived(0.0, job(tasks=3)), *places, JobsClosed(0.0)]

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """See `Performer`."""
        assert isinstance(decision, Launch)
        self.performed.append(decision)
        key = decision.phase, decision.task, decision.attempt
        self._next.append(TaskFinished(self.now + 1.0, *key, 1.0))

    def wait(self, until: float | None) -> Sequence[Event]:
        """See `Backend`."""
        events, self._next = self._next, []
        self.now = max(getattr(event, "at", 0.0) for event in events)
        return events


def test_what_was_adopted_is_in_the_log_and_in_all_that_is_made_of_it(tmp_path: Path) -> None:
    """The adopted attempt begins first. Its task is not launched; the other one is."""
    header = Header(
        backend="live",
        scheduler={"name": "fair"},
        objective={"penalty": "stretch", "aggregate": "sum"},
        cluster=Cluster((Host("h", {ANY_KIND: 4}),)),
        pools=(),
        jobs_expected=1,
    )
    backend, path = Adopting(), tmp_path / "run.jsonl"
    scheduler = make_scheduler("fair", objective=Objective("stretch", "sum"))
    with LogFile(path, header) as record:
        run(scheduler, backend, initial_state(header), record)
    assert [one.task for one in backend.performed] == [1, 0, 2]
    assert '{"is":"TaskAdopted","at":0.0,"phase":["j","command"],' in path.read_text()
    turns = list(read_log(path).turns)
    assert adopted(1) in turns[0].events
    assert adopted(2, "gone") not in turns[0].events
    assert [one for t in turns for one in launches(t.events, t.decisions)] == backend.performed
    assert replay_log(read_log(path)).is_identical
    attempts = [one.attempt for one in timeline_of(read_log(path)).attempts]
    assert sorted((one.task, one.start, one.end) for one in attempts) == [
        (task, 0.0, 1.0) for task in range(3)
    ]
    assert explain(read_log(path), "j", 0.5).phases[0].running == 3
