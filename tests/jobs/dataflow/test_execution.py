"""Dataflow jobs on the local backend: what they write, lost files, several outputs."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import slotwise
from dataflow_nodes import doubled, endless, first_three, parity, total
from random_dataflows import check, dataflows, written
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.errors import InputError
from slotwise.core.events import OutputLost, TaskFailed, TaskFinished
from slotwise.jobs.dataflow.planning import plan_dataflow
from slotwise.jobs.dataflow.stages import StagedGraph, derive
from slotwise.jobs.endings import descendants
from slotwise.jobs.staged import StagedExecution
from tiers import examples

EXAMPLES = sorted(Path(__file__).parents[3].glob("docs/examples/dataflow_*.py"))
SLOTS = 12


OTHERS: set[int] = set()
"""Processes that began before the session of this module."""


def has_begun(pid: int) -> bool:
    """Whether a process is old enough to serve: workers that die before end the session."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return False
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK") > 0.5


@pytest.fixture(scope="module")
def session() -> Iterator[slotwise.Session]:
    """A session with slots for wide gangs."""
    OTHERS.update(descendants(os.getpid()))
    with slotwise.Session(SLOTS) as opened:
        yield opened


def fitting(flow: slotwise.Dataflow) -> StagedGraph:
    """The stages of a dataflow that is not refused and fits in the slots of the session."""
    try:
        staged = derive(flow.graph())
    except InputError:
        staged = None  # type: ignore[assignment]
    assume(staged is not None)
    for stage in staged.stages:
        assume(stage.slots * (len(stage.groups) if stage.gang else 1) <= SLOTS)
    return staged


def flow_of(example: Path) -> slotwise.Dataflow:
    """The dataflow of an example; what the example does with it is left out."""
    text = example.read_text()
    end = text.index("\n", text.index("\nflow.write(") + 1)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(example)}
    exec(text[:end], names)
    flow: slotwise.Dataflow = names["flow"]
    return flow


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_writes_what_its_evaluation_gives(
    path: Path, session: slotwise.Session, tmp_path: Path
) -> None:
    """A pipeline, a join, two reduces in a row, a broadcast and PageRank."""
    flow = flow_of(path)
    session.run(flow.job(path.stem, tmp_path / "out")).result()
    (records,) = flow.evaluate().values()
    lines = [
        "\t".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in records
    ]
    assert "".join(written(tmp_path / "out")).splitlines() == lines


def test_the_examples_are_all_there() -> None:
    """The page on dataflows shows five."""
    assert len(EXAMPLES) == 5


numbers = iter(range(1_000_000))


@settings(
    max_examples=examples(3, slow=200),
    suppress_health_check=list(HealthCheck),
)
@given(flow=dataflows())
def test_a_random_dataflow_writes_what_its_evaluation_gives(
    flow: slotwise.Dataflow, session: slotwise.Session, tmp_path: Path
) -> None:
    """With every kind of channel and route."""
    staged = fitting(flow)
    name = f"random-{next(numbers)}"
    session.run(flow.job(name, tmp_path / name)).result()
    check(staged, tmp_path / name)


@pytest.mark.local_only("it may kill the agent of the only host")
@settings(
    max_examples=examples(2, slow=150),
    suppress_health_check=list(HealthCheck),
)
@given(flow=dataflows(), seed=st.integers(0, 1_000_000))
def test_killed_processes_change_no_result(
    flow: slotwise.Dataflow, seed: int, session: slotwise.Session, tmp_path: Path
) -> None:
    """Workers and processes of single nodes are killed at random moments."""
    staged = fitting(flow)
    rng = random.Random(seed)
    name = f"killed-{next(numbers)}"
    future = session.run(flow.job(name, tmp_path / name))
    for _ in range(rng.randint(1, 3)):  # A task may fail four times.
        time.sleep(rng.random() * 0.1)
        if running := sorted(set(filter(has_begun, descendants(os.getpid()))) - OTHERS):
            try:
                os.kill(rng.choice(running), 9)
            except ProcessLookupError:
                continue
    future.result()
    check(staged, tmp_path / name)


class Scene:
    """Runs jobs whose files are harmed when their tasks end."""

    def __init__(self, folder: Path, watched: Callable[..., Any]) -> None:
        self.folder, self.watched, self.run = folder, watched, None

    def __call__(
        self, flow: slotwise.Dataflow, harm: Callable[[Path, str, int, int], None]
    ) -> str:
        """Run a job; the text of its output."""
        execution = plan_dataflow("a", flow, self.folder / "out", work_dir=self.folder / "work")
        execution = harmed(execution, harm)
        cluster = LocalBackend.cluster(4)
        with LocalBackend([execution], cluster.capacity) as backend:
            self.run = self.watched(backend, [execution.job], cluster, backend_name="live")
        assert not [event.reason for event in self.events(TaskFailed) if not event.lost]
        assert not list((self.folder / "work").iterdir())
        return "".join(written(self.folder / "out"))

    def events(self, kind: type) -> list[Any]:
        """All events of a kind."""
        turns = self.run.log.turns  # type: ignore[attr-defined]
        return [event for turn in turns for event in turn.events if isinstance(event, kind)]


def harmed(
    execution: StagedExecution, harm: Callable[[Path, str, int, int], None]
) -> StagedExecution:
    """The same job; `harm` is called with the directory of each attempt that has won."""
    finished = execution.finished
    layout = execution.runner.layout  # type: ignore[attr-defined]

    def store(phase: str, task: int, attempt: int, result: object) -> None:
        finished(phase, task, attempt, result)
        harm(layout.attempt_dir(phase, task, attempt), phase, task, attempt)

    execution.finished = store  # type: ignore[method-assign]
    return execution


@pytest.fixture
def scene(tmp_path: Path, watched: Callable[..., Any]) -> Scene:
    """A folder to run jobs in."""
    return Scene(tmp_path, watched)


def cut(file: Path) -> None:
    """Remove the second half of a file."""
    os.truncate(file, file.stat().st_size // 2)


def gang_then_sum() -> slotwise.Dataflow:
    """Two nodes joined by TCP, the second of which writes a file that a third one reads."""
    flow = slotwise.Dataflow()
    values = flow.values(range(100), copies=2)
    twice = flow.node(doubled, values)
    again = flow.node(doubled, twice.tcp(by=abs), copies=2, name="again")
    flow.write(flow.node(total, again))
    return flow


@pytest.mark.parametrize("harm", [Path.unlink, cut])
def test_a_group_whose_file_is_missing_or_cut_runs_again(
    scene: Scene, harm: Callable[[Path], None]
) -> None:
    """Only this one, and no attempt counts as failed."""
    flow = slotwise.Dataflow()
    twice = flow.node(doubled, flow.values(range(100), copies=3))
    flow.write(flow.node(total, twice))

    def once(folder: Path, phase: str, task: int, attempt: int) -> None:
        if (phase, task, attempt) == ("doubled", 1, 1):
            (file,) = folder.glob("channel-*")
            harm(file)

    assert scene(flow, once) == "9900\n"
    (lost,) = scene.events(OutputLost)
    assert (lost.phase.phase, lost.tasks) == ("doubled", (1,))
    (failed,) = scene.events(TaskFailed)
    assert (failed.lost, failed.lacks_input) == (True, True)
    assert failed.reason.startswith("task 0 of job a (node total[0]): ")


def test_a_gang_whose_file_is_missing_runs_again_as_a_whole(scene: Scene) -> None:
    """All its groups, also those whose files are there."""

    def once(folder: Path, phase: str, task: int, attempt: int) -> None:
        if phase == "doubled+again" and attempt == 1:
            for file in list(folder.glob("channel-*"))[:1]:
                file.unlink()

    assert scene(gang_then_sum(), once) == "19800\n"
    done = [event.task for event in scene.events(TaskFinished) if "+" in event.phase.phase]
    assert sorted(done) == [0, 0, 1, 1, 2, 2, 3, 3]


@settings(max_examples=examples(1, slow=50), suppress_health_check=list(HealthCheck))
@given(flow=dataflows(nodes_most=4), seed=st.integers(0, 1_000_000))
def test_files_lost_at_random_change_no_result(
    flow: slotwise.Dataflow,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
    watched: Callable[..., Any],
) -> None:
    """Each file of a first attempt is lost with a chance of a half."""
    staged = fitting(flow)
    assume(all(stage.slots * len(stage.groups) <= 4 for stage in staged.stages))
    rng = random.Random(seed)

    def perhaps(folder: Path, phase: str, task: int, attempt: int) -> None:
        for file in folder.glob("channel-*"):
            if attempt == 1 and rng.random() < 0.5:
                file.unlink()

    folder = tmp_path_factory.mktemp("lost")
    Scene(folder, watched)(flow, perhaps)
    check(staged, folder / "out")


def test_each_written_stream_has_a_folder_which_may_be_overwritten(
    session: slotwise.Session, tmp_path: Path
) -> None:
    """In its format; one file says that all are complete."""
    flow = slotwise.Dataflow()
    both = flow.node(parity, flow.values(range(4)), outputs=("even", "odd"))
    flow.write(both["even"])
    flow.write(both["odd"], output_format="jsonl")
    # A run that was killed has left this, and it is removed.
    (tmp_path / "out/_temporary/slotwise-0123456789abcdef").mkdir(parents=True)
    for overwrite in (False, True):
        job = flow.job(f"parity-{overwrite}", tmp_path / "out", overwrite=overwrite)
        session.run(job).result()
        assert written(tmp_path / "out/parity-even") == ["0\t0\n2\t4\n"]
        (lines,) = written(tmp_path / "out/parity-odd", ".jsonl")
        rows = [json.loads(line) for line in lines.splitlines()]
        assert rows == [{"key": 1, "value": 1}, {"key": 3, "value": 9}]
        names = sorted(path.name for path in tmp_path.glob("out/*/*"))
        assert names == ["part-n-00000", "part-n-00000.jsonl"]
        names = sorted(path.name for path in tmp_path.glob("out/*"))
        assert names == ["_SUCCESS", "parity-even", "parity-odd"]
    with pytest.raises(InputError, match="exists"):
        session.run(flow.job("parity-again", tmp_path / "out"))


def test_a_dataflow_in_a_workload_file_runs(tmp_path: Path) -> None:
    """Its functions are in a file next to it."""
    (tmp_path / "app.py").write_text("def shout(lines):\n    return map(str.upper, lines)\n")
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "slotwise: 1\n"
        "jobs:\n"
        "  - id: loud\n"
        "    output: out\n"
        "    dataflow:\n"
        "      nodes:\n"
        "        - {name: lines, inputs: in.txt}\n"
        "        - {name: shout, function: 'app.py:shout', reads: [lines]}\n"
        "      write: [shout]\n"
    )
    slotwise.run(jobs, slots=1)
    assert written(tmp_path / "out") == ["ONE\nTWO\n"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["shm", "tcp"])
def test_a_stream_without_end_is_read_in_part(
    kind: str, session: slotwise.Session, tmp_path: Path
) -> None:
    """Its node ends when all of its readers have stopped, also if there are several."""
    flow = slotwise.Dataflow()
    numbers = flow.node(endless)
    flow.write(flow.node(first_three, getattr(numbers, kind)(broadcast=True), copies=2))
    session.run(flow.job("a", tmp_path / "out")).result()
    assert written(tmp_path / "out") == ["0\n1\n2\n"] * 2
