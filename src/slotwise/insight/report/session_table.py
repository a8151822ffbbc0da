"""HTML of sessions and their jobs for notebooks, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from slotwise.insight.explanation import Explanation, summary_of
from slotwise.insight.report.text import counted

MAX_ROWS = 20
"""The maximum number of jobs in the table."""

DONE, RUNNING, WAITING, FAILED, IDLE = "#009e73", "#56b4e9", "#e69f00", "#d55e00", "#888888"
"""Colours that are distinct on white, on black, and for colour-blind readers."""

_COLOURS = {
    "running": RUNNING,
    "waiting": WAITING,
    "idle": IDLE,
    "done": DONE,
    "failed": FAILED,
}
_TABLE = "border-collapse: collapse; margin: 0; color: inherit; font-size: inherit"
_CELL = "padding: 4px 14px 4px 0; text-align: left; vertical-align: middle"
_RULE = "border-bottom: 1px solid rgba(128, 128, 128, 0.3)"
_FRAME = "overflow-x: auto; font-variant-numeric: tabular-nums; line-height: 1.4"


@dataclass(frozen=True, slots=True)
class ShownJob:
    """An unfinished job: its numbers of tasks, and the slots that it holds, and why."""

    explained: Explanation
    tasks: int
    running: int

    @property
    def state(self) -> str:
        """The state of the job in one word."""
        if self.running:
            return "running"
        return "waiting" if summary_of(self.explained).done < self.tasks else "idle"


@dataclass(frozen=True, slots=True)
class ShownSession:
    """A session at an instant: its slots, and the first of its unfinished jobs.

    left     the number of unfinished jobs
    over     the number of finished jobs
    waiting  the number of calls that wait for results of other calls
    """

    scheduler: str
    is_open: bool
    slots: int
    held: int
    jobs: Sequence[ShownJob]
    left: int
    over: int
    waiting: int = 0


def session_html(shown: ShownSession) -> str:
    """A line about the session, and a table of its jobs."""
    state = "open" if shown.is_open else "closed"
    facts = [
        f"{shown.held} of {counted(shown.slots, 'slot')} held",
        f"{counted(shown.left, 'job')} not over",
        f"{shown.over:,} over",
    ]
    if shown.waiting:
        facts.append(f"{counted(shown.waiting, 'call')} waiting for results of others")
    head = (
        f"<p><strong>Session</strong> ({escape(shown.scheduler)}, {state}):"
        f" {', '.join(facts)}</p>"
    )
    more = shown.left - len(shown.jobs)
    rest = f"<p>{more:,} more jobs are not listed.</p>" if more > 0 else ""
    return f'<div style="{_FRAME}">{head}{_table(shown.jobs)}{rest}</div>'


def future_html(name: str, state: str, job: ShownJob | None, problem: str = "") -> str:
    """A line about a future, and its job if that is not over."""
    colour = _COLOURS.get(state, IDLE)
    line = f"<p><strong>{escape(name)}</strong>: {_state(state, colour)}"
    line += f": {escape(problem)}</p>" if problem else "</p>"
    return f'<div style="{_FRAME}">{line}{_table([job] if job else [])}</div>'


def _table(jobs: Sequence[ShownJob]) -> str:
    if not jobs:
        return ""
    titles = ("job", "pool", "state", "tasks done", "slots", "reason")
    head = "".join(f'<th style="{_CELL}; {_RULE}">{title}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(_cells(job))}</tr>" for job in jobs)
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cells(job: ShownJob) -> list[str]:
    state = _state(job.state, _COLOURS[job.state])
    one = summary_of(job.explained)
    names = (escape(job.explained.job), escape(job.explained.pool))
    cells = [*names, state, _progress(job, one.done), str(one.slots), escape(one.reason)]
    return [f'<td style="{_CELL}; {_RULE}">{cell}</td>' for cell in cells]


def _state(state: str, colour: str) -> str:
    dot = f'<span style="color: {colour}">●</span>'
    return f'<span style="white-space: nowrap">{dot} {escape(state)}</span>'


def _progress(job: ShownJob, done: int) -> str:
    """A bar of the done and running tasks, and their numbers."""
    parts = [
        f'<span style="width: {100 * count / max(1, job.tasks):.1f}%; background: {colour}">'
        "</span>"
        for count, colour in ((done, DONE), (job.running, RUNNING))
    ]
    bar = (
        '<span style="display: inline-flex; width: 120px; height: 8px; overflow: hidden;'
        ' border-radius: 4px; background: rgba(128, 128, 128, 0.25); margin-right: 8px">'
        f"{''.join(parts)}</span>"
    )
    return f'<span style="white-space: nowrap">{bar}{done:,}/{job.tasks:,}</span>'
