"""HTML of sessions and their jobs for notebooks, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import overload

from slotwise.insight.explanation import PhaseExplained
from slotwise.insight.report.grid import grid_lines
from slotwise.insight.report.text import counted, seconds

MAX_ROWS = 20
"""The maximum number of unfinished jobs in the table in a notebook."""

MAX_ENDED = 5
"""The maximum number of jobs that ended there."""

OVER = ("completed", "failed", "cancelled")
"""The states of jobs that are over."""

DONE, RUNNING, WAITING, FAILED, IDLE = "#009e73", "#56b4e9", "#e69f00", "#d55e00", "#888888"
"""Colours that are distinct on white, on black, and for colour-blind readers."""

_COLOURS = {
    "running": RUNNING,
    "waiting": WAITING,
    "idle": IDLE,
    "done": DONE,
    "completed": DONE,
    "failed": FAILED,
    "cancelled": IDLE,
}
_TABLE = "border-collapse: collapse; margin: 0; color: inherit; font-size: inherit"
_CELL = "padding: 4px 14px 4px 0; text-align: left; vertical-align: middle"
_RULE = "border-bottom: 1px solid rgba(128, 128, 128, 0.3)"
_FRAME = "overflow-x: auto; font-variant-numeric: tabular-nums; line-height: 1.4"


@dataclass(frozen=True, slots=True)
class SessionJob:
    """A job of a session at an instant. Times are in seconds since the session began.

    state     "waiting", "running", "idle" if all its tasks are done and more may come,
              "completed", "failed", also if a call has raised, or "cancelled"
    tasks     the number of its tasks; `done` and `running` of them
    slots     the slots that it holds
    since     since when none of its tasks runs, if it waits
    reason    why it holds no more slots, or why it failed
    response  from its arrival to its end, or until now
    phases    the explanations of its phases; empty if it is over or has not arrived yet
    """

    job: str
    pool: str
    state: str
    tasks: int
    done: int
    running: int
    slots: int
    since: float | None
    reason: str
    response: float
    phases: tuple[PhaseExplained, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionJobs(Sequence[SessionJob]):
    """The jobs of a session at an instant: those that are not over, then the last that ended.

    It is a sequence of jobs, and prints as a table. `len` and `bool` count the jobs that ended,
    too; `left` and `over` count all jobs, also those that are not in the sequence.

    at       seconds since the session began; of a closed session, when it ended
    slots    the slots of the session; `held`: those in use
    left     the number of unfinished jobs
    over     the number of finished jobs
    waiting  the number of calls that wait for results of other calls
    free     the free and the total amounts of other resources, by name, as text
    title    whose jobs they are
    """

    scheduler: str
    is_open: bool
    at: float
    slots: int
    held: int
    rows: tuple[SessionJob, ...]
    left: int
    over: int
    waiting: int = 0
    free: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    title: str = "session"

    @overload
    def __getitem__(self, index: int) -> SessionJob: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SessionJob, ...]: ...

    def __getitem__(self, index: int | slice) -> SessionJob | tuple[SessionJob, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        rows = self.rows
        columns = {
            "job": [row.job for row in rows],
            "pool": [row.pool for row in rows],
            "state": [row.state for row in rows],
            "done": [f"{row.done:,}/{row.tasks:,}" for row in rows],
            "running": [f"{row.running:,}" for row in rows],
            "waits since": ["" if row.since is None else seconds(row.since) for row in rows],
            "response": [seconds(row.response) for row in rows],
            "reason": [row.reason for row in rows],
        }
        state = "open" if self.is_open else "closed"
        head = f"{self.title} ({self.scheduler}, {state}) at {seconds(self.at)}: {self.facts()}"
        return "\n".join([head, *(grid_lines(columns) if rows else ())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return session_html(self)

    def facts(self) -> str:
        """The numbers of slots, jobs and waiting calls, and what else is held, in words."""
        held = {name: amounts for name, amounts in self.free.items() if len({*amounts}) > 1}
        facts = [
            f"{self.held} of {counted(self.slots, 'slot')} held",
            *(f"{name} {free} of {all_} free" for name, (free, all_) in held.items()),
            f"{counted(self.left, 'job')} not over",
            f"{self.over:,} over",
        ]
        if self.waiting:
            facts.append(f"{counted(self.waiting, 'call')} waiting for results of others")
        return ", ".join(facts)


def session_html(shown: SessionJobs) -> str:
    """A line about the session, and a table of its jobs."""
    state = "open" if shown.is_open else "closed"
    what = f"<strong>{shown.title.capitalize()}</strong> ({escape(shown.scheduler)}, {state})"
    head = f"<p>{what}: {shown.facts()}</p>"
    alive = [row for row in shown.rows if row.state not in OVER]
    ended = [row for row in shown.rows if row.state in OVER]
    more = shown.left - len(alive[:MAX_ROWS])
    rest = f"<p>{more:,} more jobs are not listed.</p>" if more > 0 else ""
    table = _table([*alive[:MAX_ROWS], *ended[:MAX_ENDED]])
    return f'<div style="{_FRAME}">{head}{table}{rest}</div>'


def future_html(name: str, state: str, problem: str = "", job: SessionJob | None = None) -> str:
    """A line about a future, and its job if that is not over."""
    colour = _COLOURS.get(state, IDLE)
    line = f"<p><strong>{escape(name)}</strong>: {_state(state, colour)}"
    line += f": {escape(problem)}</p>" if problem else "</p>"
    return f'<div style="{_FRAME}">{line}{_table([job] if job else [])}</div>'


def _table(jobs: Sequence[SessionJob]) -> str:
    if not jobs:
        return ""
    titles = (
        "job",
        "pool",
        "state",
        "tasks done",
        "slots",
        "waits since",
        "response",
        "reason",
    )
    head = "".join(f'<th style="{_CELL}; {_RULE}">{title}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(_cells(job))}</tr>" for job in jobs)
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cells(job: SessionJob) -> list[str]:
    since = "" if job.since is None else seconds(job.since)
    cells = [
        *(escape(job.job), escape(job.pool), _state(job.state, _COLOURS[job.state])),
        *(_progress(job), str(job.slots), since, seconds(job.response), escape(job.reason)),
    ]
    return [f'<td style="{_CELL}; {_RULE}">{cell}</td>' for cell in cells]


def _state(state: str, colour: str) -> str:
    dot = f'<span style="color: {colour}">●</span>'
    return f'<span style="white-space: nowrap">{dot} {escape(state)}</span>'


def _progress(job: SessionJob) -> str:
    """A bar of the done and running tasks, and their numbers."""
    parts = [
        f'<span style="width: {100 * count / max(1, job.tasks):.1f}%; background: {colour}">'
        "</span>"
        for count, colour in ((job.done, DONE), (job.running, RUNNING))
    ]
    bar = (
        '<span style="display: inline-flex; width: 120px; height: 8px; overflow: hidden;'
        ' border-radius: 4px; background: rgba(128, 128, 128, 0.25); margin-right: 8px">'
        f"{''.join(parts)}</span>"
    )
    return f'<span style="white-space: nowrap">{bar}{job.done:,}/{job.tasks:,}</span>'
