"""What is shown while jobs run, on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from threading import Event

from rich.console import Console

from slotwise import Job, Phase, Tasks
from slotwise.core.decisions import GiveUp, Launch, Locality
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import PhaseId
from slotwise.insight.report.progress import MAX_LINES, Progress

PATIENCE = 30.0
"""Seconds after which a test gives up waiting."""


def job(name: str, tasks: int = 1, work: float | None = 10.0, **rest: object) -> Job:
    """A job of one phase with tasks of 10 s."""
    return Job(name, (Phase("map", Tasks(tasks, work)),), **rest)  # type: ignore[arg-type]


def launch(name: str, task: int = 0, attempt: int = 1) -> Launch:
    """The start of an attempt."""
    return Launch(PhaseId(name, "map"), task, attempt, "h", Locality.NODE)


def finished(at: float, name: str, task: int = 0) -> TaskFinished:
    """The end of a task that took 10 s."""
    return TaskFinished(at, PhaseId(name, "map"), task, 1, 10.0)


def failed(at: float, name: str, attempt: int = 1) -> TaskFailed:
    """The failure of an attempt of the first task."""
    return TaskFailed(at, PhaseId(name, "map"), 0, attempt, "broken")


def arrived(*jobs: Job) -> list[JobArrived]:
    """The arrivals of jobs."""
    return [JobArrived(0.0, one) for one in jobs]


def printed(*turns: tuple[float, Sequence[object], Sequence[object]]) -> list[str]:
    """The lines that a pipe gets of these turns."""
    console = Console(file=StringIO(), width=80)
    with Progress(console, "fifo, live") as record:
        for now, events, decisions in turns:
            record(now, events, decisions)  # type: ignore[arg-type]
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def on_screen(record: Progress, width: int = 80, most: int = 20, later: float = 0.0) -> str:
    """The table on a terminal of this width."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(record.screen(width, most, later))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def terminal(*turns: tuple[float, Sequence[object], Sequence[object]]) -> Progress:
    """What a terminal shows after these turns; nothing is printed."""
    record = Progress(Console(file=StringIO(), force_terminal=True), "fifo, live")
    for now, events, decisions in turns:
        record(now, events, decisions)  # type: ignore[arg-type]
    return record


def test_a_pipe_gets_a_line_for_each_change_of_a_job() -> None:
    """Started, done, failed with the reason, and cancelled with the job before it."""
    after = job("after", after=("bad",))
    why = "job 'bad', for which it waits, has failed"
    assert printed(
        (0.0, arrived(job("good"), job("bad"), after), [launch("good"), launch("bad")]),
        (10.04, [finished(10.04, "good")], []),
        (700.0, [failed(700.0, "bad")], [GiveUp("bad", "task 0: broken")]),
        (950.0, [], [GiveUp("after", why)]),
    ) == [
        "    0.0 s  good: started",
        "    0.0 s  bad: started",
        "   10.0 s  good: done, response 10.0 s",
        "    700 s  bad/map task 0, attempt 1 failed: broken",
        "    700 s  bad: FAILED: task 0: broken",
        f" 15.8 min  after: CANCELLED: {why}",
    ]


def test_many_changes_become_a_summary() -> None:
    """Its numbers are those at the end."""
    names = [f"j{number}" for number in range(40)]
    assert printed(
        (0.0, arrived(*map(job, names)), [launch(name) for name in names[:30]]),
        (9.0, [finished(9.0, name) for name in names[:20]], [GiveUp(names[39], "broken")]),
    ) == ["    9.0 s  jobs: 20 done, 1 failed, 10 running, 9 waiting"]


def test_as_many_changes_as_fit_are_printed_one_by_one() -> None:
    """And one more is too many."""
    for count, lines in ((MAX_LINES, MAX_LINES), (MAX_LINES + 1, 1)):
        names = [f"j{number}" for number in range(count)]
        turn = (0.0, arrived(*map(job, names)), [launch(name) for name in names])
        assert len(printed(turn)) == lines


def test_a_terminal_shows_a_line_for_each_job() -> None:
    """Tasks done of all, running, failed attempts, and the remaining time."""
    record = terminal(
        (0.0, arrived(job("a", 3), job("b"), job("c")), [launch("a", 0), launch("a", 1)]),
        (5.0, [], [launch("b")]),
        (10.0, [finished(10.0, "a"), failed(10.0, "b")], [launch("b", attempt=2)]),
        (15.0, [], []),
    )
    assert on_screen(record, width=59).splitlines() == [
        "fifo, live, 15.0 s: 2 running, 1 waiting",
        "job  done  running  failed     left",
        "a     1/3        1            ~11 s",
        "b     0/1        1       1     ~5 s",
        "c     0/1                   waiting",
    ]


def test_many_jobs_fit_a_screen() -> None:
    """Some failed ones and those that run come first; the last line has the rest."""
    names = [f"j{number}" for number in range(5000)]
    record = terminal(
        (0.0, arrived(*map(job, names)), [launch(name) for name in names[:1000]]),
        (9.0, [finished(9.0, name) for name in names[:997]], [GiveUp("j4999", "broken")]),
    )
    first, _, *lines, last = on_screen(record, most=6).splitlines()
    assert first == "fifo, live, 9.0 s: 997 done, 1 failed, 3 running, 3,999 waiting"
    assert [line.split()[0] for line in lines] == [
        "j4999",
        "j997",
        "j998",
        "j999",
        *names[1000:1002],
    ]
    assert last == "and 4,994 more: 997 done, 3,997 waiting"


def test_a_narrow_terminal_shows_whole_numbers() -> None:
    """Without a bar; a long name is cut."""
    name = "a" * 100
    record = terminal(
        (0.0, arrived(job(name, 2)), [launch(name)]), (10.0, [finished(10.0, name)], [])
    )
    for width in (40, 60, 80, 200):
        text = on_screen(record, width)
        assert max(map(len, text.splitlines())) <= width
        assert "1/2" in text
        assert ("━" in text) == (width >= 60)


def test_the_remaining_time_follows_from_estimates_and_measurements() -> None:
    """Nothing is shown without either; running tasks count from their starts."""
    unknown = terminal((0.0, arrived(job("a", 4, None)), [launch("a", 0), launch("a", 1)]))
    assert "~" not in on_screen(unknown)
    unknown(10.0, [finished(10.0, "a", 0)], [])
    assert "~21 s" in on_screen(unknown)
    stated = terminal((0.0, arrived(job("b", 1, 600.0)), [launch("b")]))
    assert "~10 min" in on_screen(stated)
    assert "~5 min" in on_screen(stated, later=300.0)


def test_a_killed_attempt_waits_again() -> None:
    """The job runs no more, and no attempt has failed."""
    record = terminal((0.0, arrived(job("a")), [launch("a")]))
    record(1.0, [TaskKilled(1.0, PhaseId("a", "map"), 0, 1)], [])
    assert on_screen(record, width=50).splitlines()[-1].split() == ["a", "0/1", "waiting"]


class BlockedStream(StringIO):
    """A terminal that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for, self.is_released = Event(), Event()

    def write(self, text: str) -> int:
        """Wait, then write."""
        self.is_waited_for.set()
        assert self.is_released.wait(PATIENCE)
        return super().write(text)


def test_a_run_does_not_wait_for_the_terminal() -> None:
    """Its turns end while another thread waits to print."""
    stream = BlockedStream()
    with Progress(Console(file=stream), "fifo, live") as record:
        record(0.0, arrived(job("a")), [launch("a")])
        assert stream.is_waited_for.wait(PATIENCE)
        record(9.0, [finished(9.0, "a")], [])
        assert not stream.is_released.is_set()
        stream.is_released.set()
    assert [line[11:] for line in stream.getvalue().splitlines()] == [
        "a: started",
        "a: done, response 9.00 s",
    ]
