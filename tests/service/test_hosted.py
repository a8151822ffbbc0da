"""Jobs of user code whose planning, results and commits are in processes of their own."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slotwise import (
    Calls,
    Dataflow,
    InputError,
    Job,
    Phase,
    Pool,
    Preemption,
    Session,
    SlotwiseError,
    Tasks,
)
from slotwise.core.history import append_history, read_history
from slotwise.core.job import Observation
from slotwise.core.rates import estimate_rates
from slotwise.jobs.pickling import pickled_by_value
from slotwise.service.planned.forker import FORKER
from slotwise.service.planned.hosted import DeferredHosted, HostedExecution
from slotwise.sessions.futures import Future
from slotwise.sources import Source
from slotwise.workload.file import read_job
from slotwise.workload.workload import Workload
from waiting import until

PATIENCE = 120.0

Entry = Mapping[str, Any] | bytes
Hosted = HostedExecution | DeferredHosted

APP = """
import os, signal, sys, time
from pathlib import Path
import slotwise

print("user code at its import")
{at_import}

class Count(slotwise.MapReduce):
    def __init__(self, folder=""):
        {at_planning}
        self.folder = folder

    def map(self, key, line):
        for word in line.split():
            yield word, 1

    def reduce(self, word, counts):
        {at_reduce}
        yield word, sum(counts)
"""


GARBLES = """[os.write(n, b"x" * 99) for n in range(3, 30)
            if Path(f"/proc/self/fd/{n}").is_socket()]"""
"""Writes to the channel of its process."""


@pytest.fixture(scope="module", autouse=True)
def forker() -> Iterator[None]:
    """The process that forks the others ends with the tests."""
    yield
    FORKER.close()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session of two slots, with a pool that takes its slot back at once."""
    urgent = Pool("urgent", slots_min=2, preemption=Preemption(least_after=0.0, grace=0.0))
    with Session(2, "fair", pools=[urgent]) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a text, and one for intermediate files."""
    (tmp_path / "text.txt").write_text("a b a\nc a b\n" * 50)
    (tmp_path / "work").mkdir()
    return tmp_path


def started(session: Session, entry: Entry, folder: Path, **more: Any) -> Hosted:
    """The stand-in for a job that is planned in a process of its own."""
    environ = {**os.environ, "TMPDIR": str(folder / "work"), "WORD": "hello"}
    core, more = session._intake, {"job": "job", "environ": environ, **more}
    outputs = {name: one.outputs for name, (_, one) in list(core.jobs.items())}
    job = core.unused(more.pop("job"))
    return HostedExecution.start(
        entry, folder, core.state.cluster, job=job, now=core.now, outputs=outputs, **more
    )


def run(session: Session, entry: Entry, folder: Path, **more: Any) -> Future[Any]:
    """Run a job whose execution is in a process of its own."""
    return session._intake.run(started(session, entry, folder, **more))


def count(folder: Path, output: str = "out", **code: str) -> dict[str, Any]:
    """A MapReduce job whose code is in a file, with statements at some places."""
    places = dict.fromkeys(("at_import", "at_planning", "at_reduce"), "pass") | code
    (folder / "app.py").write_text(APP.format(**places))
    about = {"id": "count", "program": "app.py:Count", "inputs": "text.txt", "output": output}
    return {**about, "split_bytes": 200}


def content(output: Path) -> dict[str, bytes]:
    """All files of an output, except the manifest, which names the job."""
    paths = (path for path in output.rglob("*") if path.is_file() and path.name != "_SUCCESS")
    return {str(path.relative_to(output)): path.read_bytes() for path in paths}


def is_running(pid: int) -> bool:
    """Whether a process has not ended; its parent may not have noticed that yet."""
    try:
        return state_of(pid)[0] != "Z"
    except OSError:
        return False


def state_of(pid: int) -> list[str]:
    """The state of a process, its parent, and so on, from /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_a_program_has_the_output_that_it_has_in_a_session(
    session: Session, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its process ends with it; what its code prints when it is planned goes to its log."""
    plain = session.run(count(folder, "plain"), folder=folder)
    assert plain.result(PATIENCE) == str(folder / "plain")
    capfd.readouterr()
    hosted = started(session, count(folder), folder, log=folder / "log")
    assert session._intake.run(hosted).result(PATIENCE) == str(folder / "out")
    assert content(folder / "out") == content(folder / "plain") != {}
    assert (folder / "out" / "_SUCCESS").is_file()
    assert os.listdir(folder / "work") == []
    until(lambda: not is_running(hosted.process.pid))
    assert (folder / "log").read_text() == "user code at its import\n"
    assert "user code" not in "".join(capfd.readouterr())


def test_the_scheduler_knows_of_a_program_what_it_knows_in_a_session(
    session: Session, folder: Path
) -> None:
    """Phases with work as a history has it, sizes, names for histories, and descriptions."""
    history, cluster = folder / "history", session._intake.state.cluster
    seen = Observation("app.py:Count", "map", 1000, "localhost", 1.0, 5.0)
    append_history(history, [seen])
    workload = Workload((read_job(count(folder), 2, folder),), folder=folder)
    source = Source(workload, estimate_rates(read_history(history)))
    (plain,) = source.executions(cluster)
    hosted = started(session, count(folder), folder, job="known", history=history)
    assert hosted.job == replace(plain.job, id="known", arrival=hosted.job.arrival)
    assert hosted.job.by_name["map"].tasks.work_of(0) == pytest.approx(1.0)
    assert hosted.program == plain.program == "app.py:Count"
    assert (hosted.sizes, hosted.waits) == (plain.sizes, plain.waits)
    assert hosted.known_as("map") == plain.known_as("map")
    assert hosted.outputs == plain.outputs == (str(folder / "out"),)
    assert hosted.describe("map", 1) == plain.describe("map", 1).replace("count", "known")
    hosted.close(succeeded=False)
    assert not is_running(hosted.process.pid)
    assert hosted.describe("map", 1) == "map task 1 of job known"


def words(records: Any) -> Any:
    """Words of lines."""
    for line in records:
        yield from line.split()


def longest(records: Any) -> Any:
    """The number of words."""
    yield sum(1 for _ in records)


def test_a_pickled_dataflow_has_the_output_that_it_has_in_a_session(
    session: Session, folder: Path
) -> None:
    """It comes with the functions of its nodes."""
    flow = Dataflow()
    lines = flow.read(str(folder / "text.txt"), split_bytes=200)
    flow.write(flow.node(longest, flow.node(words, lines).file(), copies=1))
    session.run(flow.job("flow", folder / "plain")).result(PATIENCE)
    entry = pickled_by_value(flow.job("flow", folder / "out"))
    assert run(session, entry, folder).result(PATIENCE) == str(folder / "out")
    assert content(folder / "out") == content(folder / "plain") != {}


def test_phases_of_commands_and_programs(session: Session, folder: Path) -> None:
    """Later phases read what earlier ones have written; commands have its environment."""
    mail = {"name": "mail", "command": 'cat out/part*; echo "$WORD"', "output": "mail"}
    program = {key: value for key, value in count(folder).items() if key != "id"}
    phases = [{**program, "name": "count"}, {**mail, "after": ["count"]}]
    entry = {"id": "mixed", "phases": phases}
    outputs = {"count": str(folder / "out"), "mail": str(folder / "mail")}
    assert run(session, entry, folder).result(PATIENCE) == outputs
    printed = (folder / "mail" / "task-00000.out").read_text()
    assert sorted(printed.splitlines()) == ["a\t150", "b\t100", "c\t50", "hello"]


def array(task: int) -> Any:
    """A large result."""
    return np.full(100_000, task)


def total(task: int, results: Any) -> float:
    """A call that gets the results of others."""
    return float(sum(one.sum() for one in results["arrays"]))


def test_pickled_calls_return_the_pickle_of_their_results(
    session: Session, folder: Path
) -> None:
    """Large results pass from worker to worker."""
    phases = Phase("arrays", Tasks(3)), Phase("sum", Tasks(1), after=frozenset({"arrays"}))
    calls = Calls(Job("calls", phases), {"arrays": array, "sum": total})
    packed = run(session, pickled_by_value(calls), folder).result(PATIENCE)
    results = pickle.loads(packed)
    assert results["sum"] == {0: 300_000.0}
    assert [results["arrays"][task][0] for task in range(3)] == [0, 1, 2]


class Hanging:
    """A value whose unpickling never ends, except in the process that has made it."""

    def __reduce__(self) -> Any:
        return time.sleep, (1000,)


class Unreadable:
    """A value that cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("three",)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Hanging, "has not answered for 1 s"),
        (Unreadable, "the result of p task 0 cannot be read: ValueError"),
    ],
)
def test_a_result_that_cannot_be_read_fails_its_job_only(
    session: Session, folder: Path, made: type, reason: str
) -> None:
    """Meanwhile the loop of the scheduler continues with others."""
    calls = Calls(Job("calls", (Phase("p", Tasks(1)),)), lambda task: made())
    hosted = started(session, pickled_by_value(calls), folder)
    hosted.process.limit = 1.0 if made is Hanging else PATIENCE
    future = session._intake.run(hosted)
    assert session.submit(len, "abc").result(PATIENCE) == 3
    with pytest.raises(SlotwiseError, match=reason):
        future.result(PATIENCE)


class Traced:
    """A value whose unpickling writes the id of the process to a file."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return _traced, (self.file,)


def _traced(file: str) -> Traced:
    with open(file, "a") as lines:
        print(os.getpid(), file=lines)
    return Traced(file)


def test_nothing_of_a_user_is_unpickled_in_this_process(session: Session, folder: Path) -> None:
    """Neither the job, nor its function, nor results."""
    traced = Traced(str(folder / "pids"))
    calls = Calls(Job("calls", (Phase("p", Tasks(2)),)), lambda task: (task, traced))
    packed = run(session, pickled_by_value(calls), folder).result(PATIENCE)
    pids = set(map(int, (folder / "pids").read_text().split()))
    assert len(pids) >= 2  # The process of the job, and a worker.
    assert os.getpid() not in pids
    assert pickle.loads(packed)["p"][1][0] == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ({"at_import": "raise ValueError('broken')"}, "importing .* ValueError: broken"),
        ({"at_import": "sys.exit(3)"}, "SystemExit: 3"),
        ({"at_import": "os._exit(3)"}, "exited with code 3"),
        ({"at_planning": "os.kill(os.getpid(), 9)"}, r"killed by signal 9 \(SIGKILL\)"),
        ({"at_planning": "while True: time.sleep(1)"}, "has not answered for 1 s"),
        ({"at_planning": GARBLES}, "has sent what cannot be read"),
    ],
)
def test_code_that_fails_when_it_is_planned_fails_its_job_only(
    session: Session, folder: Path, code: dict[str, str], reason: str
) -> None:
    """With a reason; nothing is written."""
    limit = 1.0 if reason.endswith("1 s") else PATIENCE
    with pytest.raises(InputError, match=f"(?s)job 'job.*{reason}"):
        started(session, count(folder, **code), folder, limit=limit)
    assert not (folder / "out").exists()
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_a_wrong_entry_is_refused_as_in_a_session(session: Session, folder: Path) -> None:
    """By the same message."""
    entry = {**count(folder), "inputs": "missing.txt"}
    with pytest.raises(InputError, match=r"missing\.txt"):
        started(session, entry, folder)
    with pytest.raises(InputError, match="is not a job"):
        started(session, pickle.dumps(3), folder)


def test_a_failed_job_leaves_nothing(session: Session, folder: Path) -> None:
    """Neither output nor intermediate files nor a process."""
    entry = {**count(folder, at_reduce="raise ValueError('no sum')"), "attempts": 1}
    hosted = started(session, entry, folder)
    with pytest.raises(SlotwiseError, match="no sum"):
        session._intake.run(hosted).result(PATIENCE)
    until(lambda: not (folder / "out").exists())
    until(lambda: os.listdir(folder / "work") == [])
    until(lambda: not is_running(hosted.process.pid))


def test_a_job_fails_with_its_process_and_leaves_nothing(
    session: Session, folder: Path
) -> None:
    """The process is killed while a reduce waits; other jobs continue."""
    wait = "Path(self.folder, 'begun').touch(); _ = [time.sleep(0.01) for n in range(6000)"
    wait += " if not Path(self.folder, 'go').exists()]"
    entry = {**count(folder, at_reduce=wait), "parameters": {"folder": str(folder)}}
    hosted = started(session, entry, folder)
    future = session._intake.run(hosted)
    until((folder / "begun").exists)
    assert os.listdir(folder / "work") != []
    os.kill(hosted.process.pid, signal.SIGKILL)
    (folder / "go").touch()
    with pytest.raises(SlotwiseError, match=r"the process .* was killed by signal 9"):
        future.result(PATIENCE)
    until(lambda: not (folder / "out").exists())
    until(lambda: os.listdir(folder / "work") == [])
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_a_failed_attempt_is_repeated(session: Session, folder: Path) -> None:
    """The output is committed once, from the attempts that succeeded."""
    once = "(Path(self.folder, word).exists() or Path(self.folder, word).touch() or 1 / 0)"
    entry = {**count(folder, at_reduce=once), "parameters": {"folder": str(folder)}}
    assert run(session, entry, folder).result(PATIENCE)
    lines = b"".join(content(folder / "out").values()).decode().splitlines()
    assert sorted(lines) == ["a\t150", "b\t100", "c\t50"]
    assert sorted(content(folder / "out")) == ["part-r-00000", "part-r-00001"]


def test_a_preempted_task_is_done_again(session: Session, folder: Path) -> None:
    """A pool takes back the slot in which a call waits; then it has what it kept."""

    def waits(task: int) -> object:
        from slotwise import task as running

        if (kept := running.kept()) is not None:
            return kept
        (folder / "begun").touch()
        until(running.stop_requested)
        return running.stop("kept")

    calls = Calls(Job("calls", (Phase("p", Tasks(2)),)), waits)
    future = run(session, pickled_by_value(calls), folder)
    until((folder / "begun").exists)
    with session.executor(pool="urgent") as urgent:
        assert urgent.submit(len, "abc").result(PATIENCE) == 3
    future.cancel()


def test_a_job_is_planned_when_the_jobs_before_it_are_over(
    session: Session, folder: Path
) -> None:
    """If it reads what they write. In its process, without the loop."""
    go = folder / "go"
    words = f"while ! test -e {go}; do sleep 0.01; done; echo a b a"
    made = session.command(words, folder / "made", id="make")
    entry = {**count(folder), "inputs": "made/*.out", "after": made.job}
    hosted = started(session, entry, folder)
    assert isinstance(hosted, DeferredHosted)
    future = session._intake.run(hosted)
    go.touch()
    assert future.result(PATIENCE) == str(folder / "out")
    lines = b"".join(content(folder / "out").values()).decode().splitlines()
    assert sorted(lines) == ["a\t2", "b\t1"]


def test_a_job_that_cannot_be_planned_later_fails(session: Session, folder: Path) -> None:
    """For the reason that its process gives."""
    made = session.command("true", folder / "made", id="make")
    entry = {**count(folder), "inputs": "made/missing", "after": made.job}
    with pytest.raises(SlotwiseError, match="made/missing"):
        run(session, entry, folder).result(PATIENCE)


def test_properties_of_a_pickled_job_can_be_replaced(session: Session, folder: Path) -> None:
    """Such as its pool; its id is the given one."""
    calls = pickled_by_value(Calls(Job("calls", (Phase("p", Tasks(1)),)), abs))
    hosted = started(session, calls, folder, job="mine", about={"pool": "urgent"})
    assert (hosted.job.id, hosted.job.pool) == ("mine", "urgent")
    hosted.close(succeeded=False)


def test_the_process_that_forks_may_die(session: Session, folder: Path) -> None:
    """Jobs continue, and it is started again for others."""
    hosted = started(session, count(folder), folder)
    os.kill(int(state_of(hosted.process.pid)[1]), signal.SIGKILL)
    others = run(session, count(folder, "other"), folder)
    assert session._intake.run(hosted).result(PATIENCE) == str(folder / "out")
    assert others.result(PATIENCE) == str(folder / "other")
    until(lambda: not is_running(hosted.process.pid))


def test_a_process_that_cannot_start_says_why(session: Session, folder: Path) -> None:
    """Whether it has ended before it is asked or later; the next one starts."""
    for words in 1, 1_000_000:
        entry = count(folder) | {"name": "x" * words}
        with pytest.raises(SlotwiseError, match=r"process cannot start: .*/missing"):
            started(session, entry, folder, kept=f"{folder}/missing")
    assert run(session, count(folder), folder).result(PATIENCE) == str(folder / "out")


SERVER = """
import os, signal, sys
from slotwise.core.cluster import Cluster
from slotwise.service.planned.hosted import HostedExecution
entry = {"id": "a", "program": "wordcount", "inputs": "text.txt", "output": "out"}
hosted = HostedExecution.start(entry, sys.argv[1], Cluster.of_slots(1), job="a")
stat = open(f"/proc/{hosted.process.pid}/stat").read()
print(hosted.process.pid, stat.rpartition(")")[2].split()[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_process_ends_with_the_server(folder: Path) -> None:
    """Also if that is killed; and so does the one that has forked it."""
    words = [sys.executable, "-c", SERVER, str(folder)]
    server = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    pids = list(map(int, server.stdout.split()))
    assert len(pids) == 2
    until(lambda: not any(map(is_running, pids)))
