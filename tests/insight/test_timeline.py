"""Timelines: lanes that never overlap, steps whose area is what attempts really held."""

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Locality
from slotwise.core.events import (
    HostJoined,
    HostLost,
    JobArrived,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.insight.timeline import StepFunction, UnresponsiveSpan, timeline_of
from slotwise.policy.scheduler import make_scheduler

TWO_HOSTS = Cluster((Host("h1", {"map": 2, "reduce": 1}), Host("h2", {"map": 1, "reduce": 1})))


def header(cluster, jobs):
    """The header of a log of nothing yet."""
    objective = {"penalty": "response", "aggregate": "sum"}
    return Header("simulated", {"name": "fair"}, objective, cluster, (), jobs)


def simulated(seed, jobs, name="fair", fault=None, cluster=TWO_HOSTS):
    """The log of a simulated run of some jobs of two phases."""
    rng = Random(seed)
    made = []
    for number in range(jobs):
        before = Phase("map", Tasks(rng.randint(1, 9), 5.0), kind="map")
        after = Phase("reduce", Tasks(2, 3.0), kind="reduce", after=frozenset({"map"}))
        pool = rng.choice(["ads", "web"])
        made.append(Job(f"j{number}", (before, after), 2.0 * number, pool=pool))
    log = Log(header(cluster, jobs))
    backend = SimulatedBackend(cluster, made, Simulation(seed=seed, noise=0.5, fault=fault))
    run(make_scheduler(name, "greedy"), backend, State(cluster), log)
    return log


def sometimes(launch):
    """One attempt in five fails, and one job always does."""
    chance = Random(f"{launch.phase} {launch.task} {launch.attempt}").random()
    if chance < 0.2 or launch.phase.job == "j1":
        return Fault("it broke", after=0.5, lost=chance < 0.1)
    return None


def busy_by_job(log):
    """Slot-seconds of each job, straight from launches and the events that end them."""
    started, busy = {}, defaultdict(float)
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                start = started.pop((event.phase, event.task, event.attempt))
                busy[event.phase.job] += event.at - start
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                started[decision.phase, decision.task, decision.attempt] = turn.now
    assert not started
    return dict(busy)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    jobs=st.integers(1, 8),
    name=st.sampled_from(["fifo", "fair", "flex"]),
    fault=st.sampled_from([None, sometimes]),
)
def test_lanes_never_overlap_and_stay_within_the_slots(seed, jobs, name, fault):
    """Attempts in one lane follow each other, and no lane is beyond the slots of its host."""
    line = timeline_of(simulated(seed, jobs, name, fault))
    of_lane = defaultdict(list)
    for placed in line.attempts:
        assert placed.lane < TWO_HOSTS.by_name[placed.attempt.host].slots[placed.slot_kind]
        of_lane[placed.attempt.host, placed.slot_kind, placed.lane].append(placed.attempt)
    for attempts in of_lane.values():
        for one, other in pairwise(attempts):
            assert one.end <= other.start


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 8))
def test_steps_integrate_to_the_slot_seconds_that_were_held(seed, jobs):
    """By job and by pool, the area is that of launches and endings, failures included."""
    log = simulated(seed, jobs, fault=sometimes)
    line = timeline_of(log)
    busy = busy_by_job(log)
    held = {job: steps.area(0, line.end) for job, steps in line.held_by_job.items()}
    assert held == pytest.approx(busy)
    by_pool = defaultdict(float)
    for job, seconds in busy.items():
        by_pool[line.jobs[job].job.pool] += seconds
    pools = {pool: steps.area(0, line.end) for pool, steps in line.held_by_pool.items()}
    assert pools == pytest.approx(dict(by_pool))


def test_the_same_log_gives_the_same_timeline():
    """Nothing in it depends on the order of sets or of endings."""
    log = simulated(7, 5, fault=sometimes)
    assert timeline_of(log) == timeline_of(log)


def test_an_attempt_takes_the_smallest_free_lane():
    """Of two lanes that are free at its start an attempt takes the first."""
    log = one_phase_log()
    log(0.0, [JobArrived(0.0, JOB)], [launch(0), launch(1)])
    log(2.0, [finished(1, 2.0)], [launch(2)])
    log(4.0, [finished(0, 3.0), finished(2, 4.0)], [launch(3)])
    log(5.0, [finished(3, 5.0)], [])
    lanes = {placed.attempt.task: placed.lane for placed in timeline_of(log).attempts}
    assert lanes == {0: 0, 1: 1, 2: 1, 3: 0}


def test_running_tasks_hold_their_slots_until_the_end_of_the_log():
    """A log that was cut off shows its running attempts as unfinished."""
    log = one_phase_log()
    log(0.0, [JobArrived(0.0, JOB)], [launch(0), launch(1)])
    log(2.0, [finished(1, 2.0)], [])
    line = timeline_of(log)
    assert [placed.attempt.ending for placed in line.attempts] == ["unfinished", "done"]
    assert line.held_by_job["j"].area(0, line.end) == 4.0


def test_a_job_that_was_given_up_ends_at_that_instant():
    """The end of a failed job is the moment when the scheduler gave it up."""
    log = one_phase_log()
    log(0.0, [JobArrived(0.0, JOB)], [launch(0)])
    log(2.0, [TaskFailed(2.0, PHASE, 0, 1, "broke")], [GiveUp("j", "broke")])
    log(7.0, [], [])
    line = timeline_of(log)
    assert line.end_of("j") == 2.0
    assert line.gave_up == {"j": 2.0}


def test_means_of_steps():
    """The mean over a stretch weighs each value by how long it held."""
    steps = StepFunction.of_changes(
        [(1.0, 2.0), (3.0, -1.0), (5.0, -1.0), (4.0, 1.0), (4.0, -1.0)]
    )
    assert steps == StepFunction((1.0, 3.0, 5.0), (2.0, 1.0, 0.0))
    assert steps.means([0.0, 2.0, 4.0, 8.0]) == [1.0, 1.5, 0.25]
    assert StepFunction().means([0.0, 1.0]) == [0.0]


def test_a_log_without_turns_has_an_empty_timeline():
    """Nothing happened: no attempts, no jobs."""
    line = timeline_of(one_phase_log())
    assert (list(line.attempts), dict(line.jobs), line.end) == ([], {}, 0.0)


def test_unresponsive_times_of_several_hosts_may_overlap():
    """Each interval ends when its own host returns; one without a return has no end."""
    log = Log(header(TWO_HOSTS, 0))
    events = [
        HostLost(1.0, "h1"),
        HostLost(2.0, "h2"),
        HostJoined(4.0, "h1"),
        HostLost(5.0, "h1"),
        HostJoined(6.0, "h2"),
        HostJoined(8.0, "h1"),
        HostLost(9.0, "h2"),
    ]
    for event in events:
        log(event.at, (event,), ())
    assert timeline_of(log).unresponsive == (
        UnresponsiveSpan("h1", 1.0, 4.0),
        UnresponsiveSpan("h2", 2.0, 6.0),
        UnresponsiveSpan("h1", 5.0, 8.0),
        UnresponsiveSpan("h2", 9.0, None),
    )


JOB = Job("j", (Phase("map", Tasks(4, 1.0)),))
PHASE = PhaseId("j", "map")


def one_phase_log():
    """An empty log of one host with two slots."""
    return Log(header(Cluster((Host("h", {"task": 2}),)), 1))


def launch(task):
    """The first attempt of a task."""
    return Launch(PHASE, task, 1, "h", Locality.NODE)


def finished(task, at):
    """The end of that attempt."""
    return TaskFinished(at, PHASE, task, 1, 1.0)
