"""Jobs that wait for others, as text, as data and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slotwise.core.dependencies import in_order
from slotwise.core.job import Job
from slotwise.insight.report.dataflow.layout import laid_out, single
from slotwise.insight.report.dataflow.svg import svg_of_drawing
from slotwise.workload.workload import CommandJob, Described, PhasedJob, ProgramJob

Stated = Job | Described
"""A job in the form in which it is stated."""

LEVELS_SHOWN = 20
"""The levels that are indented as text; deeper ones stay within a line of a terminal."""


def workflow_lines(jobs: Sequence[Stated]) -> Iterator[str]:
    """Yield a line for each job, after those that it waits for, indented by its level."""
    rows = list(_rows(jobs, 0))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, size, waits in rows:
        yield f"{name:{widths[0]}}  {size:{widths[1]}}  {waits}".rstrip()


def _rows(jobs: Sequence[Stated], outer: int) -> Iterator[tuple[str, str, str]]:
    for job, level in _levels(jobs):
        yield 2 * min(outer + level, LEVELS_SHOWN) * " " + job.id, _size(job), _waits(job)
        if isinstance(job, PhasedJob):
            yield from _rows(job.phases, outer + level + 1)


def workflow_plain(jobs: Sequence[Stated]) -> list[dict[str, Any]]:
    """The jobs and what they wait for, as data for JSON; with phases that are commands."""
    return [
        {
            "id": job.id,
            "tasks": _tasks(job),
            "after": sorted(job.after),
            "after_each": sorted(job.after_each),
            "after_failed": job.after_failed,
            "level": level,
        }
        | ({"phases": workflow_plain(job.phases)} if isinstance(job, PhasedJob) else {})
        for job, level in _levels(jobs)
    ]


def workflow_svg(jobs: Sequence[Stated]) -> str:
    """The picture: a box for each job, below those that it waits for."""
    blocks = [single(job.id, job.id, _size(job)) for job in in_order(jobs)]
    edges, kinds = [], []
    for job in jobs:
        for name in sorted(job.predecessors):
            edges.append((name, job.id))
            is_run = job.after_failed == "run"
            kinds.append("each" if name in job.after_each else "run" if is_run else "after")
    return svg_of_drawing(laid_out(blocks, edges), kinds)


def _levels(jobs: Sequence[Stated]) -> list[tuple[Stated, int]]:
    """The jobs, each after those that it waits for, and the most jobs one after the other."""
    levels: dict[str, int] = {}
    ordered = in_order(jobs)
    for job in ordered:
        levels[job.id] = max((levels[name] + 1 for name in job.predecessors), default=0)
    return [(job, levels[job.id]) for job in ordered]


def _tasks(job: Stated) -> int | None:
    """The number of its tasks, if it is stated."""
    if isinstance(job, Job):
        return sum(phase.tasks.count for phase in job.phases)
    return (job.settings.get("tasks") or 1) if isinstance(job, CommandJob) else None


def _size(job: Stated) -> str:
    if isinstance(job, ProgramJob):
        return f"program {job.program}" if isinstance(job.program, str) else "program"
    if isinstance(job, PhasedJob):
        return f"{len(job.phases)} phase{'s' * (len(job.phases) > 1)}"
    tasks = _tasks(job)
    return "dataflow" if tasks is None else f"{tasks} task{'s' * (tasks > 1)}"


def _waits(job: Stated) -> str:
    texts = [f"after {name}" for name in sorted(job.after)]
    texts += [f"after each task of {name}" for name in sorted(job.after_each)]
    anyway = ["also if one fails"] if job.after_failed == "run" else []
    return ", ".join(texts + anyway)
