"""Functions that run together in forked children: results, causes of failures, ends."""

from __future__ import annotations

import copyreg
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from slotwise import task
from slotwise.core.errors import SlotwiseError
from slotwise.jobs.channels.carriers import BrokenChannelError
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.dataflow.process_group import run_together
from slotwise.jobs.endings import descendants
from slotwise.jobs.execution import LostAttemptError, LostInputError
from slotwise.jobs.hosts.files import MissingFilesError


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """All processes that a test starts have ended after it; others began before it."""
    before = descendants(os.getpid())
    yield
    assert set(descendants(os.getpid())) <= set(before)


def hang() -> NoReturn:
    """Never returns, and hears of no channel."""
    while True:
        time.sleep(1000)


def broken() -> NoReturn:
    """Fails because another process has failed."""
    raise BrokenChannelError("the other end")


def wrong() -> NoReturn:
    """Fails by itself."""
    raise ValueError("wrong")


def killed() -> NoReturn:
    """Its process ends without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    hang()


def test_results_are_in_the_order_of_the_functions() -> None:
    """The first one runs in this process, each other one in another."""
    pids = run_together({"a": os.getpid, "b": os.getpid, "c": os.getpid})
    assert pids[0] == os.getpid()
    assert len(set(pids)) == 3
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


@pytest.mark.parametrize(
    "functions",
    [
        {"own": hang, "b": wrong, "c": hang},
        {"own": broken, "b": wrong, "c": hang},
        {"own": hang, "b": broken, "c": wrong},
    ],
)
def test_the_cause_in_a_child_is_told(functions: dict[str, Callable[[], object]]) -> None:
    """A function that hangs is interrupted or killed; a broken channel is no cause."""
    with pytest.raises(SlotwiseError, match=r"(?s)^Traceback.*ValueError: wrong"):
        run_together(functions)


def test_an_error_in_this_process_is_raised_as_it_is() -> None:
    """Also if a channel breaks before that; the children are killed."""
    reads, writes = os.pipe()

    def wrong_when_interrupted() -> NoReturn:
        with suppress(BrokenChannelError):
            os.write(writes, b"begun")
            hang()
        wrong()

    def broken_later() -> NoReturn:
        os.read(reads, 1)
        broken()

    with pytest.raises(ValueError, match="wrong"):
        run_together({"own": wrong_when_interrupted, "b": hang, "c": broken_later})
    os.close(reads)
    os.close(writes)


def test_a_broken_channel_without_a_cause_here_gives_its_reason() -> None:
    """The cause is in another group, so the error stays one of a channel."""
    with pytest.raises(BrokenChannelError, match=r"^the other end$"):
        run_together({"own": broken, "b": broken})


def test_lost_input_of_a_child_is_raised_as_it_is() -> None:
    """The manager has the files made again."""

    def lost() -> NoReturn:
        raise LostInputError("maps", ((1, 2),), "a file")

    with pytest.raises(LostInputError) as caught:
        run_together({"own": hang, "b": lost})
    assert (caught.value.phase, caught.value.outputs) == ("maps", ((1, 2),))


def test_lost_input_is_raised_whatever_its_cause() -> None:
    """With distributed, exceptions are pickled with their causes; one here cannot be read."""

    def lost() -> NoReturn:
        pytest.importorskip("tblib.pickling_support").install()
        copyreg.dispatch_table.pop(MissingFilesError, None)  # As if it was imported later.
        raise LostInputError("maps", ((1, 2),), "a file") from MissingFilesError([0], "a:1")

    with pytest.raises(LostInputError) as caught:
        run_together({"own": hang, "b": lost})
    assert caught.value.outputs == ((1, 2),)


def test_a_killed_child_breaks_its_channel_and_is_the_cause() -> None:
    """The reader in this process notices it."""
    ring = SharedRing()

    def read() -> list[object]:
        return list(ring.reader())

    def write() -> None:
        ring.writer().write(1)
        killed()

    with pytest.raises(LostAttemptError, match=r"b: its process \d+ was killed by signal 9"):
        run_together({"own": read, "b": write})


def test_what_children_have_started_is_killed() -> None:
    """Also if it leads a group of its own."""

    def start() -> NoReturn:
        subprocess.Popen([sys.executable, "-c", "while 1: pass"], start_new_session=True)
        hang()

    before = len(descendants(os.getpid()))

    def wait_for_it() -> NoReturn:
        while len(descendants(os.getpid())) < before + 2:
            time.sleep(0.01)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_together({"own": wait_for_it, "b": start})


def test_what_a_child_leaves_when_it_returns_is_killed() -> None:
    """As that of a child that fails: it leads a group of its own, and nobody waits for it."""

    def start() -> int:
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid

    _, pid = run_together({"own": os.getpid, "b": start})
    assert isinstance(pid, int)
    while Path(f"/proc/{pid}").exists():  # Until init has waited for it.
        time.sleep(0.01)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """After success and after failure."""
    gc.collect()  # Channels of other tests may be collected meanwhile.
    before = len(os.listdir("/proc/self/fd"))
    run_together({"a": tmp_path.exists, "b": tmp_path.exists})
    with pytest.raises(ValueError, match="wrong"):
        run_together({"a": wrong, "b": hang})
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_function_that_stops_on_request_ends_all() -> None:
    """What it keeps is kept; the children, which hear of no request, are killed."""

    def deaf() -> NoReturn:
        assert not task.stop_requested()
        hang()

    attempt = task.begin(lambda: time.monotonic())
    try:
        with pytest.raises(task.Stopped):
            run_together({"own": lambda: task.stop(keep=7), "b": deaf})
    finally:
        task.end()
    assert attempt.stopped is not None
    assert attempt.stopped.value == 7
