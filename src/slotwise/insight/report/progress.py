"""Progress of a run: a table that fits the terminal, and lines of changes elsewhere.

    loop -> Progress: counts of each job, and news -> a thread that prints them

The loop only counts: another thread prints, so that no run waits for a slow terminal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Event as Flag
from threading import Lock, Thread
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slotwise.core.decisions import Decision, GiveUp, Launch
from slotwise.core.dependencies import CANCELLED, was_cancelled
from slotwise.core.estimation import work_left
from slotwise.core.events import (
    Event,
    HostAdded,
    HostJoined,
    HostLost,
    HostRemoved,
    JobArrived,
    OutputLost,
    TaskEnded,
    TaskFailed,
    TaskFinished,
    launches,
)
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.insight.report.ranges import span
from slotwise.insight.report.text import (
    in_states,
    instant,
    printable,
    roughly,
    seconds,
    without_file,
)

REDRAW_SECONDS = 0.25
"""Seconds between two drawings of the table."""

LINES_SECONDS = 1.0
"""Seconds between two groups of lines."""

MAX_LINES = 10
"""The maximum number of lines in a group; a summary replaces more."""

BAR_WIDTH, BAR_FROM = 12, 60
"""The width of a bar, and the least width of a terminal that shows bars, in characters."""

OTHER_LINES = 4
"""The lines of the screen that have no job: the title, the header, the rest, the cursor."""

STATES = ("done", "failed", "cancelled", "running", "waiting")
"""The states of jobs, in the order of summaries."""

_HOST_EVENTS = {HostLost: "unresponsive", HostJoined: "reconnected", HostRemoved: "left"}


@dataclass(slots=True)
class PhaseCount:
    """The tasks of a phase that are done or running.

    seconds  the measured work of those that are done
    starts   the sum of the starts of those that run
    """

    done: int = 0
    running: int = 0
    seconds: float = 0.0
    starts: float = 0.0

    def left(self, phase: Phase, now: float) -> float | None:
        """Estimated work that is left, in seconds; None if nothing is known. O(1)."""
        tasks, stated = phase.tasks.count, phase.work_total()
        if stated is None and not self.done:
            return None
        # Without an estimate, all tasks are taken to be as long as the finished ones.
        each = 1.0 if stated is None else stated / (tasks * phase.slots)
        return work_left(
            each * (tasks - self.done - self.running),
            each * self.running,
            each * self.done,
            self.seconds,
            self.running * now - self.starts,
        )


@dataclass(slots=True)
class JobLine:
    """The data shown for one job. `ended` is empty until it is done, failed or cancelled."""

    job: Job
    ended: str = ""
    failed: int = 0
    has_begun: bool = False
    phases: dict[str, PhaseCount] = field(default_factory=dict)
    total: int = 0
    done: int = 0
    running: int = 0

    def __post_init__(self) -> None:
        self.total = sum(phase.tasks.count for phase in self.job.phases)
        self.phases = {phase.name: PhaseCount() for phase in self.job.phases}

    @property
    def state(self) -> str:
        """One of STATES."""
        return self.ended or ("running" if self.running else "waiting")

    def seconds_left(self, now: float) -> float | None:
        """Estimated seconds to the end if the job keeps its slots; None if unknown."""
        left = 0.0
        for phase in self.job.phases:
            counted = self.phases[phase.name]
            if counted.done < phase.tasks.count:
                of_phase = counted.left(phase, now)
                if of_phase is None:
                    return None
                left += of_phase
        return left / self.running if self.running else None


class Progress:
    """A record for the loop that shows the progress of jobs, and a context manager.

    On a terminal a table is redrawn at most every REDRAW_SECONDS, with as many jobs as fit.
    Elsewhere a line is printed when a job starts and when it ends. Failed attempts are always
    shown; each reason of a job is printed once. More than MAX_LINES lines in LINES_SECONDS
    become one summary. A turn costs what changes, a drawing what it shows.
    """

    def __init__(self, console: Console, *titles: str, note: str = "") -> None:
        """Set a title for each run, in order. Several titles also head plain lines.

        note  a line that is shown at the start of the first run
        """
        self._console = console
        self._title, *self._later = titles
        self._heads = bool(self._later)
        self._note = note
        self._fixed: list[str] = []  # Lines that no summary replaces.
        self._now = self._turned = 0.0  # The last turn, by the clocks of the run and of Python.
        self._printed = -LINES_SECONDS
        self._has_begun = False
        self._begin()
        self._lock, self._over = Lock(), Flag()
        self._thread = Thread(target=self._print_often, name="slotwise progress", daemon=True)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Count one turn."""
        with self._lock:
            if any(isinstance(e, JobArrived) and e.job.id in self._lines for e in events):
                self._fixed += self._taken_news()  # The same jobs arrive again: the next run.
                self._title = self._later.pop(0)
                self._begin()
            if not self._has_begun:
                title = self._title if self._heads and not self._is_redrawn else ""
                self._fixed += filter(None, (self._note, title))
                self._has_begun, self._note = True, ""
            self._now, self._turned = now, time.monotonic()
            for event in events:
                self._count_event(event)
            for launch in launches(events, decisions):
                self._launched(launch)
            for decision in decisions:
                if isinstance(decision, GiveUp):
                    self._given_up(decision)

    def ends(self) -> Mapping[str, tuple[float, float]]:
        """The ranges in which jobs end, on the clock of the run, as far as they are known."""
        return {}

    def __enter__(self) -> Self:
        if self._is_redrawn:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._print_lines()
        self._live.stop()

    @property
    def _is_redrawn(self) -> bool:
        """Whether a table is redrawn instead of printing lines about jobs."""
        return self._console.is_terminal

    # What the loop counts.

    def _begin(self) -> None:
        self._has_begun = False
        self._lines: dict[str, JobLine] = {}
        self._by_state: dict[str, dict[str, JobLine]] = {state: {} for state in STATES}
        self._starts: dict[tuple[PhaseId, int, int], float] = {}  # Of running attempts.
        self._reasons: set[tuple[str, str]] = set()  # Of failures, by job.
        self._news: list[str] = []

    def _count_event(self, event: Event) -> None:
        if isinstance(event, JobArrived):
            line = self._lines[event.job.id] = JobLine(event.job)
            self._by_state[line.state][event.job.id] = line
        elif isinstance(event, TaskEnded):
            self._task_ended(event)
        elif isinstance(event, OutputLost):
            line, lost = self._lines[event.phase.job], len(event.tasks)
            line.done -= lost
            line.phases[event.phase.phase].done -= lost
            self._add(f"{event.phase}: output lost, {lost} again")
        elif isinstance(event, HostAdded):
            self._add(f"host {event.host.name}: joined")
        elif isinstance(event, HostLost | HostJoined | HostRemoved):
            self._add(f"host {event.host}: {_HOST_EVENTS[type(event)]}")

    def _launched(self, launch: Launch) -> None:
        line = self._lines[launch.phase.job]
        self._starts[launch.phase, launch.task, launch.attempt] = self._now
        if not line.has_begun:
            self._add_of_job(f"{launch.phase.job}: started")
        line.has_begun = True
        self._change_running(line, launch.phase.phase, 1, self._now)

    def _task_ended(self, event: TaskEnded) -> None:
        start = self._starts.pop((event.phase, event.task, event.attempt), None)
        if start is None:
            return  # A late or repeated event.
        line, phase = self._lines[event.phase.job], event.phase.phase
        if isinstance(event, TaskFinished):
            line.done += 1
            line.phases[phase].done += 1
            line.phases[phase].seconds += event.seconds
        elif isinstance(event, TaskFailed):
            line.failed += 1
            what = "lost" if event.lost else "failed"
            why = self._why(line.job.id, event.reason, " for the same reason")
            self._add(f"{event.phase} task {event.task}, attempt {event.attempt} {what}{why}")
        self._change_running(line, phase, -1, start)
        if line.done == line.total and not line.ended:
            self._end(line, "done")
            self._add_of_job(
                f"{line.job.id}: done, response {seconds(event.at - line.job.arrival)}"
            )

    def _given_up(self, decision: GiveUp) -> None:
        line = self._lines[decision.job]
        self._end(line, "cancelled" if was_cancelled(line.job, decision.reason) else "failed")
        by_user = decision.reason == CANCELLED  # Which says no more than the state.
        why = "" if by_user else self._why(decision.job, decision.reason, "")
        self._add(f"{decision.job}: {line.ended.upper()}{why}")

    def _change_running(self, line: JobLine, phase: str, by: int, start: float) -> None:
        before = line.state
        line.running += by
        line.phases[phase].running += by
        line.phases[phase].starts += by * start
        self._move(line, before)

    def _end(self, line: JobLine, how: str) -> None:
        before, line.ended = line.state, how
        self._move(line, before)

    def _move(self, line: JobLine, before: str) -> None:
        if line.state != before:
            del self._by_state[before][line.job.id]
            self._by_state[line.state][line.job.id] = line

    def _why(self, job: str, reason: str, again: str) -> str:
        """Return the reason after a colon, or `again` if it was printed before."""
        key = job, without_file(reason)
        if key in self._reasons:
            return again
        self._reasons.add(key)
        return f": {reason}"

    def _add_of_job(self, text: str) -> None:
        if not self._is_redrawn:
            self._add(text)

    def _add(self, text: str) -> None:
        if len(self._news) <= MAX_LINES:
            self._news.append(f"{instant(self._now):>9}  {text}")

    # What the thread prints.

    def _print_often(self) -> None:
        while not self._over.wait(REDRAW_SECONDS):
            if time.monotonic() - self._printed >= LINES_SECONDS:
                self._print_lines()
            if self._is_redrawn and self._has_begun:
                width, height = self._console.size
                later = time.monotonic() - self._turned
                shown = self.screen(width, max(1, height - OTHER_LINES), later)
                self._live.update(shown, refresh=True)

    def _print_lines(self) -> None:
        lines = self.taken_lines()
        for line in lines:
            self._console.print(Text(printable(line, lines=True)), soft_wrap=True)
        if lines:
            self._printed = time.monotonic()

    def taken_lines(self) -> list[str]:
        """The lines since the last call, at most MAX_LINES of them about jobs."""
        with self._lock:
            lines = self._fixed + self._taken_news()
            self._fixed = []
        return lines

    def _taken_news(self) -> list[str]:
        """The news, which are then over; a summary if they are too many."""
        news, self._news = self._news, []
        if len(news) > MAX_LINES:
            return [f"{instant(self._now):>9}  jobs: {self._summary()}"]
        return news

    def _summary(self, shown: Iterable[JobLine] = ()) -> str:
        """The numbers of jobs by state, without those shown."""
        numbers = {state: len(lines) for state, lines in self._by_state.items()}
        for line in shown:
            numbers[line.state] -= 1
        return in_states(numbers)

    def _listed(self, most: int) -> list[JobLine]:
        """The jobs to show: all by arrival if they fit; else failed, running, waiting ones."""
        if len(self._lines) <= most:
            return list(self._lines.values())
        failed = reversed(self._by_state["failed"].values())
        first = list(islice(failed, max(1, most // 4)))
        groups: Iterator[JobLine] = chain.from_iterable(
            self._by_state[state].values() for state in ("running", "waiting")
        )
        return [*first, *islice(groups, most - len(first))]

    def screen(self, width: int, most: int, later: float = 0.0) -> Group:
        """A line about all jobs and a table of at most `most`, in `width` columns. O(most).

        later  seconds since the last turn
        """
        table = Table(box=None, pad_edge=False)
        table.add_column("job")  # The only column that may get narrower.
        if width >= BAR_FROM:
            table.add_column("", width=BAR_WIDTH)
        for name in ("done", "running", "failed", "left"):
            table.add_column(name, justify="right", no_wrap=True)
        ends = self.ends()
        with self._lock:
            now, listed = self._now + later, self._listed(most)
            for line in listed:
                left = _left(line, ends.get(line.job.id), now)
                table.add_row(*_cells(line, left, width >= BAR_FROM))
            title = f"{self._title}, {instant(now)}: {self._summary() or 'no jobs'}"
            more = len(self._lines) - len(listed)
            rest = f"and {more:,} more: {self._summary(listed)}" if more else ""
        lines = [Text(text, no_wrap=True, overflow="ellipsis") for text in (title, rest)]
        lines[0].stylize("bold")
        return Group(lines[0], table, *lines[1 : 1 + bool(rest)])


def _left(line: JobLine, end: tuple[float, float] | None, now: float) -> str:
    """The remaining time of a job: a range if its end is forecast, else an estimate."""
    if end is not None and not line.ended:
        return span(end[0] - now, end[1] - now)
    left = line.seconds_left(now)
    return ("" if left is None else roughly(left)) if line.state == "running" else line.state


def _cells(line: JobLine, left: str, has_bar: bool) -> Iterator[Text | ProgressBar]:
    """The cells of a job: its name, bar, tasks, running, failed and remaining time."""
    yield Text(printable(line.job.id), no_wrap=True, overflow="ellipsis")
    if has_bar:
        yield ProgressBar(line.total, line.done, width=BAR_WIDTH)
    yield Text(f"{line.done:,}/{line.total:,}")
    yield Text(f"{line.running:,}" if line.running else "")
    yield Text(f"{line.failed:,}" if line.failed else "", style="red")
    yield Text(left, style="red" if line.ended == "failed" else "")
