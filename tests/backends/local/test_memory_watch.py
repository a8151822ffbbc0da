"""Attempts that are stopped because of the memory that they use."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path

import pytest

import slotwise
from backends.local.calling import one
from slotwise.backends.local import memory_watch
from slotwise.backends.local.memory_watch import CHECK_SECONDS, Allotment, Excess, MemoryWatch
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Conditions
from slotwise.core.events import TaskFailed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import read_log
from slotwise.jobs.calls import Calls
from slotwise.jobs.commands import plan_commands

GIB, MIB = 1 << 30, 1 << 20


def watching(root: Path, free: int, got: Mapping[int, Allotment], *used: int) -> MemoryWatch:
    """A watch of these attempts on a machine of 8 GiB, of which so much is free."""
    (root / "proc").mkdir(exist_ok=True)
    numbers = f"MemTotal: {8 << 20} kB\nMemAvailable: {free >> 10} kB\n"
    (root / "proc/meminfo").write_text(numbers)
    watch = MemoryWatch(dict(enumerate(used)).__getitem__, str(root))
    for slot, allotment in got.items():
        watch.begin(slot, allotment, 5.0)
    return watch


def test_an_attempt_above_its_limit_is_stopped(tmp_path: Path) -> None:
    """However much memory is free; one at its limit goes on, and one without a limit."""
    got = {0: Allotment(2 * GIB, True), 1: Allotment(2 * GIB, True), 2: Allotment(GIB)}
    watch = watching(tmp_path, 4 * GIB, got, 2 * GIB + 99 * MIB, 2 * GIB, 3 * GIB)
    reason = "used 2.1 GiB, limit 2 GiB"
    assert watch.check(6.0) == [Excess(0, 2 * GIB + 99 * MIB, "exceeded", reason)]


def test_on_a_machine_short_of_memory_the_attempt_most_above_is_stopped(
    tmp_path: Path,
) -> None:
    """Less than a quarter of the reserve of 512 MiB is free; others go on, however large."""
    got = {0: Allotment(GIB), 1: Allotment(GIB // 2), 2: Allotment(4 * GIB)}
    watch = watching(tmp_path, 100 * MIB, got, GIB + MIB, GIB, 4 * GIB)
    reason = (
        "stopped because only 100 MiB of memory were left: it used 1 GiB and had got 512 MiB"
    )
    assert watch.check(6.0) == [Excess(1, GIB, "short", reason)]


@pytest.mark.parametrize(("free", "used"), [(128 * MIB, 2 * GIB), (0, GIB)])
def test_an_attempt_goes_on_while_there_is_memory_or_it_is_within_what_it_got(
    tmp_path: Path, free: int, used: int
) -> None:
    """Memory that is short because of others does not end it."""
    assert watching(tmp_path, free, {0: Allotment(GIB)}, used).check(6.0) == []


def test_checks_are_due_only_while_an_attempt_is_watched(tmp_path: Path) -> None:
    """At regular intervals from the first one on."""
    watch = watching(tmp_path, GIB, {0: Allotment(GIB), 1: Allotment(GIB)}, 0, 0)
    assert watch.next_check == 5.0 + CHECK_SECONDS
    watch.check(6.0)
    assert watch.next_check == 6.0 + CHECK_SECONDS
    watch.end(0)
    watch.end(0)
    assert watch.next_check == 6.0 + CHECK_SECONDS
    watch.end(1)
    assert watch.next_check == inf


def test_the_most_memory_seen_of_an_attempt_is_known_at_its_end(tmp_path: Path) -> None:
    """It may be that of processes which a call has started; for the next one it begins at 0."""
    used = {0: 3 * MIB}
    watch = MemoryWatch(used.__getitem__, str(tmp_path))
    watch.begin(0, Allotment(GIB), 5.0)
    watch.check(6.0)
    used[0] = 2 * MIB
    watch.check(7.0)
    assert [watch.end(0), watch.end(0)] == [3 * MIB, 0]


def hold(mebibytes: int) -> None:
    """Fill memory and wait to be killed."""
    held = b"x" * (mebibytes * MIB)
    while held:
        time.sleep(60)


def test_a_call_above_its_limit_is_killed(workers: Processes) -> None:
    """Its slot runs the next task."""
    workers.start(0, "hold", hold, (140,), Conditions(memory=Allotment(120 * MIB, True)))
    reply = one(workers)
    assert (reply.status, reply.peak >= 120 * MIB) == ("exceeded", True)
    assert str(reply.value).endswith("limit 120 MiB")
    workers.start(0, "abs", abs, (-1,), Conditions(memory=Allotment(120 * MIB, True)))
    assert one(workers).value == 1


def test_a_command_above_its_limit_is_killed(workers: Processes) -> None:
    """Its processes count together, and its worker does not."""
    command = "(head -c 70M /dev/zero; sleep 1000) | tail -c 70M"
    run = plan_commands("j", f"{command} & {command}").runner
    workers.start(0, "run", run, (0, 1, None), Conditions(memory=Allotment(100 * MIB, True)))
    assert (reply := one(workers)).status == "exceeded"
    assert 100 * MIB < reply.peak < 200 * MIB


def failures(log: Path) -> list[TaskFailed]:
    """The failed attempts of a log."""
    events = (event for turn in read_log(log).turns for event in turn.events)
    return [event for event in events if isinstance(event, TaskFailed)]


def test_a_job_with_a_limit_fails_with_what_it_used(tmp_path: Path) -> None:
    """The log has the peak of the attempt; without `memory_limit` it may use more."""
    log = tmp_path / "log.jsonl"
    phase = Phase("p", Tasks(1), resources={"memory": "100 MiB"})
    job = Job("limited", (phase,), attempts=1, memory_limit=True)
    free = Job("free", (phase,))
    work = [Calls(job, lambda task: hold(120)), Calls(free, lambda task: len(b"x" * 120 * MIB))]
    result = slotwise.run(work, "fair", slots=1, log=log)
    assert list(result.failed) == ["limited"]
    (failure,) = failures(log)
    assert re.search(r"used 1\d\d MiB, limit 100 MiB", failure.reason)
    assert failure.peak is not None
    assert failure.peak > 100 * MIB


@pytest.mark.local_only("an agent looks at the memory of its machine itself")
def test_an_attempt_stopped_for_lack_of_memory_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost, which does not count against its task."""
    monkeypatch.setattr(memory_watch, "free_within_limits", lambda root: 0)
    begun, log = tmp_path / "begun", tmp_path / "log.jsonl"

    def work(task: int) -> None:
        if not begun.exists():
            begun.touch()
            hold(120)

    job = Job("j", (Phase("p", Tasks(1), resources={"memory": "100 MiB"}),), attempts=1)
    assert slotwise.run([Calls(job, work)], "fair", slots=1, log=log).failed == {}
    (failure,) = failures(log)
    assert failure.lost
    assert "stopped because only 0 bytes of memory were left: it used 1" in failure.reason


def test_the_worker_of_a_command_does_not_count(workers: Processes) -> None:
    """Neither before the command has begun nor while it runs; it is larger than this limit."""
    run = plan_commands("j", "sleep 0.6").runner
    workers.start(0, "run", run, (0, 1, None), Conditions(memory=Allotment(15 * MIB, True)))
    assert one(workers).status == "done"
