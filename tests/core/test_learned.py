"""Estimates of phases without finished tasks: sources, bounds, and what decisions use."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slotwise
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.decisions import Launch, Locality
from slotwise.core.estimation import DEFAULT_WORK
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import read_log
from slotwise.core.phase_work import (
    ENOUGH,
    MAX_GROUPS,
    MAX_PENDING,
    Learned,
    Measured,
    OfJob,
    TaskSource,
)
from slotwise.core.state import State
from slotwise.insight.replay import replay_log
from slotwise.policy.claims import SURE, claims_of
from tiers import examples

SOURCE = TaskSource("pool", "", "map")


def learned(
    *seconds: float, source: TaskSource = SOURCE, stated: float | None = None
) -> Learned:
    """What is learned of phases whose tasks took so long."""
    found = Learned(DEFAULT_WORK)
    found.estimate(SOURCE, None, None)  # From now on it keeps all.
    tell(found, *seconds, source=source, stated=stated)
    return found


def tell(
    found: Learned, *seconds: float, source: TaskSource = SOURCE, stated: float | None = None
) -> None:
    """Each in a job of its own."""
    work = DEFAULT_WORK if stated is None else stated
    for one in seconds:
        found.note(Measured(source, None, log(work), stated is not None), one / work)


def test_before_enough_phases_are_measured_the_default_counts() -> None:
    """Four phases tell nothing yet; five do."""
    four, five = learned(*[1.0] * (ENOUGH - 1)), learned(*[1.0] * ENOUGH)
    assert four.estimate(SOURCE, None, None).seconds == DEFAULT_WORK
    assert five.estimate(SOURCE, None, None).seconds < DEFAULT_WORK / 3


def test_an_unseen_phase_is_taken_to_be_like_the_others() -> None:
    """Many of 2 s: it needs about 2 s, and that is certain enough to rank it."""
    found = learned(*[2.0] * 50).estimate(SOURCE, None, None)
    assert found.seconds == pytest.approx(2.0, rel=0.1)
    assert found.log.variance**0.5 < SURE


def test_where_phases_differ_an_unseen_one_is_uncertain() -> None:
    """From 0.02 s to 200 s: the mean is no rank, so it is measured first."""
    found = learned(*[0.02, 0.2, 2.0, 20.0, 200.0] * 10).estimate(SOURCE, None, None)
    assert found.log.variance**0.5 > 2


def test_the_nearest_source_counts_most() -> None:
    """A program is known by its own tasks; another one of the pool by those of the pool."""
    found = learned(*[100.0] * 30, source=TaskSource("other", "", "map"))
    tell(found, *[10.0] * 30)
    tell(found, *[1.0] * 30, source=TaskSource("pool", "grep", "map"))
    grep, pool, other = (
        found.estimate(source, None, None).seconds
        for source in (
            TaskSource("pool", "grep", "map"),
            SOURCE,
            TaskSource("other", "", "map"),
        )
    )
    assert grep == pytest.approx(1.0, rel=0.2)
    assert grep < pool < other
    assert other == pytest.approx(100.0, rel=0.5)


def test_many_phases_of_one_program_tell_little_of_another() -> None:
    """A hundred calls of one function are alike; a first call of another one is measured."""
    grep, sort = (TaskSource("pool", name, "map") for name in ("grep", "sort"))
    found = learned(*[2.0] * 100, source=grep)
    assert found.estimate(grep, None, None).spread < SURE
    assert found.estimate(sort, None, None).spread > SURE


def test_a_program_counts_once_with_its_mean() -> None:
    """Two phases of each of five programs tell as much of others as thirty do."""
    few, many = learned(), learned()
    for number in range(5):
        source = TaskSource("pool", f"program {number}", "map")
        tell(few, *[20.0] * 2, source=source)
        tell(many, *[20.0] * 30, source=source)
    one, other = (found.estimate(SOURCE, None, None).seconds for found in (few, many))
    assert one == pytest.approx(other, rel=1e-9)


def test_one_phase_tells_a_program_where_programs_are_alike_within() -> None:
    """Programs differ by factors of 10; each of them always takes as long."""
    found, sort = learned(), TaskSource("pool", "sort", "map")
    for number in range(8):
        source = TaskSource("pool", f"program {number}", "map")
        tell(found, *[10.0 ** (number % 4 - 1)] * 10, source=source)
    assert found.estimate(sort, None, None).spread > 1
    tell(found, 300.0, source=sort)
    estimate = found.estimate(sort, None, None)
    assert estimate.seconds == pytest.approx(300.0, rel=0.2)


def test_work_that_is_always_as_stated_is_taken_as_stated() -> None:
    """Nothing is learned, and nothing is uncertain."""
    found = learned(*[3.0] * 20, stated=3.0)
    assert found.is_exact
    assert found.estimate(SOURCE, None, log(7.0)).log.variance == 0.0


def test_stated_work_that_was_wrong_either_way_counts_little() -> None:
    """All tasks take 2 s, whatever is stated."""
    found = Learned(DEFAULT_WORK)
    for _ in range(20):
        tell(found, 2.0, stated=20.0)
        tell(found, 2.0, stated=0.2)
    for stated in (20.0, 0.2):
        assert found.estimate(SOURCE, None, log(stated)).seconds == pytest.approx(2.0, rel=0.3)


def test_stated_work_that_is_wrong_by_one_factor_is_corrected_by_it() -> None:
    """Tasks of all lengths take four times the stated time."""
    found = Learned(DEFAULT_WORK)
    for stated in [0.01, 0.1, 1.0, 10.0, 100.0] * 6:
        tell(found, 4 * stated, stated=stated)
    for stated in (0.1, 10.0):
        estimate = found.estimate(SOURCE, None, log(stated))
        assert estimate.seconds == pytest.approx(4 * stated, rel=0.2)


def test_the_factor_of_a_job_applies_to_its_later_phases() -> None:
    """Some jobs state a tenth, some ten times: the first phase of a job shows which."""
    found, before = Learned(DEFAULT_WORK), TaskSource("pool", "", "reduce")
    for number in range(20):
        factor = 10.0 if number % 2 else 0.1
        job = OfJob()
        for source, seconds in ((SOURCE, 1.0 + number), (before, 5.0)):
            scale = log(seconds * factor)
            found.note(Measured(source, job, scale, True), 1 / factor)
            found.estimate(SOURCE, None, None)
    now = OfJob()
    found.note(Measured(SOURCE, now, log(30.0), True), 0.1)
    estimate = found.estimate(before, now, log(50.0))
    assert estimate.seconds == pytest.approx(5.0, rel=0.2)


def test_memory_is_bounded() -> None:
    """Groups, jobs and measurements that nobody asked for."""
    found = Learned(DEFAULT_WORK)
    for number in range(2 * MAX_GROUPS):
        source = TaskSource(f"pool {number}", f"program {number}", "map")
        found.note(Measured(source, found.of_job(f"job {number}"), 0.0, True), 2.0)
        assert len(found._pending) <= MAX_PENDING
        if number > MAX_PENDING:
            assert found.estimate(source, None, None).seconds > 0
    assert not found.is_exact
    assert len(found._pools) <= MAX_GROUPS
    assert len(found._programs) <= MAX_GROUPS
    assert len(found._kept) <= MAX_GROUPS


@settings(max_examples=examples(20, slow=300))
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(1e-4, 1e4)), min_size=1, max_size=60))
def test_when_an_estimate_is_asked_for_makes_no_difference(
    told: list[tuple[int, float]],
) -> None:
    """After each measurement, or only at the end: a replay finds the same."""
    often, once = Learned(DEFAULT_WORK), Learned(DEFAULT_WORK)
    estimates = []
    for found in (often, once):
        found.estimate(SOURCE, None, None)
        of = [OfJob() for _ in range(3)]
        sources = (SOURCE, TaskSource("pool", "grep", "map"))
        phases = [Measured(sources[n % 2], of[n // 2], log(n + 1), n > 2) for n in range(6)]
        for number, factor in told:
            found.note(phases[number], factor)
            if found is often:
                assert found.estimate(SOURCE, of[0], None).seconds > 0
        asked = ((None, None), (of[1], None), (of[2], log(3.0)))
        estimates.append([found.estimate(SOURCE, job, scale) for job, scale in asked])
    assert estimates[0] == estimates[1]


CLUSTER = Cluster.of_slots(2)


def measured(state: State, name: str, seconds: float, at: float) -> float:
    """A job of one task of unstated work runs. When it is done."""
    state.at(at)
    state.apply(JobArrived(at, Job(name, (Phase("call", Tasks(1)),), at)))
    phase = PhaseId(name, "call")
    state.apply(Launch(phase, 0, 1, next(iter(state.free("task"))), Locality.NODE))
    state.at(at + seconds)
    state.apply(TaskFinished(at + seconds, phase, 0, 1, seconds))
    return at + seconds


def test_a_running_task_that_is_late_raises_the_estimate() -> None:
    """Others took 1 s; one of two tasks runs for 20 s, so the second one will, too."""
    state, at = State(CLUSTER), 0.0
    for number in range(8):
        at = measured(state, f"done {number}", 1.0, at)
    state.apply(JobArrived(at, Job("late", (Phase("call", Tasks(2)),), at)))
    phase = state.phase(PhaseId("late", "call"))
    first = phase.work_left(at)
    assert first == pytest.approx(2.0, rel=0.5)
    state.apply(Launch(phase.id, 0, 1, next(iter(state.free("task"))), Locality.NODE))
    found = [phase.work_left(at + elapsed) for elapsed in (2.0, 5.0, 20.0, 100.0)]
    assert found == sorted(found)
    assert found[2] > 20
    state.at(at + 20.0)
    state.apply(TaskFinished(at + 20.0, phase.id, 0, 1, 20.0))
    assert phase.work_left(at + 20.0) == pytest.approx(20.0)
    assert phase.estimate(at + 20.0) == (phase.work_left(at + 20.0), 0.0)


def test_stated_work_is_exact_until_a_task_shows_otherwise() -> None:
    """The first job takes what it states, the second twice as much; the third is doubted."""
    state = State(CLUSTER)
    for name, seconds in (("right", 3.0), ("wrong", 6.0)):
        arrived = state.now
        job = Job(name, (Phase("map", Tasks(1, 3.0)),), arrived)
        state.apply(JobArrived(arrived, job))
        phase = state.phase(PhaseId(name, "map"))
        assert phase.estimate(arrived) == (3.0, 0.0)
        state.apply(Launch(phase.id, 0, 1, next(iter(state.free("task"))), Locality.NODE))
        state.at(arrived + seconds)
        state.apply(TaskFinished(state.now, phase.id, 0, 1, seconds))
    state.apply(JobArrived(state.now, Job("next", (Phase("map", Tasks(1, 3.0)),), state.now)))
    phase = state.phase(PhaseId("next", "map"))
    work, spread = phase.estimate(state.now)
    assert spread > 0
    assert 3.0 < work < 6.0


def test_claims_have_the_remaining_work_of_all_phases_of_a_job() -> None:
    """Of jobs with several phases; 4 maps of 3 s, then 2 reduces of 5 s."""
    state = State(CLUSTER)
    phases = (
        Phase("map", Tasks(4, 3.0)),
        Phase("reduce", Tasks(2, 5.0), after=frozenset({"map"})),
    )
    state.apply(JobArrived(0.0, Job("both", phases)))
    state.apply(JobArrived(0.0, Job("one", phases[:1])))
    _, claims = claims_of(state.at(0.0), "task")
    assert claims.work == [12.0, 12.0]
    assert claims.left == {"both": [12.0, 10.0]}
    assert claims.unmeasured == [False, False]


@pytest.mark.parametrize("name", ["flex", "flowflex-fast", "uwfq"])
def test_a_run_with_hidden_work_is_decided_alike_in_a_replay(tmp_path: Path, name: str) -> None:
    """All that was learned is learned again from the log."""
    jobs = [
        Job(
            f"j{n:02}",
            (
                Phase("map", Tasks(2 + n % 5, 0.3 * (1 + n % 3))),
                Phase("reduce", Tasks(1 + n % 2, 2.0), after=frozenset({"map"})),
            ),
            0.4 * n,
            "ab"[n % 2],
        )
        for n in range(25)
    ]
    log = tmp_path / "log.jsonl"
    slotwise.simulate(
        slotwise.Workload(tuple(jobs), Cluster.of_slots(3)),
        name,
        simulation=Simulation(hide_work=True, noise=0.3, seed=3),
        log=log,
    )
    assert replay_log(read_log(log)).is_identical


def test_the_program_of_a_job_is_logged_if_it_has_one() -> None:
    """Logs of jobs without one are as before."""
    job = Job("a", (Phase("map", Tasks(1)),))
    assert "program" not in encode_job(job)
    grep = replace(job, program="grep")
    assert decode_job(encode_job(grep)) == grep
    assert decode_job(encode_job(job)) == job
