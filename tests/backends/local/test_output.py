"""What tasks print: whose it is, where it appears, and what does not wait for it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from backends.local.calling import TIMEOUT, one
from slotwise.backends.local.output import UNSENT_BYTES_MAX, Terminal
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.worker import WholeFile
from slotwise.backends.local.workers import Conditions


class Recorder:
    """An attempt that records what it prints."""

    is_kept = True

    def __init__(self, *, is_shown: bool = True) -> None:
        self.is_shown = is_shown
        self.printed = {"out": b"", "err": b""}

    def write(self, stream: str, data: bytes) -> None:
        """Record it."""
        self.printed[stream] += data

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_each_byte_belongs_to_the_attempt_that_wrote_it(unbuffered: str) -> None:
    """Of Python, of a descriptor and of a child; the first task of a worker, and later ones."""

    def speak(number: int) -> None:
        print("print", number)
        os.write(2, b"write %d\n" % number)
        subprocess.run(["echo", "child", str(number)], check=True)
        print("no line break", number, end="")

    with Processes(1, environment={"PYTHONUNBUFFERED": unbuffered}) as workers:
        for number in range(20):
            output = Recorder()
            workers.start(0, "speak", speak, (number,), Conditions(output=output))
            assert one(workers).status == "done"
            assert output.printed == {
                "out": f"print {number}\nchild {number}\nno line break {number}".encode(),
                "err": f"write {number}\n".encode(),
            }


def test_tasks_that_print_nothing_write_nothing(workers: Processes) -> None:
    """Their attempts are not even asked to."""
    output = Recorder()
    output.write = None  # type: ignore[assignment, method-assign]
    workers.start(0, "silent", lambda: 1, (), Conditions(output=output))
    assert one(workers).value == 1


def test_what_a_dying_worker_printed_is_complete(workers: Processes) -> None:
    """Up to its last byte, whether it kills itself or is killed."""

    def die() -> None:
        os.write(1, b"x" * 50_000)
        os.kill(os.getpid(), signal.SIGKILL)

    output = Recorder()
    workers.start(0, "die", die, (), Conditions(output=output))
    assert one(workers).status == "lost"
    assert output.printed == {"out": b"x" * 50_000, "err": b""}

    def stay() -> None:
        os.write(2, b"before")
        signal.pause()

    output = Recorder()
    workers.start(0, "stay", stay, (), Conditions(output=output))
    while not output.printed["err"]:
        workers.wait(0.01)
    workers.kill(0)
    other = Recorder()
    workers.start(0, "other", lambda: print("other"), (), Conditions(output=other))
    assert one(workers).status == "done"
    assert output.printed == {"out": b"", "err": b"before"}
    assert other.printed == {"out": b"other\n", "err": b""}


def test_a_task_that_prints_much_is_read_meanwhile(workers: Processes) -> None:
    """It need not end before its pipe is full."""
    output = Recorder()
    workers.start(0, "much", lambda: print("y" * 3_000_000), (), Conditions(output=output))
    assert one(workers).status == "done"
    assert len(output.printed["out"]) == 3_000_001


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_signals_cut_no_output_short(unbuffered: str) -> None:
    """Those that slow a process down, or stop it for others, also without a buffer."""
    output = Recorder(is_shown=False)

    def much() -> None:
        print("y" * 3_000_000)
        sys.stderr.write("z" * 3_000_000)

    with Processes(1, environment={"PYTHONUNBUFFERED": unbuffered}) as workers:
        workers.start(0, "known", lambda: 1, ())
        assert one(workers).value == 1
        workers.start(0, "much", much, (), Conditions(output=output))
        (pid,), ended = workers.pids(), Event()

        def stop_and_go() -> None:
            while not ended.is_set():
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    os.kill(pid, number)
                    time.sleep(0.001)

        stopping = Thread(target=stop_and_go)
        stopping.start()
        assert one(workers).status == "done"
        ended.set()
        stopping.join()
    assert [len(output.printed[stream]) for stream in ("out", "err")] == [3_000_001, 3_000_000]


def test_a_full_pipe_that_does_not_block_is_waited_for() -> None:
    """A child may have made it so; the time until it is read costs little."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    received = bytearray()

    def read() -> None:
        time.sleep(0.5)
        while piece := os.read(reads, 1 << 16):
            received.extend(piece)

    reading = Thread(target=read)
    reading.start()
    begun = time.thread_time()
    with WholeFile(writes, "w") as file:
        assert file.write(b"x" * 1_000_000) == 1_000_000
        spent = time.thread_time() - begun
    reading.join()
    os.close(reads)
    assert len(received) == 1_000_000
    assert spent < 0.25


def test_output_that_is_held_still_has_its_attempt(workers: Processes) -> None:
    """It is read at the latest before the reply."""
    workers.read_output(False)
    first, second = Recorder(), Recorder()
    for number, output in ((1, first), (2, second)):
        workers.start(0, "say", lambda text: print(text), (number,), Conditions(output=output))
        assert one(workers).status == "done"
    assert (first.printed["out"], second.printed["out"]) == (b"1\n", b"2\n")


def test_the_terminal_shows_it_unless_its_attempt_says_otherwise(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Stdout of tasks goes to the given descriptor."""
    with Processes(1, stdout=1) as workers:
        for output in (Recorder(), Recorder(is_shown=False), None):
            conditions = Conditions(output=output)
            workers.start(0, "say", lambda shown: print(shown), (str(output),), conditions)
            one(workers)
            shown = "" if output and not output.is_shown else f"{output}\n"
            assert capfd.readouterr() == (shown, "")


@pytest.fixture
def stopped_pipe() -> tuple[int, int]:
    """A pipe that takes no more until somebody reads it."""
    ends = os.pipe()
    size = fcntl.fcntl(ends[1], fcntl.F_GETPIPE_SZ)
    os.write(ends[1], b"-" * size)
    return ends


def test_a_stopped_terminal_stops_nothing(stopped_pipe: tuple[int, int]) -> None:
    """What is written meanwhile appears when it continues."""
    read_end, write_end = stopped_pipe
    waits: dict[int, int] = {}
    terminal = Terminal(write_end, lambda file, events, _: waits.update({file: events}))
    terminal.write(b"a" * UNSENT_BYTES_MAX)
    assert waits == {write_end: select.POLLOUT}
    found: list[bytes] = []

    def read() -> None:
        with open(read_end, "rb") as file:
            found.append(file.read())

    reader = Thread(target=read)
    reader.start()
    terminal.close()
    os.close(write_end)
    reader.join(TIMEOUT)
    assert found[0].lstrip(b"-") == b"a" * UNSENT_BYTES_MAX


def test_a_terminal_that_is_closed_takes_everything(tmp_path: Path) -> None:
    """A full disk or a closed pipe must not stop a run."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    full = os.open("/dev/full", os.O_WRONLY)
    for file in (write_end, full):
        terminal = Terminal(file, lambda *_: None)
        terminal.write(b"lost")
        terminal.close()
        os.close(file)
