"""The reduce side in simulated runs: slow start, hoarded slots, and copying split off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.backends.simulated.attempts import CopySource
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.job import Job, Phase, PhaseId, Shuffle, Tasks
from slotwise.core.log import Log
from slotwise.insight.metrics import MetricsCollector

Simulate = Callable[..., object]

CLUSTER = Cluster((Host("h1", {"map": 2, "reduce": 2}),))


def mapreduce(
    name: str, maps: int, reduces: int, work: float = 1.0, copy: float = 0.0, **rest: object
) -> Job:
    """A job of maps with the given seconds, and of reduces that copy and take 1 s."""
    return Job(
        name,
        (
            Phase("map", Tasks(maps, work), "map"),
            Phase("reduce", Tasks(reduces, 1.0), "reduce", frozenset({"map"}), copy=copy),
        ),
        **rest,
    )


def begun(log: Log, phase: PhaseId) -> list[float]:
    """When the tasks of a phase were launched."""
    return [
        turn.now
        for turn in log.turns
        for d in turn.decisions
        if isinstance(d, Launch) and d.phase == phase
    ]


def test_reduces_begin_when_the_first_maps_are_done(simulated: Simulate) -> None:
    """With slow start 1/4 they begin after two of eight maps, and end after the last."""
    job = Shuffle(slow_start=0.25).job(mapreduce("j", 8, 2), CLUSTER)
    watch = simulated([job], CLUSTER)
    assert begun(watch.log, PhaseId("j", "reduce")) == [1.0, 1.0]
    assert watch.state.completed == {"j": 5.0}


def test_without_slow_start_they_wait_for_all(simulated: Simulate) -> None:
    """The same job without a slow start."""
    watch = simulated([mapreduce("j", 8, 2)], CLUSTER)
    assert begun(watch.log, PhaseId("j", "reduce")) == [4.0, 4.0]
    assert watch.state.completed == {"j": 5.0}


def test_slow_start_hides_copying(simulated: Simulate) -> None:
    """Copying takes two seconds; begun early, all but the last map's part is there in time."""
    job = mapreduce("j", 8, 2, copy=2.0)
    assert simulated([job], CLUSTER).state.completed == {"j": 7.0}
    early = Shuffle(slow_start=0.25).job(job, CLUSTER)
    assert simulated([early], CLUSTER).state.completed == {"j": pytest.approx(4.0 + 0.5 + 1.0)}


def test_there_is_no_slow_start_where_maps_would_wait_for_reduces(simulated: Simulate) -> None:
    """On plain slots early reduces could take those that the maps need: they wait for all."""
    job = Shuffle(slow_start=0.0).job(mapreduce("j", 4, 2), Cluster.of_slots(2))
    watch = simulated([job], Cluster.of_slots(2))
    assert begun(watch.log, PhaseId("j", "reduce")) == [2.0, 2.0]


def test_waiting_and_copying_do_not_count_as_work(simulated: Simulate) -> None:
    """Early reduces hold their slots for long; what they compute is a second each."""
    job = Shuffle(slow_start=0.25).job(mapreduce("j", 8, 2, copy=2.0), CLUSTER)
    outcome = MetricsCollector.of_log(simulated([job], CLUSTER).log).outcome()
    assert outcome.metrics["work_seconds"] == pytest.approx(8 + 2)
    assert outcome.bound <= outcome.metrics["value"]


LARGE = mapreduce("large", 40, 6, work=2.0)
SMALL = mapreduce("small", 2, 1, arrival=5.0)


def small_ends(simulated: Simulate, shuffle: Shuffle) -> tuple[float, float]:
    """When the small job's reduce begins, and when the large job is done."""
    cluster = shuffle.cluster(CLUSTER)
    jobs = [shuffle.job(job, CLUSTER) for job in (LARGE, SMALL)]
    watch = simulated(jobs, cluster)
    return begun(watch.log, PhaseId("small", "reduce"))[0], watch.state.completed["large"]


def test_a_large_job_hoards_the_reduce_slots(simulated: Simulate) -> None:
    """Its reduces wait in all slots for its maps, and the small job's reduce waits for them.

    The small job's maps have long been done (slides, problem 4; FLEX 4.2).
    """
    begins, large_ends = small_ends(simulated, Shuffle(slow_start=0.05))
    assert begins > 40
    assert begins > large_ends - 4


def test_splitting_off_the_copying_prevents_hoarding(simulated: Simulate) -> None:
    """Copies wait in their own slots: the small job reduces as soon as it can."""
    begins, large_ends = small_ends(simulated, Shuffle(slow_start=0.05, split=True))
    assert begins <= 8
    assert large_ends <= small_ends(simulated, Shuffle(slow_start=0.05))[1]


def test_copies_of_a_job_leave_room_for_others(simulated: Simulate) -> None:
    """Of four places for copies the large job takes two: as many as there are reduce slots."""
    shuffle = Shuffle(slow_start=0.05, split=True)
    cluster = shuffle.cluster(CLUSTER)
    assert cluster.capacity["copy"] == 4
    log = simulated([shuffle.job(LARGE, CLUSTER)], cluster).log
    first = begun(log, PhaseId("large", "reduce-copy"))
    assert len([at for at in first if at < 30]) == 2


def test_reduces_compute_where_they_were_copied(simulated: Simulate) -> None:
    """Each reduce task runs on the host of its copy."""
    shuffle = Shuffle(slow_start=0.5, split=True)
    cluster = Cluster(tuple(Host(f"h{n}", {"map": 1, "reduce": 1}) for n in range(3)))
    job = shuffle.job(mapreduce("j", 9, 7, copy=0.7), cluster)
    log = simulated([job], shuffle.cluster(cluster)).log
    places = [
        {
            d.task: d.host
            for turn in log.turns
            for d in turn.decisions
            if isinstance(d, Launch) and d.phase.phase == name
        }
        for name in ("reduce-copy", "reduce")
    ]
    assert places[0] == places[1]


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=6).map(sorted),
    st.floats(0, 5),
    st.floats(0, 12),
)
def test_copying_is_a_queue(ends: list[float], copy: float, start: float) -> None:
    """The formula equals a queue that is served part by part, in the order of their ends."""
    source = CopySource(len(ends), copy)
    for at in ends:
        assert source.copied_at(start) is None
        source.part_done(at)
    now = start
    for at in ends:
        now = max(now, at) + copy / len(ends)
    assert source.copied_at(start) == pytest.approx(now)
