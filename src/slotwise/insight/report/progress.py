"""Progress of a run: a table with one line per job on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slotwise.core.decisions import Decision, GiveUp, Launch
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
)
from slotwise.core.job import Job
from slotwise.insight.report.text import printable, without_file

REDRAW_SECONDS = 0.2

_HOST_EVENTS = {HostLost: "unresponsive", HostJoined: "reconnected", HostRemoved: "left"}

BAR_WIDTH = 12
"""The width of a job's bar, in characters."""


@dataclass(slots=True)
class JobLine:
    """The data shown for one job."""

    job: Job
    done: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    slots: int = 0
    ended: str = ""
    total: int = 0

    def __post_init__(self) -> None:
        self.total = sum(phase.tasks.count for phase in self.job.phases)

    @property
    def phase(self) -> str:
        """The first phase that is not done."""
        for phase in self.job.topological:
            if self.done.get(phase.name, 0) < phase.tasks.count:
                return phase.name
        return "done"

    @property
    def tasks(self) -> str:
        """Tasks done and all tasks, as "3/8"."""
        return f"{sum(self.done.values())}/{self.total}"

    def seconds_left(self) -> float | None:
        """Estimated seconds to the end if the job keeps its slots; None if unknown.

        Each task takes the mean time of the finished tasks of its phase, or its estimate.
        """
        if not self.slots:
            return None
        left = 0.0
        for phase in self.job.phases:
            done = self.done.get(phase.name, 0)
            known, among = self.seconds.get(phase.name), done
            if not done:
                known, among = phase.work_total(), phase.tasks.count
            if known is None:
                return None
            left += known / among * (phase.tasks.count - done)
        return left / self.slots


class Progress:
    """A record for the loop that shows the progress of jobs, and a context manager.

    On a terminal a table is redrawn a few times a second. Elsewhere a line is printed when a
    job starts and when it ends. Failed tasks are always shown; each reason of a job is printed
    once.
    """

    def __init__(self, console: Console, *titles: str, note: str = "") -> None:
        """Set a title for each run, in order. Several titles also head plain lines.

        note  a line that is shown at the start of the first run
        """
        self._note = note
        self._console = console
        self._title, *self._later = titles
        self._heads = bool(self._later)
        self._lines: dict[str, JobLine] = {}
        self._reasons: set[tuple[str, str]] = set()  # Of failures, by job.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Show one turn."""
        if self._note:
            self._print(self._note)
            self._note = ""
        if any(isinstance(e, JobArrived) and e.job.id in self._lines for e in events):
            self._lines.clear()  # The same jobs arrive again in the next run.
            self._reasons.clear()
            self._title = self._later.pop(0)
        if self._heads and not self._lines and not self._is_redrawn:
            self._print(self._title)
        for event in events:
            if isinstance(event, JobArrived):
                self._lines[event.job.id] = JobLine(event.job)
            elif isinstance(event, TaskEnded):
                self._task_ended(event)
            elif isinstance(event, OutputLost):
                self._lines[event.phase.job].done[event.phase.phase] -= len(event.tasks)
                self._print_at(now, f"{event.phase}: output lost, {len(event.tasks)} again")
            elif isinstance(event, HostAdded):
                self._print_at(now, f"host {event.host.name}: joined")
            elif isinstance(event, HostLost | HostJoined | HostRemoved):
                self._print_at(now, f"host {event.host}: {_HOST_EVENTS[type(event)]}")
        for decision in decisions:
            if isinstance(decision, Launch):
                self._launched(now, decision)
            elif isinstance(decision, GiveUp):
                self._lines[decision.job].ended = "failed"
                why = self._why(decision.job, decision.reason, "")
                self._print_at(now, f"{decision.job}: FAILED{why}")
        if self._is_redrawn and time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._draw(self._table(now))
            self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        if self._is_redrawn:
            self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    @property
    def _is_redrawn(self) -> bool:
        """Whether a table is redrawn instead of printing lines."""
        return self._console.is_terminal

    def _begin(self) -> None:
        self._live.start()

    def _draw(self, table: Table) -> None:
        self._live.update(table, refresh=True)

    def _end(self) -> None:
        self._live.stop()

    def _launched(self, now: float, launch: Launch) -> None:
        line = self._lines[launch.phase.job]
        begins = launch.attempt == 1 and not line.slots and not line.done
        if begins and not self._is_redrawn:
            self._print_at(now, f"{launch.phase.job}: started")
        line.slots += 1

    def _task_ended(self, event: TaskEnded) -> None:
        line, phase = self._lines[event.phase.job], event.phase.phase
        line.slots -= 1
        if isinstance(event, TaskFinished):
            line.done[phase] = line.done.get(phase, 0) + 1
            line.seconds[phase] = line.seconds.get(phase, 0.0) + event.seconds
            if line.phase == "done":
                line.ended = "done"
                response = event.at - line.job.arrival
                self._print_at(event.at, f"{line.job.id}: done, response {response:.2f} s")
        elif isinstance(event, TaskFailed):
            what = "lost" if event.lost else "failed"
            why = self._why(event.phase.job, event.reason, " for the same reason")
            attempt = f"{event.phase} task {event.task}, attempt {event.attempt}"
            self._print_at(event.at, f"{attempt} {what}{why}")

    def _why(self, job: str, reason: str, again: str) -> str:
        """Return the reason after a colon, or `again` if it was printed before."""
        key = job, without_file(reason)
        if key in self._reasons:
            return again
        self._reasons.add(key)
        return f": {reason}"

    def _print_at(self, instant: float, text: str) -> None:
        self._print(f"{instant:8.2f} s  {text}")

    def _print(self, text: str) -> None:
        self._console.print(Text(printable(text, lines=True)), soft_wrap=True)

    def _listed(self) -> Iterable[JobLine]:
        return self._lines.values()

    def _table(self, now: float) -> Table:
        table = Table(title=f"{self._title}, {now:.1f} s", title_justify="left", box=None)
        for column in ("job", "pool", "phase", "", "tasks", "slots", "done in"):
            table.add_column(
                column, justify="right" if column in ("tasks", "slots") else "left"
            )
        for line in self._listed():
            left = line.seconds_left()
            wait = "waits" if left is None else f"about {left:.0f} s"
            table.add_row(
                Text(printable(line.job.id)),
                Text(printable(line.job.pool)),
                Text(printable(line.phase)),
                ProgressBar(line.total, sum(line.done.values()), width=BAR_WIDTH),
                line.tasks,
                str(line.slots),
                line.ended or wait,
            )
        return table
