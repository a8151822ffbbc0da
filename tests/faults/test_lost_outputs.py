"""MapReduce jobs whose intermediate files are removed or cut short while they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import OutputLost, TaskFailed, TaskFinished
from slotwise.core.job import Shuffle
from slotwise.core.retries import LOSSES_MAX
from slotwise.insight.replay import replay_log
from slotwise.jobs import MapReduce, plan_mapreduce
from slotwise.jobs.mapreduce.program import BatchMapReduce
from slotwise.jobs.staged import StagedExecution

Attempt = tuple[str, int, int]
Harm = Callable[[Path], object]

WORDS = ["ant bee", "bee cat", "cat ant", "ant ant"]
EXPECTED = {"ant": 4, "bee": 2, "cat": 2}


def remove(path: Path) -> None:
    """The file is gone."""
    path.unlink()


def cut(left: float) -> Harm:
    """Keep only this part of a file."""

    def shorten(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * left)])

    return shorten


def programs() -> dict[str, type]:
    """Word counts, made here so that they are sent to the workers by value."""

    class Plain(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            return [(word, 1) for word in value.split()]

        def reduce(self, key: str, values: Iterator[int]) -> Iterable[tuple[str, int]]:
            yield key, sum(values)

    class Combined(Plain):
        def combine(self, key: str, values: Iterator[int]) -> Iterable[tuple[str, int]]:
            yield key, sum(values)

    class Added(Plain):
        def add(self, one: int, other: int) -> int:
            return one + other

    class Batches(BatchMapReduce):
        keys = ("word",)

        def map(self, table: Any) -> Any:
            import pyarrow as pa

            words = [word for line in table["line"].to_pylist() for word in line.split()]
            return pa.table({"word": words, "count": [1] * len(words)})

        def reduce(self, table: Any) -> Any:
            return table.group_by("word").aggregate([("count", "sum")])

    return {one.__name__: one for one in (Plain, Combined, Added, Batches)}


@dataclass
class Scene:
    """Runs word counts whose files are harmed as soon as the manager knows of them."""

    folder: Path
    watched: Callable[..., Any]
    run: Any = None

    def plan(self, name: str, program: str = "Plain", **options: Any) -> StagedExecution:
        """A word count of four maps and two reduces."""
        return plan_mapreduce(
            name,
            programs()[program],
            "in/*",
            f"out-{name}",
            base_dir=self.folder,
            work_dir=self.folder / "work",
            split_bytes=1,
            **{"reducers": 2, "shuffle": Shuffle(slow_start=1), **options},
        )

    def __call__(
        self,
        executions: Collection[StagedExecution],
        cluster: Cluster | None = None,
        slots: int = 1,
    ) -> None:
        """Run jobs."""
        cluster = cluster or LocalBackend.cluster(slots)
        jobs = [execution.job for execution in executions]
        with LocalBackend(executions, cluster.capacity) as backend:
            self.run = self.watched(backend, jobs, cluster, backend_name="live")
        assert replay_log(self.run.log).is_identical
        assert not list((self.folder / "work").iterdir())

    def events(self, kind: type) -> list[Any]:
        """All events of a kind."""
        turns = self.run.log.turns
        return [event for turn in turns for event in turn.events if isinstance(event, kind)]

    @property
    def lost(self) -> list[tuple[str, tuple[int, ...]]]:
        """The phases and tasks whose output was reported lost, in order."""
        return [(event.phase.phase, event.tasks) for event in self.events(OutputLost)]

    @property
    def repeated(self) -> dict[tuple[str, int], int]:
        """How often tasks were done that were done more than once."""
        done = Counter((e.phase.phase, e.task) for e in self.events(TaskFinished))
        return {task: count for task, count in done.items() if count > 1}

    def counts(self, name: str) -> dict[str, int]:
        """The words that a job has counted."""
        lines = [
            line.split("\t")
            for part in sorted((self.folder / f"out-{name}").glob("part-*"))
            for line in part.read_text().splitlines()
        ]
        assert len({word for word, _ in lines}) == len(lines)
        return {word: int(count) for word, count in lines}


@pytest.fixture
def scene(tmp_path: Path, watched: Callable[..., Any]) -> Scene:
    """A folder with a file for each map."""
    (tmp_path / "in").mkdir()
    for number, line in enumerate(WORDS):
        (tmp_path / f"in/{number}").write_text(f"{line}\n")
    return Scene(tmp_path, watched)


def harmed(
    execution: StagedExecution,
    when: Callable[[Attempt], bool],
    harm: Harm = remove,
    files: Collection[Attempt] = (),
) -> StagedExecution:
    """The same job; when some attempts end, their files (or these files) are harmed.

    This happens before the manager stores the result: tasks that run already read the output
    as soon as the manager has announced it.
    """
    layout, finished = execution.runner.layout, execution.finished

    def file_of(phase: str, task: int, attempt: int) -> Path:
        if phase == "map":
            return layout.map_file(task, attempt)
        return layout.copied_file(phase, task, attempt)

    def store(phase: str, task: int, attempt: int, result: object) -> None:
        if when((phase, task, attempt)):
            for one in files or [(phase, task, attempt)]:
                harm(file_of(*one))
        finished(phase, task, attempt, result)

    execution.finished = store  # type: ignore[method-assign]
    return execution


@pytest.mark.parametrize("harm", [remove, cut(0.9)])
def test_a_map_whose_file_is_missing_or_cut_short_runs_again(scene: Scene, harm: Harm) -> None:
    """Only this one; the reduce that found it waits, and no attempt counts as failed."""
    scene([harmed(scene.plan("a"), lambda attempt: attempt == ("map", 1, 1), harm)])
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("map", (1,))]
    assert scene.repeated == {("map", 1): 2}
    (failed,) = scene.events(TaskFailed)
    assert (failed.lost, failed.lacks_input) == (True, True)
    assert "map-1-1/pairs is missing or incomplete; find out what removes" in failed.reason
    assert failed.reason.startswith("reduce task 0 of job a: ")


@pytest.mark.parametrize("program", ["Combined", "Added", "Batches"])
def test_all_files_that_are_lost_are_found_at_once(scene: Scene, program: str) -> None:
    """By programs that combine, add, or use tables."""
    options = {"input_format": "text", "output_format": "text"} if program == "Batches" else {}
    lost = {("map", 0, 1), ("map", 3, 1)}
    scene([harmed(scene.plan("a", program, **options), lost.__contains__)])
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("map", (0, 3))]
    assert scene.repeated == {("map", 0): 2, ("map", 3): 2}


def test_two_reduces_that_find_the_same_loss_report_it_once(scene: Scene) -> None:
    """Both had begun; each waits, and runs again."""
    scene([harmed(scene.plan("a"), lambda attempt: attempt == ("map", 2, 1))], slots=2)
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("map", (2,))]
    assert scene.repeated == {("map", 2): 2}
    failed = scene.events(TaskFailed)
    assert sorted(event.task for event in failed) == [0, 1]
    assert all(event.lacks_input for event in failed)


def test_a_reduce_that_is_done_is_not_repeated(scene: Scene) -> None:
    """Output is lost when the first of two reduces has ended."""
    execution = scene.plan("a")
    files = [("map", task, 1) for task in range(4)]
    scene([harmed(execution, lambda attempt: attempt == ("reduce", 0, 1), remove, files)])
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("map", (0, 1, 2, 3))]
    assert scene.repeated == {("map", task): 2 for task in range(4)}


def test_losses_of_the_same_output_end_its_job_and_no_other(scene: Scene) -> None:
    """The message names the task, the number of losses, the file, and what to look for."""
    bad = harmed(scene.plan("bad"), lambda attempt: attempt[:2] == ("map", 1))
    scene([bad, scene.plan("good")])
    assert scene.counts("good") == EXPECTED
    reason = scene.run.state.failed["bad"]
    assert reason.startswith(
        f"the output of map task 1 was lost; this task has lost its slot or its output"
        f" {LOSSES_MAX} times: {scene.folder}/work/"
    )
    assert reason.endswith(
        f"map-1-{LOSSES_MAX}/pairs is missing or incomplete; find out what removes or changes"
        " files there while jobs run"
    )
    assert len(scene.lost) == LOSSES_MAX
    assert not (scene.folder / "out-bad").exists()


EARLY = Shuffle(slow_start=0)
SPLIT = Shuffle(slow_start=0, split=True)


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
def test_what_copies_while_maps_run_gets_the_output_that_is_made_again(
    scene: Scene, shuffle: Shuffle
) -> None:
    """The first map is lost three times; those that copy wait for its last output."""
    cluster = shuffle.cluster(Cluster((Host(HOST, slots={"map": 1, "reduce": 2}),)))
    execution = scene.plan("a", shuffle=shuffle, cluster=cluster)
    lost = {("map", 0, attempt) for attempt in (1, 2, 3)}
    scene([harmed(execution, lost.__contains__)], cluster)
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("map", (0,))] * 3
    assert scene.repeated == {("map", 0): 4}
    assert all(event.lacks_input for event in scene.events(TaskFailed))


def test_a_lost_copy_is_made_again(scene: Scene) -> None:
    """Of one reduce; the output of the maps is still there."""
    cluster = SPLIT.cluster(Cluster((Host(HOST, slots={"map": 1, "reduce": 1}),)))
    execution = scene.plan("a", shuffle=SPLIT, cluster=cluster)
    lost = ("reduce-copy", 1, 1)
    scene([harmed(execution, lambda attempt: attempt == lost, cut(0.5))], cluster)
    assert scene.counts("a") == EXPECTED
    assert scene.lost == [("reduce-copy", (1,))]
    assert scene.repeated == {("reduce-copy", 1): 2}


def test_an_error_of_the_program_is_no_loss(scene: Scene) -> None:
    """A reduce that misses a file of its own fails; no output of maps is lost."""

    class Broken(programs()["Plain"]):  # type: ignore[misc]
        def reduce(self, key: str, values: Iterator[int]) -> Iterable[tuple[str, int]]:
            open("/nowhere/at-all")  # noqa: SIM115
            yield key, 1

    execution = plan_mapreduce(
        "a", Broken, __file__, "out-a", base_dir=scene.folder, work_dir=scene.folder / "work"
    )
    scene([execution])
    assert "No such file or directory: '/nowhere/at-all'" in scene.run.state.failed["a"]
    assert scene.lost == []
    assert not any(event.lost for event in scene.events(TaskFailed))
