"""Reduces that begin to copy while maps go on: the same output, whenever anything ends."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slotwise.backends.local.processes import Processes
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Shuffle
from slotwise.jobs import BatchMapReduce, Execution, MapReduce, plan_mapreduce
from slotwise.jobs.execution import SuccessfulAttempts
from slotwise.jobs.mapreduce.program import COPY_PHASE
from slotwise.jobs.shuffle.sources import Copied, IncrementalCopy, InPlace
from slotwise.jobs.staged import StagedExecution

Run = Callable[[Execution], bytes]

EARLY = Shuffle(slow_start=0)
SPLIT = Shuffle(slow_start=0, split=True)
TIMEOUT = 120.0
"""Seconds; a test that waits for this long has failed."""


class Overlap:
    """Runs a job with all that may begin early begun before any map, in threads.

    Maps end in random order; each one has two attempts, and the first result counts.
    """

    def __init__(self, execution: StagedExecution, seed: int = 0) -> None:
        self._execution = execution
        self._rng = random.Random(seed)

    def run(self) -> bytes:
        """The parts of the output, one after another."""
        phases, succeeded = self._execution.job.by_name, False
        thresholds = gc.get_threshold()
        try:
            if "sample" in phases:
                self._keep("sample", 0, 1, self._result("sample", 0, 1))
            with ThreadPoolExecutor(phases["reduce"].tasks.count) as threads:
                early = COPY_PHASE if COPY_PHASE in phases else "reduce"
                running = self._begin(threads, early)
                self._maps()
                self._end(early, running)
                if early == COPY_PHASE:
                    self._end("reduce", self._begin(threads, "reduce"))
            succeeded = True
        finally:
            gc.set_threshold(*thresholds)
            self._execution.close(succeeded)
        parts = sorted(Path(self._execution.output).glob("part-*"))
        return b"".join(part.read_bytes() for part in parts)

    def _maps(self) -> None:
        tasks = list(range(self._execution.job.by_name["map"].tasks.count))
        self._rng.shuffle(tasks)
        for task in tasks:
            for attempt in (2, 1):
                self._keep("map", task, attempt, self._result("map", task, attempt))

    def _begin(self, threads: ThreadPoolExecutor, phase: str) -> list[Future[object]]:
        calls = [
            self._execution.arguments(phase, task, 1)
            for task in range(self._execution.job.by_name[phase].tasks.count)
        ]
        return [threads.submit(self._execution.runner, *call) for call in calls]

    def _end(self, phase: str, running: list[Future[object]]) -> None:
        for task, future in enumerate(running):
            self._keep(phase, task, 1, future.result(TIMEOUT))

    def _result(self, phase: str, task: int, attempt: int) -> object:
        return self._execution.runner(*self._execution.arguments(phase, task, attempt))

    def _keep(self, phase: str, task: int, attempt: int, result: object) -> None:
        self._execution.finished(phase, task, attempt, result)


class Places(MapReduce):
    """Each word with all the places where it stands, in the order of the input."""

    def map(self, key: int, value: str) -> Iterable[tuple[str, str]]:
        """The words of a line."""
        for word in value.split():
            yield word, f"{Path(self.path).name}:{key}"

    def reduce(self, key: str, values: Iterator[str]) -> Iterable[tuple[str, str]]:
        """All of them in one."""
        yield key, ",".join(values)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Three files of a few hundred lines."""
    rng = random.Random(5)
    for name in "abc":
        lines = (" ".join(f"w{rng.randrange(300)}" for _ in range(6)) for _ in range(300))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    return tmp_path


PROGRAMS: list[tuple[Any, dict[str, Any]]] = [
    (Places, {}),
    ("wordcount", {}),
    ("inverted-index", {}),
    ("sort", {"descending": True}),
]


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
@pytest.mark.parametrize(("program", "parameters"), PROGRAMS)
@pytest.mark.parametrize(
    "memory_bytes", [1 << 20, pytest.param(256 << 20, marks=pytest.mark.slow)]
)
def test_early_reduces_give_the_same_output(
    books: Path,
    output_of: Run,
    program: Any,
    parameters: dict[str, Any],
    shuffle: Shuffle,
    memory_bytes: int,
) -> None:
    """Byte for byte, though maps end in any order while copiers are on their way."""

    def planned(output: str, shuffle: Shuffle | None) -> StagedExecution:
        return plan_mapreduce(
            "j",
            program,
            "*.txt",
            output,
            base_dir=books,
            parameters=parameters,
            reducers=3,
            split_bytes=2000,
            memory_bytes=memory_bytes,
            shuffle=shuffle,
        )

    expected = output_of(planned("plain", None))
    assert expected.count(b"\n") > 10
    assert Overlap(planned("early", shuffle)).run() == expected


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
def test_batches_are_copied_by_their_buckets(
    books: Path, output_of: Run, shuffle: Shuffle
) -> None:
    """Arrow tables come to the reduce in the same order, within the same memory."""
    pa = pytest.importorskip("pyarrow")

    class Lines(BatchMapReduce):
        keys = ("first",)

        def map(self, table: pa.Table) -> pa.Table:
            firsts = [line.split()[0] for line in table["line"].to_pylist()]
            return table.append_column("first", pa.array(firsts))

    def planned(output: str, shuffle: Shuffle | None) -> StagedExecution:
        return plan_mapreduce(
            "j", Lines, "*.txt", output, base_dir=books, reducers=2, split_bytes=3000,
            memory_bytes=1 << 20, output_format="jsonl", shuffle=shuffle,
        )  # fmt: skip

    expected = output_of(planned("plain", None))
    assert expected.count(b"\n") == 900
    assert Overlap(planned("early", shuffle)).run() == expected


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
def test_a_reduce_without_input_writes_an_empty_part(tmp_path: Path, shuffle: Shuffle) -> None:
    """A partition without a pair is copied, and reduced to an empty part."""
    (tmp_path / "text").write_text("one\n" * 50)
    execution = plan_mapreduce(
        "j", "wordcount", "text", "out", base_dir=tmp_path, reducers=4, split_bytes=20,
        shuffle=shuffle,
    )  # fmt: skip
    assert Overlap(execution).run() == b"one\t50\n"
    assert len(list((tmp_path / "out").glob("part-*"))) == 4


def test_without_reduces_there_is_nothing_to_copy(books: Path, output_of: Run) -> None:
    """A program that only maps runs as ever."""
    execution = plan_mapreduce(
        "j", "grep", "*.txt", "out", base_dir=books, parameters={"pattern": "w"}, shuffle=SPLIT
    )
    assert [phase.name for phase in execution.job.phases] == ["map"]
    assert output_of(execution).count(b"\n") == 900


# What the scheduler sees


def test_the_phases_are_those_of_the_model(books: Path) -> None:
    """Slow start is a number of the reduce phase; a split makes two phases of it."""

    def phases(shuffle: Shuffle, cluster: Cluster | None = None) -> list[Any]:
        execution = plan_mapreduce(
            "j", "sort", "*.txt", "out", base_dir=books, reducers=9, shuffle=shuffle,
            cluster=cluster, priority="high",
        )  # fmt: skip
        assert execution.job.priority == "high"
        return list(execution.job.phases)

    sample, mapping, reducing = phases(Shuffle(slow_start=0.25))
    assert (sample.slow_start, mapping.slow_start, reducing.slow_start) == (1, 1, 0.25)
    *_, copying, reducing = phases(Shuffle(slow_start=0.25, split=True))
    assert (copying.name, copying.kind, copying.after) == (COPY_PHASE, "copy", {"map"})
    assert (copying.slow_start, copying.slots_most, copying.tasks.work) == (0.25, 9, 0)
    assert (reducing.continues, reducing.slow_start) == (COPY_PHASE, 1)
    host = Host("h", slots={"map": 2, "reduce": 3})
    *_, copying, _ = phases(Shuffle(split=True), Cluster((host,)))
    assert copying.slots_most == 3, "as many as the cluster has slots for reduces"


def test_without_a_shuffle_reduces_read_in_place(books: Path) -> None:
    """Reduces read what maps wrote where it lies; no file tells which maps have finished."""
    execution = plan_mapreduce("j", "wordcount", "*.txt", "out", base_dir=books)
    run_map(execution, 0)
    assert execution.arguments("reduce", 0, 1)[-1] == InPlace(SuccessfulAttempts((1,)))
    assert not execution.runner.layout.finished_maps.exists()
    execution.close(succeeded=False)


def test_a_late_reduce_reads_in_place(books: Path) -> None:
    """A reduce that is launched when all maps are done has nothing to copy."""
    execution = plan_mapreduce(
        "j", "wordcount", "*.txt", "out", base_dir=books, split_bytes=10_000, shuffle=EARLY
    )
    assert execution.arguments("reduce", 0, 1)[-1] == IncrementalCopy(3)
    for task, attempt in ((2, 1), (0, 4), (1, 2)):
        run_map(execution, task, attempt)
    assert execution.arguments("reduce", 1, 1)[-1] == InPlace(SuccessfulAttempts((4, 2, 1)))
    execution.close(succeeded=False)


def test_an_unknown_priority_is_refused(books: Path) -> None:
    """The message names it."""
    with pytest.raises(InputError, match="unknown priority 'urgent'"):
        plan_mapreduce("j", "wordcount", "*.txt", "out", base_dir=books, priority="urgent")


# What becomes of attempts


def run_map(execution: StagedExecution, task: int, attempt: int = 1) -> None:
    """Run one attempt of a map and keep what it gave."""
    result = execution.runner(*execution.arguments("map", task, attempt))
    execution.finished("map", task, attempt, result)


def start(
    execution: StagedExecution, workers: Processes, slot: int, phase: str, attempt: int = 1
) -> None:
    """Start an attempt of task 0 of a phase in a slot."""
    arguments = execution.arguments(phase, 0, attempt)
    workers.start(slot, execution.job.id, execution.runner, arguments)


def await_file(path: Path) -> None:
    """Wait until there is such a file."""
    until = time.monotonic() + TIMEOUT
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.002)


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
def test_a_killed_copier_starts_again(books: Path, output_of: Run, shuffle: Shuffle) -> None:
    """What it copied is removed, and the next attempt copies what it had copied already."""
    plan = {"base_dir": books, "reducers": 1, "split_bytes": 10_000}
    expected = output_of(plan_mapreduce("p", "wordcount", "*.txt", "plain", **plan))
    execution = plan_mapreduce("j", "wordcount", "*.txt", "out", shuffle=shuffle, **plan)
    early = COPY_PHASE if shuffle.split else "reduce"
    work = Path(execution.runner.layout.work_dir)

    with Processes(2) as workers:
        start(execution, workers, 0, early)
        run_map(execution, 1)
        await_file(work / f"{early}-0-1" / "copied")
        assert workers.wait(0.05) == [], "it waits for the other maps"
        workers.kill(0)
        execution.discard(early, 0, 1)
        assert not (work / f"{early}-0-1").exists()
        start(execution, workers, 0, early, attempt=2)
        run_map(execution, 0, attempt=3)
        run_map(execution, 2)
        (reply,) = workers.wait(TIMEOUT)
        outcome = reply.opened(unpickles=False)
        assert outcome.status == "done", outcome.value
        execution.finished(early, 0, 2, outcome.value)
        assert 0 < execution.waited(early, 0, 2) <= outcome.seconds
        assert execution.waited(early, 0, 1) == execution.waited("map", 1, 1) == 0
        if shuffle.split:
            assert (work / f"{early}-0-2").exists()
            assert execution.arguments("reduce", 0, 1)[-1] == Copied(2), "it waits for nobody"
            start(execution, workers, 1, "reduce")
            (outcome,) = workers.wait(TIMEOUT)
            execution.finished("reduce", 0, 1, outcome.value)
            assert execution.waited("reduce", 0, 1) < outcome.seconds
            assert not (work / f"{early}-0-2").exists(), "what was copied is not kept"
    execution.close(succeeded=True)
    assert (books / "out" / "part-r-00000").read_bytes() == expected
    assert not work.exists()


@pytest.mark.parametrize("shuffle", [EARLY, SPLIT], ids=["early", "split"])
def test_a_copier_ends_when_it_is_asked_to_stop(books: Path, shuffle: Shuffle) -> None:
    """It ends long before it would be killed, has nothing to keep, and asks no program."""

    class Asked(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            yield value, 1

        def on_preempt(self, seconds_left: float) -> None:
            (books / "asked").touch()

    execution = plan_mapreduce("j", Asked, "*.txt", "out", base_dir=books, shuffle=shuffle)
    early = COPY_PHASE if shuffle.split else "reduce"
    with Processes(1) as workers:
        start(execution, workers, 0, early)
        await_file(execution.runner.layout.copied_file(early, 0, 1))
        workers.request_stop(0, time.monotonic() + 2 * TIMEOUT)
        (outcome,) = workers.wait(TIMEOUT)
        assert (outcome.status, outcome.value) == ("stopped", b"")
    execution.close(succeeded=False)
    assert not (books / "asked").exists()


def test_a_copy_outlives_a_failed_reduce(books: Path) -> None:
    """The next attempt of the reduce reads what was copied once."""

    class Once(Places):
        def reduce(self, key: str, values: Iterator[str]) -> Iterable[tuple[str, str]]:
            if not (books / "again").exists():
                (books / "again").touch()
                raise ValueError("not yet")
            return super().reduce(key, values)

    execution = plan_mapreduce(
        "j", Once, "a.txt", "out", base_dir=books, reducers=1, shuffle=SPLIT
    )
    for phase in ("map", COPY_PHASE):
        result = execution.runner(*execution.arguments(phase, 0, 1))
        execution.finished(phase, 0, 1, result)
    with pytest.raises(ValueError, match="not yet"):
        execution.runner(*execution.arguments("reduce", 0, 1))
    execution.discard("reduce", 0, 1)
    result = execution.runner(*execution.arguments("reduce", 0, 2))
    execution.finished("reduce", 0, 2, result)
    execution.close(succeeded=True)
    assert (books / "out" / "part-r-00000").read_bytes().count(b"\n") > 100
