"""The greatest memory of attempts: of calls in workers that stay, and of commands."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from backends.local.calling import TIMEOUT, call
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.worker import PEAK_SECONDS, PeakMeter
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import Event, TaskFailed, TaskFinished
from slotwise.core.job import PhaseId
from slotwise.jobs.commands import plan_commands
from slotwise.jobs.endings import OomKills

MIB = 1 << 20


def fill(mebibytes: int) -> int:
    """Fill memory and free it, in more time than a task that is not measured takes."""
    size = len(b"x" * (mebibytes * MIB))
    time.sleep(PEAK_SECONDS)
    return size


def test_the_peak_of_a_call_is_its_own(workers: Processes) -> None:
    """It begins again for the next call in the same worker."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the kernel's peak cannot be reset here")
    first, second = call(workers, fill, 60), call(workers, fill, 1)
    assert first.peak >= 60 * MIB
    assert 0 < second.peak < first.peak - 40 * MIB


def test_a_failed_call_has_a_peak(workers: Processes) -> None:
    """It comes with its error."""

    def fail() -> None:
        fill(60)
        raise ValueError("full")

    failed = call(workers, fail)
    assert (failed.status, failed.peak >= 60 * MIB) == ("error", True)


def test_the_peak_of_a_worker_is_known_that_the_kernel_has_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a stand-in for its count of such kills: the next attempt needs more."""

    class Killed(OomKills):
        def hint(self) -> str:
            return "; memory was short"

    monkeypatch.setattr("slotwise.backends.local.processes.OomKills", Killed)
    with Processes(1) as workers:
        killed = call(workers, lambda: (fill(60), os.kill(os.getpid(), signal.SIGKILL)))
    assert str(killed.value).endswith("(SIGKILL); memory was short")
    assert (killed.status, killed.peak >= 60 * MIB) == ("lost", True)


def test_a_peak_that_cannot_be_reset_counts_only_if_it_has_grown(tmp_path: Path) -> None:
    """Otherwise it may be that of an earlier task."""
    meter, status = PeakMeter(str(tmp_path)), tmp_path / "status"
    (tmp_path / "clear_refs").mkdir()
    taken = []
    for kib in (500, 500, 400, 700):
        status.write_text(f"Name: python\nVmHWM: {kib} kB\nVmRSS: 5 kB\n")
        taken.append(meter.take())
    assert taken == [500 << 10, 0, 0, 700 << 10]


def test_without_the_files_of_the_kernel_there_is_no_peak(tmp_path: Path) -> None:
    """The task is not disturbed."""
    assert PeakMeter(str(tmp_path)).take() == 0


def end_of(command: str) -> Event:
    """The end of a command in a worker."""
    with LocalBackend([plan_commands("j", command)], 1) as backend:
        backend.wait(0.0)
        backend.perform(Launch(PhaseId("j", "command"), 0, 1, HOST, Locality.ANY))
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            for event in backend.wait(backend.now + 1.0):
                if isinstance(event, TaskFinished | TaskFailed):
                    return event
    raise AssertionError("the command has not ended in time")


@pytest.mark.parametrize(("code", "kind"), [(0, TaskFinished), (3, TaskFailed)])
def test_the_peak_of_a_command_is_that_of_its_processes(code: int, kind: type[Event]) -> None:
    """Not of its worker, whether it fails or not."""
    end = end_of(f"head -c 60M /dev/zero | tail -c 60M > /dev/null; exit {code}")
    assert isinstance(end, TaskFinished | TaskFailed)
    assert type(end) is kind
    assert end.peak is not None
    assert 60 * MIB <= end.peak <= 110 * MIB
