"""Reduces that begin early, really run: hoarding, its cure, and jobs that fail meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slotwise.model.cluster import Cluster, Host
from slotwise.model.decision import Launch
from slotwise.model.event import TaskFinished, TaskKilled
from slotwise.model.shuffle import Shuffle
from slotwise.program import MapReduce, plan_mapreduce
from slotwise.program.mapreduce_execution import MapReduceExecution
from slotwise.runtime.live.world import HOST, LiveWorld

Entries = list[tuple[str, str, str]]
PATIENCE = 20.0
"""Seconds that nothing here takes; a test that waits so long has failed."""


def programs(place: Path, patience: float) -> tuple[MapReduce, MapReduce]:
    """A large one and a small one that wait for each other, but not for ever.

    The small one's map ends when the large one copies. The large one's last map ends when the
    small one is done, or so many seconds after its map. They are made in a function so that
    they travel to the workers by value.
    """

    def wait_for(pattern: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not any(place.glob(pattern)) and time.monotonic() < until:
            time.sleep(0.002)

    class Large(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            if value == "last":
                wait_for("small-has-mapped", PATIENCE)
                wait_for("out-small/_SUCCESS", patience)
            yield value, 1

    class Small(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            wait_for("work/*/reduce-*", PATIENCE)
            (place / "small-has-mapped").touch()
            yield value, 1

    return Large(), Small()


@pytest.fixture
def play(tmp_path: Path, watched: Callable[..., Any]) -> Callable[..., Entries]:
    """Runs both jobs with a shuffle: what was launched and what ended, one after another.

    There are slots for all maps, and one for reduces, of which the large job has two.
    """
    (tmp_path / "large").write_text("first\nlast\n")
    (tmp_path / "small").write_text("word\n")

    def run(shuffle: Shuffle, patience: float) -> Entries:
        cluster = shuffle.cluster(Cluster((Host(HOST, slots={"map": 3, "reduce": 1}),)))
        large, small = programs(tmp_path, patience)

        def planned(name: str, program: MapReduce, reducers: int) -> MapReduceExecution:
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
        with LiveWorld(executions, sum(cluster.capacity.values())) as world:
            watch = watched(world, jobs, cluster, name="fair", world_name="live")
        assert set(watch.state.completed) == {"large", "small"}
        assert (tmp_path / "out-small/part-r-00000").read_text() == "word\t1\n"
        return [
            ("end" if isinstance(entry, TaskFinished) else "launch", *entry.phase)
            for turn in watch.log.turns
            for entry in (*turn.events, *turn.decisions)
            if isinstance(entry, (TaskFinished, Launch))
        ]

    return run


def last_map_of_large(entries: Entries) -> int:
    """Where the large job's last map ended."""
    return len(entries) - 1 - entries[::-1].index(("end", "large", "map"))


def test_slow_start_lets_a_large_job_hoard_the_reduce_slots(
    play: Callable[..., Entries],
) -> None:
    """The small job's reduce, though all that it needs is there, waits for the large maps."""
    entries = play(Shuffle(slow_start=0), patience=0.5)
    mapped = entries.index(("end", "small", "map"))
    assert entries.index(("launch", "large", "reduce")) < mapped
    assert mapped < last_map_of_large(entries) < entries.index(("launch", "small", "reduce"))


def test_splitting_sets_them_free(play: Callable[..., Entries]) -> None:
    """The small job ends while the large one copies and waits for its last map."""
    entries = play(Shuffle(slow_start=0, split=True), patience=PATIENCE)
    reduced = entries.index(("end", "small", "reduce"))
    assert entries.index(("launch", "large", "reduce-copy")) < reduced
    assert reduced < last_map_of_large(entries) < entries.index(("launch", "large", "reduce"))


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
    with LiveWorld([execution], sum(cluster.capacity.values())) as world:
        watch = watched(world, [execution.job], cluster, attempts_max=1, world_name="live")
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
