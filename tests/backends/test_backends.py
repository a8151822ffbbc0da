"""The same scenarios on every backend: simulated, and in worker processes of this machine.

A scenario has jobs and failures of tasks. A stage runs it on its backend; the loop, the
state, the scheduler and the assertions are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.events import TaskEnded, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log, LogFile, read_log
from slotwise.core.pools import Pool
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Calls
from slotwise.policy.scheduler import QUEUEINGS

SLOTS = 2
WORK = 0.01
"""The seconds of a normal task."""

OF_ASSIGNERS = {
    "simulated": ("test_backends", "test_gang", "test_wide"),
    "live": ("test_gang",),
}
"""The modules that also run with the assigner flow by default."""

Place = tuple[str, str, int]
Slots = int | Mapping[str, int]


@dataclass(frozen=True)
class Trouble:
    """The first `times` attempts of a task fail, or kill the process that they run in."""

    times: int
    kills: bool = False


class Stage(Protocol):
    """A backend that runs scenarios."""

    def __call__(
        self,
        jobs: Sequence[Job],
        troubles: Mapping[Place, Trouble] | None = None,
        pools: Sequence[Pool] = (),
        name: str = "fair",
        attempts_max: int = 4,
        slots: Slots = SLOTS,
    ) -> Play:
        """Run a scenario. Its result."""
        ...


@dataclass(frozen=True)
class Play:
    """The result of a scenario; `calls` counts how often each task was really begun."""

    log: Log
    completed: Mapping[str, float]
    failed: Mapping[str, str]
    results: Mapping[str, object] = field(default_factory=dict)
    begun: Counter[Place] | None = None

    def events(self, kind: type) -> list[object]:
        """All events of a kind."""
        return [e for turn in self.log.turns for e in turn.events if isinstance(e, kind)]

    def decisions(self, kind: type) -> list[object]:
        """All decisions of a kind."""
        return [d for turn in self.log.turns for d in turn.decisions if isinstance(d, kind)]


@pytest.fixture(params=["simulated", "live", "simulated-flow", "live-flow"])
def stage(
    request: pytest.FixtureRequest, watched: Callable[..., object], tmp_path: Path
) -> Stage:
    """Each test that uses a stage runs on every backend, with two assigners.

    By default `flow` runs only the tests of what every assigner decides, and on processes only
    those of gangs.
    """
    backend, _, assigner = request.param.partition("-")
    assigner = assigner or "greedy"
    is_slow = request.config.getoption("--slow")
    if assigner == "flow" and not is_slow and request.path.stem not in OF_ASSIGNERS[backend]:
        pytest.skip("slow; run with --slow")
    if backend == "simulated":
        return Simulated(watched, assigner)
    return Live(watched, tmp_path, assigner)


@dataclass(frozen=True)
class Simulated:
    """Failures are faults of the simulation."""

    watched: Callable[..., object]
    assigner: str = "greedy"

    def __call__(
        self,
        jobs: Sequence[Job],
        troubles: Mapping[Place, Trouble] | None = None,
        pools: Sequence[Pool] = (),
        name: str = "fair",
        attempts_max: int = 4,
        slots: Slots = SLOTS,
    ) -> Play:
        """Run it on the simulated backend."""

        def fault(launch: Launch) -> Fault | None:
            trouble = (troubles or {}).get((*launch.phase, launch.task))
            if trouble is None or launch.attempt > trouble.times:
                return None
            return Fault(f"no luck, {launch.attempt}", after=0.1, lost=trouble.kills)

        cluster = LocalBackend.cluster(slots)
        backend = SimulatedBackend(cluster, jobs, Simulation(fault=fault))
        watch = self.watched(
            backend,
            jobs,
            cluster,
            pools,
            name,
            assigner=assigner_of(name, self.assigner),
            attempts_max=attempts_max,
            epoch_seconds=0.05,
        )
        return Play(watch.log, watch.state.completed, watch.state.failed)


@dataclass(frozen=True)
class Live:
    """Failures are raised or caused by the function that a worker process calls."""

    watched: Callable[..., object]
    folder: Path
    assigner: str = "greedy"

    def __call__(
        self,
        jobs: Sequence[Job],
        troubles: Mapping[Place, Trouble] | None = None,
        pools: Sequence[Pool] = (),
        name: str = "fair",
        attempts_max: int = 4,
        slots: Slots = SLOTS,
    ) -> Play:
        """Run it in real time."""
        executions = [
            Calls(
                job,
                {
                    phase.name: body(job.id, phase, str(self.folder), troubles or {})
                    for phase in job.phases
                },
            )
            for job in jobs
        ]
        cluster = LocalBackend.cluster(slots)
        with LocalBackend(executions, slots) as backend:
            watch = self.watched(
                backend,
                jobs,
                cluster,
                pools,
                name,
                assigner=assigner_of(name, self.assigner),
                attempts_max=attempts_max,
                epoch_seconds=0.05,
                backend_name="live",
            )
        begun: Counter[Place] = Counter()
        for mark in self.folder.glob("begun-*"):
            _, job_id, phase_name, task, _ = mark.name.split("-")
            begun[job_id, phase_name, int(task)] += 1
        return Play(
            watch.log,
            watch.state.completed,
            watch.state.failed,
            {execution.job.id: execution.results for execution in executions},
            begun,
        )


def assigner_of(name: str, assigner: str) -> str:
    """The assigner; schedulers with queues of hosts place tasks themselves."""
    return "greedy" if name in QUEUEINGS else assigner


def body(
    job: str, phase: Phase, folder: str, troubles: Mapping[Place, Trouble]
) -> Callable[[int], int]:
    """The function of each task: it leaves a mark, then works or fails."""
    name = phase.name
    work = [phase.tasks.work_of(task) for task in range(phase.tasks.count)]
    trouble = {
        place[2]: (one.times, one.kills)
        for place, one in troubles.items()
        if place[:2] == (job, name)
    }

    def work_on(task: int) -> int:
        import os
        import signal
        import time

        stem = f"begun-{job}-{name}-{task}-"
        attempt = 1 + sum(mark.startswith(stem) for mark in os.listdir(folder))
        with open(os.path.join(folder, f"{stem}{attempt}"), "w"):
            pass
        times, kills = trouble.get(task, (0, False))
        if attempt <= times:
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"no luck, {attempt}")
        time.sleep(work[task])
        return task * task

    return work_on


def job(name: str, count: int = 4, work: float = WORK, **rest: object) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("map", Tasks(count, work)),), **rest)


def chain(name: str) -> Job:
    """Four maps, then two reduces, then one end."""
    return Job(
        name,
        (
            Phase("map", Tasks(4, WORK)),
            Phase("reduce", Tasks(2, WORK), after=frozenset({"map"})),
            Phase("end", Tasks(1, WORK), after=frozenset({"reduce"})),
        ),
    )


@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
def test_all_jobs_are_done_each_task_once(stage: Stage, name: str) -> None:
    """Three chains and a job that arrives later, under each scheduler."""
    jobs = [*(chain(f"j{n}") for n in range(3)), job("late", 3, arrival=0.08)]
    play = stage(jobs, name=name)
    assert play.completed.keys() == {"j0", "j1", "j2", "late"}
    assert not play.failed
    done = Counter((*e.phase, e.task) for e in play.events(TaskFinished))
    assert set(done.values()) == {1}
    assert len(done) == 3 * 7 + 3
    if play.begun is not None:
        assert play.begun == done
        assert play.results["j1"] == {
            "map": {0: 0, 1: 1, 2: 4, 3: 9},
            "reduce": {0: 0, 1: 1},
            "end": {0: 0},
        }


def test_a_job_of_three_phases_gets_as_many_slots_as_a_job_of_one(stage: Stage) -> None:
    """Both come while a job holds all four slots; of the next four each job gets two."""
    phases = tuple(Phase(f"p{n}", Tasks(4, WORK)) for n in range(3))
    busy = job("busy", 4, work=1.2)  # All workers have begun before the others come.
    jobs = [busy, Job("three", phases, arrival=0.5), job("one", 12, arrival=0.5)]
    play = stage(jobs, slots=4)
    order = [launch.phase.job for launch in play.decisions(Launch)]
    assert order[:4] == ["busy"] * 4
    assert Counter(order[4:8]) == {"three": 2, "one": 2}


def test_a_fifo_pool_serves_the_job_of_high_priority_first(stage: Stage) -> None:
    """Both jobs of the pool lack slots when the job of another pool ends."""
    first = job("first", 1, arrival=0.02, pool="f")
    urgent = job("urgent", 2, arrival=0.04, pool="f", priority="very_high")
    pools = [Pool("g"), Pool("f", weight=9.0, policy="fifo")]
    play = stage([job("busy", 2, work=0.3, pool="g"), first, urgent], pools=pools)
    order = [launch.phase.job for launch in play.decisions(Launch)]
    assert order == ["busy", "busy", "urgent", "urgent", "first"]


def test_phases_wait_for_those_before_them(stage: Stage) -> None:
    """No reduce begins before the last map ended, no end before the last reduce."""
    play = stage([chain("a"), chain("b")])
    left = {PhaseId(name, p.name): p.tasks.count for name in "ab" for p in chain(name).phases}
    before = {p.name: p.after for p in chain("a").phases}
    for turn in play.log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                left[event.phase] -= 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                job_id, phase = decision.phase
                assert all(left[PhaseId(job_id, other)] == 0 for other in before[phase])


def test_jobs_wait_for_jobs_and_tasks_for_tasks(stage: Stage) -> None:
    """A diamond with arrays; what waits for a failed job is cancelled, or runs anyway."""
    jobs = [
        job("top", 2),
        job("left", 3, after=["top"]),
        job("right", 3, after_each=["left"]),
        job("end", 1, after=["left", "right"]),
        job("bad", 1, after=["top"]),
        job("never", 1, after=["bad"]),
        job("always", 1, after=["bad"], after_failed="run"),
    ]
    play = stage(jobs, {("bad", "map", 0): Trouble(99)}, name="flex")
    assert play.completed.keys() == {"top", "left", "right", "end", "always"}
    assert play.failed.keys() == {"bad", "never"}
    seen: list[str] = []
    for turn in play.log.turns:
        seen += [f"{e.phase.job} {e.task}" for e in turn.events if isinstance(e, TaskFinished)]
        for launch in (one for one in turn.decisions if isinstance(one, Launch)):
            name, done = launch.phase.job, Counter(one.split()[0] for one in seen)
            assert name == "top" or done["top"] == 2
            assert name != "right" or f"left {launch.task}" in seen
            assert name != "end" or done["left"] == done["right"] == 3
    assert replay_log(play.log).is_identical


def test_a_failed_task_is_retried(stage: Stage) -> None:
    """Two failures, then it succeeds; its job is done after three attempts."""
    play = stage([job("a"), job("b")], {("a", "map", 1): Trouble(2)})
    assert play.completed.keys() == {"a", "b"}
    failures = play.events(TaskFailed)
    assert [(f.phase, f.task, f.attempt, f.lost) for f in failures] == [
        (PhaseId("a", "map"), 1, 1, False),
        (PhaseId("a", "map"), 1, 2, False),
    ]
    assert all(f"no luck, {n}" in f.reason for n, f in enumerate(failures, 1))
    if play.begun is not None:
        assert play.begun["a", "map", 1] == 3


def test_a_task_that_always_fails_ends_its_job_and_no_other(stage: Stage) -> None:
    """After the third of three attempts the job is given up with the last reason."""
    play = stage(
        [job("bad", 8), chain("good"), job("fine")],
        {("bad", "map", 0): Trouble(99)},
        attempts_max=3,
    )
    assert play.completed.keys() == {"good", "fine"}
    assert play.failed.keys() == {"bad"}
    assert "no luck, 3" in play.failed["bad"]
    assert len([f for f in play.events(TaskFailed) if f.task == 0]) == 3
    (given_up,) = play.decisions(GiveUp)
    assert given_up.job == "bad"
    assert MetricsCollector.of_log(play.log).outcome().failed == play.failed


def test_running_tasks_of_a_failed_job_are_stopped(stage: Stage) -> None:
    """One task fails while the other would take ten minutes: it is killed, b continues."""
    bad = Job("bad", (Phase("map", Tasks(2, (600.0, WORK))),))
    play = stage([bad, job("b", arrival=0.02)], {("bad", "map", 1): Trouble(1)}, attempts_max=1)
    assert play.log.turns[-1].now < 600.0
    assert play.failed.keys() == {"bad"}
    assert play.completed.keys() == {"b"}
    (stopped,) = play.decisions(Preempt)
    (killed,) = play.events(TaskKilled)
    assert (stopped.phase, stopped.task, stopped.attempt) == (PhaseId("bad", "map"), 0, 1)
    assert (killed.phase, killed.task, killed.attempt) == (PhaseId("bad", "map"), 0, 1)


def test_a_slot_that_dies_costs_one_attempt(stage: Stage) -> None:
    """The process under a task is killed, more often than a task may fail: it is repeated."""
    play = stage(
        [job("a"), job("b")], {("a", "map", 2): Trouble(3, kills=True)}, attempts_max=2
    )
    assert play.completed.keys() == {"a", "b"}
    lost = play.events(TaskFailed)
    assert [(f.phase, f.task, f.attempt, f.lost) for f in lost] == [
        (PhaseId("a", "map"), 2, n, True) for n in (1, 2, 3)
    ]
    assert len(play.events(TaskFinished)) == 8


def test_max_shares_hold_at_all_times(stage: Stage) -> None:
    """A phase limited to one slot and a pool limited to one never run two tasks at once."""
    lone = Job("lone", (Phase("map", Tasks(5, WORK), slots_max=1),))
    jobs = [lone, job("p1", 3, pool="p"), job("p2", 3, pool="p")]
    play = stage(jobs, pools=[Pool("p", 5.0, slots_max={"task": 1})])
    owner = {"lone": "lone", "p1": "p", "p2": "p"}
    running: Counter[str] = Counter()
    for turn in play.log.turns:
        for event in turn.events:
            if isinstance(event, TaskEnded):
                running[owner[event.phase.job]] -= 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                running[owner[decision.phase.job]] += 1
        assert max(running.values(), default=0) <= 1
    assert play.completed.keys() == {"lone", "p1", "p2"}


@pytest.mark.parametrize("works", [(WORK, WORK), (WORK, 2 * WORK)])
def test_jobs_of_one_instant_are_served_in_the_order_in_which_they_were_given(
    stage: Stage, works: tuple[float, float]
) -> None:
    """FIFO without arrivals: c, a, b, as given.

    With the longer task of c, the second task of a and the first of b start at one instant, in
    either order.
    """
    jobs = [Job("c", (Phase("map", Tasks(2, works)),)), job("a", 2), job("b", 2)]
    play = stage(jobs, name="fifo")
    started = []
    for turn in play.log.turns:
        of_turn = [d.phase.job for d in turn.decisions if isinstance(d, Launch)]
        started += sorted(of_turn, key="cab".index)
    assert started == list("ccaabb")


@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
def test_the_log_replays_identically(stage: Stage, name: str) -> None:
    """Failures, losses, a job given up and late arrivals: the log explains every decision."""
    troubles = {
        ("a", "map", 0): Trouble(1),
        ("b", "map", 1): Trouble(1, kills=True),
        ("bad", "map", 3): Trouble(99),
    }
    jobs = [chain("a"), job("b", 5), job("bad"), job("late", arrival=0.05)]
    play = stage(jobs, troubles, name=name, attempts_max=2)
    found = replay_log(play.log)
    assert found.is_identical, found.difference
    assert found.turns == len(play.log.turns)
    assert play.failed.keys() == {"bad"}


def test_no_value_is_below_its_bound(stage: Stage) -> None:
    """The measured value is never below the lower bound."""
    outcome = MetricsCollector.of_log(
        stage([chain("a"), job("b"), job("c", arrival=0.03)]).log
    ).outcome()
    assert 0 < outcome.bound <= outcome.metrics["value"]
    assert 0 < outcome.metrics["utilisation"] <= 1


def test_a_log_file_of_either_backend_is_read_back(stage: Stage, tmp_path: Path) -> None:
    """The log on disk replays like the log in memory."""
    log = stage([chain("a")]).log
    path = tmp_path / "run.jsonl"
    with LogFile(path, log.header) as record:
        for turn in log.turns:
            record(turn.now, turn.events, turn.decisions)
    again = read_log(path)
    assert again.header.backend in ("live", "simulated")
    assert replay_log(again).is_identical
