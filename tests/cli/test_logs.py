"""`slotwise logs`, and the commands that read the log of the last run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forked import ForkedProcess, Forker
from slotwise import Session
from slotwise import command as slotwise_command
from slotwise.run_folder import RunFolder

TIMEOUT = 120.0

COMMANDS = """\
slotwise: 1
cluster: {slots: 1}
jobs:
  - {id: train, tasks: 2, output: out,
     command: "printf $SLOTWISE_TASK; echo e >&2; test $SLOTWISE_ATTEMPT$SLOTWISE_TASK != 10"}
  - {id: quiet, command: "true"}
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the runs of a test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/slotwise/runs"


@pytest.fixture
def ran(slotwise: Any, folder: Path) -> RunFolder:
    """A run of which one attempt has failed."""
    (folder / "run.yaml").write_text(COMMANDS)
    assert slotwise("run", "run.yaml").exit_code == 0
    return RunFolder.last()


def test_all_files_of_the_last_run_have_headers(slotwise: Any, ran: RunFolder) -> None:
    """In order of job, task and attempt, stdout before stderr; each begins on a line."""
    done = slotwise("logs")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "==> train 0 stdout <==\n0\n\n"
        "==> train 0 stderr <==\ne\n\n"
        "==> train 0 (attempt 2) stdout <==\n0\n\n"
        "==> train 0 (attempt 2) stderr <==\ne\n\n"
        "==> train 1 stdout <==\n1\n\n"
        "==> train 1 stderr <==\ne\n"
    )


def test_one_file_is_printed_as_it_is(slotwise: Any, ran: RunFolder) -> None:
    """Chosen by job, task, attempt and stream, and by the run."""
    assert slotwise("logs", "train", "1", "--out").stdout == "1"
    chosen = ("train", "0", "--attempt", "2", "--err", "--run", ran.id)
    assert slotwise("logs", *chosen).stdout == "e\n"
    (ran.logs("train") / "7.1.out").write_bytes(b"\x1b[31m\xff\n")
    assert slotwise("logs", "train", "7").stdout_bytes == b"\x1b[31m\xff\n"


def test_a_job_or_task_without_output_says_so(slotwise: Any, ran: RunFolder) -> None:
    """An unknown job, task or run is refused."""
    done = slotwise("logs", "quiet")
    silent = f"slotwise: job 'quiet' has printed nothing in run {ran.id}\n"
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", silent)
    done = slotwise("logs", "trian")
    assert (done.exit_code, "did you mean 'train'" in done.stderr) == (2, True)
    done = slotwise("logs", "train", "7")
    assert (done.exit_code, "has no task 7; name one from 0 to 1" in done.stderr) == (2, True)
    done = slotwise("logs", "--run", "2001")
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_job_with_a_long_name_is_found(slotwise: Any, tmp_path: Path) -> None:
    """Although its folder has a shorter one."""
    name = "é" * 110
    jobs = [{"id": name, "command": "echo long"}, {"id": "b", "command": "echo b"}]
    (tmp_path / "w.yaml").write_text(json.dumps({"slotwise": 1, "jobs": jobs}))
    slotwise("run", str(tmp_path / "w.yaml"), "--slots", "1")
    assert slotwise("logs", name).stdout == "long\n"


def test_files_and_runs_as_json(slotwise: Any, ran: RunFolder) -> None:
    """One object each."""
    found = json.loads(slotwise("logs", "train", "1", "--json").stdout)
    assert found["run"] == ran.id
    assert [(file["task"], file["stream"], file["bytes"]) for file in found["files"]] == [
        (1, "stdout", 1),
        (1, "stderr", 2),
    ]
    assert Path(found["files"][0]["path"]).read_text() == "1"
    (run,) = json.loads(slotwise("logs", "--list", "--json").stdout)["runs"]
    assert (run["run"], run["state"], run["failed"]) == (ran.id, "done", 0)
    assert run["workload"] == os.path.abspath("run.yaml")


def test_runs_are_listed(slotwise: Any, folder: Path, ran: RunFolder) -> None:
    """With their states and the number of failed jobs."""
    (folder / "bad.yaml").write_text('slotwise: 1\njobs: [{id: a, command: "exit 3"}]\n')
    assert slotwise("run", "bad.yaml").exit_code == 1
    head, first, second = slotwise("logs", "--list").stdout.splitlines()
    assert " ".join(head.split()) == "run kind start took state jobs failed command"
    assert first.split()[:2] == [ran.id, "run"]
    assert (" done " in first, " failed " in second) == (True, True)


def test_other_commands_take_the_last_run(slotwise: Any, folder: Path, ran: RunFolder) -> None:
    """Unless a log is named."""
    assert slotwise("replay").stdout.startswith("identical: ")
    assert slotwise("explain", "--job", "train").stdout == (
        slotwise("explain", str(ran.log), "--job", "train").stdout
    )
    assert slotwise("report", "-o", "r.html").stdout == "r.html\n"
    assert "train" in Path("r.html").read_text()


@pytest.mark.parametrize("command", ["logs", "explain", "replay", "report -o r.html"])
def test_the_last_run_of_another_folder_is_named(
    slotwise: Any,
    folder: Path,
    ran: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    """On stderr, unless the run was asked for."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    done = slotwise(*command.split())
    place = f"{folder}/run.yaml, begun in {folder}"
    assert (done.exit_code, done.stderr) == (0, f"slotwise: this is run {ran.id} of {place}\n")
    asked = ("--run", ran.id) if command == "logs" else (str(ran.log),)
    assert slotwise(*command.split(), *asked).stderr == ""


@pytest.mark.parametrize("command", ["logs", "logs --list", "explain", "replay", "report -o r"])
def test_without_a_run_the_message_says_how_to_make_one(
    slotwise: Any, runs: Path, command: str
) -> None:
    """Nothing is written."""
    done = slotwise(*command.split())
    assert done.exit_code == 2
    why = f"no run is kept in {runs}; make one with `slotwise run FILE`, or name a log"
    assert done.stderr == f"slotwise: {why}\n"
    assert not Path("r").exists()


def test_a_run_is_not_kept_if_so_asked(slotwise: Any, folder: Path, runs: Path) -> None:
    """A simulation is kept if asked."""
    (folder / "run.yaml").write_text(COMMANDS)
    assert slotwise("run", "run.yaml", "--no-keep").exit_code == 0
    assert not runs.exists()
    assert slotwise("simulate", "jobs.yaml", "--keep").exit_code == 0
    assert RunFolder.last().about()["kind"] == "simulation"


# Following a live run


@pytest.fixture
def follow(forker: Forker, folder: Path) -> Iterator[ForkedProcess]:
    """A process that follows the last run, with its output in the file `seen`."""
    with open(os.devnull) as nothing, (folder / "seen").open("w") as out:
        streams = [nothing.fileno(), out.fileno(), out.fileno()]
        process = forker.start(["logs", "-f"], folder, streams, leads=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    """A session of one slot, in which a command has printed one line and waits for a file."""
    with Session(1) as session:
        wait = "while [ ! -e go ]; do sleep 0.02; done"
        session.run(slotwise_command(f"echo first; {wait}; echo second", id="a"), folder=folder)
        yield session
        (folder / "go").touch()


def await_text(path: Path, text: str) -> None:
    """Wait until a file has this text."""
    until = time.monotonic() + TIMEOUT
    while text not in path.read_text():
        assert time.monotonic() < until, path.read_text()
        time.sleep(0.01)


def test_a_live_run_is_followed_to_its_end(
    session: Session, follow: ForkedProcess, folder: Path
) -> None:
    """With what is appended, and with files that appear later."""
    await_text(folder / "seen", "first\n")
    (folder / "go").touch()
    await_text(folder / "seen", "second\n")
    session.submit(print, "third").result()
    session.close()
    assert follow.wait(TIMEOUT) == 0
    assert (folder / "seen").read_text() == (
        "==> a 0 stdout <==\nfirst\nsecond\n\n==> call 0 stdout <==\nthird\n"
    )


def test_an_interrupt_ends_only_the_reader(
    session: Session, follow: ForkedProcess, folder: Path
) -> None:
    """With exit code 130."""
    await_text(folder / "seen", "first\n")
    follow.send_signal(signal.SIGINT)
    assert follow.wait(TIMEOUT) == 130
    (folder / "go").touch()
    assert session.submit(int, "3").result() == 3


def test_following_ends_when_its_reader_has_left(
    session: Session, forker: Forker, folder: Path
) -> None:
    """As in `slotwise logs -f | head -1`, although the run goes on."""
    reads, writes = os.pipe()
    with open(os.devnull) as nothing:
        process = forker.start(["logs", "-f"], folder, [nothing.fileno(), writes, writes])
    os.close(writes)
    assert os.read(reads, 3) == b"==>"
    os.close(reads)
    try:
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
