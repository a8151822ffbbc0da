"""Reduces that begin early, really run: hoarding, its cure, and jobs that fail meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, TaskFinished, TaskKilled
from slotwise.core.job import PhaseId, Shuffle
from slotwise.core.log import Log
from slotwise.jobs import MapReduce, plan_mapreduce
from slotwise.jobs.staged import StagedExecution

Entries = list[Event | Decision]
TIMEOUT = 120.0
"""Seconds; a test that waits for this long has failed."""


def programs(place: Path, wait_seconds: float) -> tuple[MapReduce, MapReduce]:
    """A large and a small program that wait for each other, for a limited time.

    The map of the small one ends when the large one copies. The last map of the large one ends
    when the small one is done, or `wait_seconds` after the end of its map was reported. They
    are defined in a function so that they are sent to the workers by value.
    """

    def wait_for(pattern: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not any(place.glob(pattern)) and time.monotonic() < until:
            time.sleep(0.002)

    class Large(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            if value == "last":
                wait_for("small-has-mapped", TIMEOUT)
                wait_for("out-small/_SUCCESS", wait_seconds)
            yield value, 1

    class Small(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            wait_for("work/*/reduce-*/copied", TIMEOUT)
            yield value, 1

    return Large(), Small()


class Telling(LocalBackend):
    """Makes a file when it has reported the end of the map of the small job."""

    mark: Path

    def wait(self, until: float | None) -> Sequence[Event]:
        """As in the local backend."""
        events = super().wait(until)
        ends = [event.phase for event in events if isinstance(event, TaskFinished)]
        if PhaseId("small", "map") in ends:
            self.mark.touch()
        return events


@pytest.fixture
def play(tmp_path: Path, watched: Callable[..., Any]) -> Callable[..., Log]:
    """Runs both jobs with a shuffle; its log.

    There are slots for all maps, and one for reduces, of which the large job has two.
    """
    (tmp_path / "large").write_text("first\nlast\n")
    (tmp_path / "small").write_text("word\n")

    def run(shuffle: Shuffle, wait_seconds: float) -> Log:
        cluster = shuffle.cluster(Cluster((Host(HOST, slots={"map": 3, "reduce": 1}),)))
        large, small = programs(tmp_path, wait_seconds)

        def planned(name: str, program: MapReduce, reducers: int) -> StagedExecution:
            return plan_mapreduce(
                name,
                program,
                name,
                f"out-{name}",
                base_dir=tmp_path,
                work_dir=tmp_path / "work",
                split_bytes=6,
                reducers=reducers,
                shuffle=shuffle,
                cluster=cluster,
            )

        executions = [planned("large", large, 2), planned("small", small, 1)]
        jobs = [execution.job for execution in executions]
        with Telling(executions, cluster.capacity) as backend:
            backend.mark = tmp_path / "small-has-mapped"
            watch = watched(backend, jobs, cluster, name="fair", backend_name="live")
        assert set(watch.state.completed) == {"large", "small"}
        assert (tmp_path / "out-small/part-r-00000").read_text() == "word\t1\n"
        log: Log = watch.log
        return log

    return run


def entries_of(log: Log) -> Entries:
    """All that happened and was decided, one after another."""
    return [e for turn in log.turns for e in (*turn.events, *turn.decisions)]


def all_of(entries: Entries, kind: type, phase: tuple[str, str]) -> list[int]:
    """Where the launches or the ends of a phase's tasks stand."""
    return [n for n, e in enumerate(entries) if isinstance(e, kind) and e.phase == phase]


def test_slow_start_lets_a_large_job_hoard_reduce_slots(
    play: Callable[..., Log],
) -> None:
    """The small job's reduce, though all that it needs is there, waits for the large maps."""
    log = play(Shuffle(slow_start=0), wait_seconds=0.5)
    entries = entries_of(log)
    (mapped,) = all_of(entries, TaskFinished, ("small", "map"))
    *_, large_mapped = all_of(entries, TaskFinished, ("large", "map"))
    (begun,) = all_of(entries, Launch, ("small", "reduce"))
    assert all_of(entries, Launch, ("large", "reduce"))[0] < mapped < large_mapped < begun
    early = entries[all_of(entries, TaskFinished, ("large", "reduce"))[0]]
    assert isinstance(early, TaskFinished)
    launch = entries[all_of(entries, Launch, ("large", "reduce"))[0]]
    (launched,) = (turn.now for turn in log.turns if launch in turn.decisions)
    assert 0 < early.seconds <= early.at - launched - 0.5, "it waited for half a second"


def test_splitting_frees_the_hoarded_slots(play: Callable[..., Log]) -> None:
    """The small job ends while the large one copies and waits for its last map."""
    entries = entries_of(play(Shuffle(slow_start=0, split=True), wait_seconds=TIMEOUT))
    # The last large map waits for the output of this reduce, whose commit is reported later.
    (reduced,) = all_of(entries, Launch, ("small", "reduce"))
    *_, large_mapped = all_of(entries, TaskFinished, ("large", "map"))
    assert all_of(entries, Launch, ("large", "reduce-copy"))[0] < reduced < large_mapped
    assert large_mapped < all_of(entries, Launch, ("large", "reduce"))[0]


@pytest.mark.parametrize("split", [False, True], ids=["early", "split"])
def test_a_job_whose_map_fails_ends_with_its_copiers(
    tmp_path: Path, watched: Callable[..., Any], split: bool
) -> None:
    """Copiers that wait for a map that will never end are stopped; nothing is left behind."""
    (tmp_path / "text").write_text("first\nlast\n")

    class Broken(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            while value == "last" and not any(tmp_path.glob("work/*/reduce*")):
                time.sleep(0.002)
            if value == "last":
                raise ValueError("no more")
            yield value, 1

    shuffle = Shuffle(slow_start=0, split=split)
    cluster = shuffle.cluster(Cluster((Host(HOST, slots={"map": 1, "reduce": 1}),)))
    execution = plan_mapreduce(
        "j",
        Broken(),
        "text",
        "out",
        base_dir=tmp_path,
        work_dir=tmp_path / "work",
        split_bytes=6,
        reducers=1,
        shuffle=shuffle,
        cluster=cluster,
    )
    with LocalBackend([execution], cluster.capacity) as backend:
        watch = watched(backend, [execution.job], cluster, attempts_max=1, backend_name="live")
    assert "ValueError: no more" in watch.state.failed["j"]
    killed = [
        entry.phase.phase
        for turn in watch.log.turns
        for entry in turn.events
        if isinstance(entry, TaskKilled)
    ]
    assert killed == ["reduce-copy" if split else "reduce"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "work"]
    assert not any((tmp_path / "work").iterdir())
