"""Tables of runs: as text for the page, and as rich tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotwise.core.dependencies import in_order
from slotwise.core.rates import COMMAND_MARK
from slotwise.insight.report.grid import is_numeric
from slotwise.insight.report.reported import (
    ReportedRun,
    Scene,
    conditions_of,
    has_differing_bounds,
    run_names,
)
from slotwise.insight.report.text import (
    MISSING,
    count,
    counted,
    in_short,
    in_states,
    number,
    percent,
    printable,
    rounded_size,
    seconds,
)
from slotwise.insight.waits import MAX_WAITS, MIN_WAIT, Wait, worst_waits

Columns = dict[str, list[str]]
"""A table as text: the cells of each column, by its title."""

MAX_WIDTH = 10_000
"""The maximum width of tables in pipes and files, in columns."""

FAILED_BECAUSE = "failed because"

NAMES = ("scheduler", "job", "program or job", "phase")
"""Columns with names, which are aligned as such even if all of them are numbers."""

_RELATIVE = ("gap", "stretch_mean", "stretch_max")

_TimesOfJob = tuple[str, dict[str, float | None]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number by which runs are compared: title, key, format and direction of better.

    key     the metric in the `--json` output, within a group as "group.name"
    need    whether it is shown always, if some run has it, or if it is not 0 in some run
    """

    title: str
    key: str
    show: Callable[[Any], str]
    better: Literal["low", "high"] | None = "low"
    need: Literal["always", "measured", "positive"] = "always"

    def of(self, run: ReportedRun) -> Any:
        """The value of a run; None if it has none."""
        value: Any = {**run.outcome.metrics, "bound": run.outcome.bound}
        for name in self.key.split("."):
            value = value.get(name) if value else None
        return value or None if self.need == "positive" else value

    def is_shown(self, runs: Sequence[ReportedRun]) -> bool:
        """Whether a full table of these runs has the metric."""
        return self.need == "always" or any(self.of(run) is not None for run in runs)

    def cells(self, runs: Sequence[ReportedRun]) -> list[str]:
        """The value of each run as text."""
        return [self.show(self.of(run)) for run in runs]

    def best(self, runs: Sequence[ReportedRun]) -> list[bool]:
        """Whether each run has the best value of its backend; False where all are equal."""
        shown: dict[str, set[str]] = {}
        for run in filter(self._counts, runs):
            shown.setdefault(run.backend, set()).add(self.show(self.of(run)))
        return [
            leads and len(shown[run.backend]) > 1
            for run, leads in zip(runs, self.leading(runs), strict=True)
        ]

    def leading(self, runs: Sequence[ReportedRun]) -> list[bool]:
        """Whether no run of the same backend has a better value, as displayed.

        Simulated runs are not compared with live ones, whose clock includes more. A run with
        unfinished jobs never leads, because it did less work.
        """
        if self.better is None:
            return [False] * len(runs)
        values: dict[str, list[Any]] = {}
        for run in filter(self._counts, runs):
            values.setdefault(run.backend, []).append(self.of(run))
        choose = min if self.better == "low" else max
        tops = {backend: self.show(choose(of_runs)) for backend, of_runs in values.items()}
        return [
            self._counts(run) and cell == tops[run.backend]
            for run, cell in zip(runs, self.cells(runs), strict=True)
        ]

    def _counts(self, run: ReportedRun) -> bool:
        return run.is_whole and self.of(run) is not None


METRICS = (
    Metric("mean response", "response_mean", seconds),
    Metric("mean stretch", "stretch_mean", number),
    Metric("max stretch", "stretch_max", number),
    Metric("makespan", "makespan", seconds),
    Metric("value", "value", number),
    Metric("bound", "bound", number, None),
    Metric("gap", "gap", percent),
    Metric("tardy jobs", "jobs_tardy", count, need="measured"),
    Metric("SLA cost", "sla_cost", number, need="measured"),
    Metric("max tardiness", "tardiness_max", seconds, need="measured"),
    Metric("promises asked for", "promises.asked", count, None, "measured"),
    Metric("promises accepted", "promises.accepted", count, "high", "measured"),
    Metric("promises broken", "promises.broken", count, need="measured"),
    Metric("weight of tardy jobs", "jobs_tardy_weighted", number, need="measured"),
    Metric("mean tardiness", "tardiness_mean", seconds, need="measured"),
    Metric("max lateness", "lateness_max", seconds, need="measured"),
    Metric("mean slowdown", "slowdown_mean", number),
    Metric("max slowdown", "slowdown_max", number),
    Metric("utilisation", "utilisation", percent, "high"),
    Metric("tasks local to their input", "locality.node", percent, "high"),
    Metric("work (slot-seconds)", "work_seconds", number, None),
    Metric("wasted slot-seconds", "wasted_slot_seconds", number),
    Metric("jobs done", "jobs_done", count, "high"),
    Metric("jobs failed", "jobs_failed", count),
    Metric("jobs cancelled", "jobs_cancelled", count, need="positive"),
    Metric("tasks asked to stop", "preemption.told", count, None, "positive"),
    Metric("tasks stopped", "preemption.stopped", count, need="positive"),
    Metric("slot-seconds lost", "preemption.lost_slot_seconds", number, need="positive"),
    Metric("seconds of work kept", "preemption.kept_seconds", number, None, "positive"),
    Metric("requested memory unused", "memory.unused", percent, need="positive"),
    Metric("read within racks (bytes)", "traffic_bytes.rack", number, None, "positive"),
    Metric("read through the core (bytes)", "traffic_bytes.core", number, need="positive"),
)
"""The metrics of the page, in its order."""


def metrics_in_full(runs: Sequence[ReportedRun]) -> list[Metric]:
    """The metrics for the page that apply to these runs."""
    return [metric for metric in METRICS if metric.is_shown(runs)]


WORK_LEAST = 0.1
"""Seconds. If the jobs of live runs have less work on average, the start of processes takes
longer than the work, so that gap and stretch say nothing on schedulers."""


def metrics_in_short(runs: Sequence[ReportedRun]) -> list[Metric]:
    """The metrics for the terminal, which fit in 80 columns; the last ones matter least.

    Two of deadlines and SLA steps take the place of the stretches if any run has them.
    """
    response, *stretches = METRICS[:3]
    due = [metric for metric in METRICS if metric.need == "measured" and metric.is_shown(runs)]
    return [response, *due[:2], *METRICS[3:7], *([] if due else stretches)]


def comparison_table(runs: Sequence[ReportedRun]) -> Table:
    """A comparison of runs for the terminal; the best value of each metric is bold."""
    # Several backends, or hidden work in some runs only, have their own column.
    has_several = len({run.conditions for run in runs}) > 1
    names = [run.called for run in runs] if has_several else run_names(runs)
    # Interrupted runs have two lines, to leave room for metrics.
    columns = {"scheduler": [Text(name.replace(" (", "\n(")) for name in names]}
    if has_several:
        columns["backend"] = [Text(run.conditions) for run in runs]
    is_short = all(map(_is_short, runs))
    for metric in metrics_in_short(runs):
        if is_short and metric.key in _RELATIVE:
            continue
        cells = zip(metric.cells(runs), metric.best(runs), strict=True)
        columns[metric.title] = [Text(cell, "bold" if best else "") for cell, best in cells]
    objectives = list(dict.fromkeys(run.objective for run in runs))
    caption = f"{conditions_of(runs)}; the value is the {' or '.join(objectives)}"
    if has_differing_bounds(runs):
        caption += "; each lower bound is for its own run"
    table = _rich(columns)
    table.caption = Text(caption)
    return table


def _is_short(run: ReportedRun) -> bool:
    """Whether a run is live, and the work of its jobs too short to compare schedulers."""
    metrics = run.outcome.metrics
    return run.backend == "live" and metrics["work_seconds"] < WORK_LEAST * metrics["jobs_done"]


def jobs_table(
    run: ReportedRun, most: int | None = None, order: Sequence[str] | None = None
) -> Table:
    """The jobs of a run, for the terminal: how they ended and how long they took, then when.

    They are in `order`, by default that of arrival; live runs have run times. If `most` cuts
    the list, failed jobs come first, and the caption has the numbers.
    """
    jobs = _listed(run, most, order)
    of_job = job_columns(run, jobs=jobs)
    del of_job[FAILED_BECAUSE]
    states = run.outcome.states
    listed = [name for name, _ in jobs]
    first = ("job", "status", "response", "run time", "lateness")
    of_job["status"] = [states[name] for name in listed]
    if run.backend == "live":
        of_job["run time"] = [seconds(_run_time(times)) for _, times in jobs]
    titles = [title for title in first if title in of_job]
    titles += [title for title in of_job if title not in first]
    styles = {"failed": "red", "cancelled": "yellow"}
    table = _rich({t: [Text(cell, styles.get(cell, "")) for cell in of_job[t]] for t in titles})
    if len(listed) < len(states):
        left = Counter(states.values()) - Counter(of_job["status"])
        more = f"and {left.total():,} more: {in_states(left)}; --json names all jobs"
        table.caption, table.caption_justify = Text(more), "left"
    return table


def _listed(
    run: ReportedRun, most: int | None, order: Sequence[str] | None = None
) -> list[_TimesOfJob]:
    """The jobs in this order or by arrival; if `most` cuts them, failed ones are first."""
    place = {name: number for number, name in enumerate(order or ())}
    jobs = sorted(
        run.outcome.jobs.items(),
        key=lambda job: (place.get(job[0], 0), job[1]["arrival"] or 0.0, job[0]),
    )
    if most is not None and len(jobs) > most:
        jobs = sorted(jobs, key=lambda job: job[0] not in run.outcome.failed)[:most]
    return jobs


def job_columns(
    run: ReportedRun, most: int | None = None, jobs: Sequence[_TimesOfJob] | None = None
) -> Columns:
    """The jobs of one run as text, by arrival; failed jobs first if `most` cuts the list.

    With `jobs`, only these, as they are.
    """
    failed, jobs = run.outcome.failed, _listed(run, most) if jobs is None else jobs
    columns: Columns = {"job": [printable(name) for name, _ in jobs]}
    for title in ("arrival", "start", "completion", "response"):
        columns[title] = [seconds(times[title]) for _, times in jobs]
    due = {name: job.deadline for name, job in run.outcome.stated.items()}
    if any(at is not None for at in due.values()):
        columns["lateness"] = [
            seconds(_lateness(times["completion"], due.get(name))) for name, times in jobs
        ]
    columns[FAILED_BECAUSE] = [printable(in_short(failed.get(name, ""))) for name, _ in jobs]
    return columns


def memory_columns(run: ReportedRun, most: int | None = None) -> Columns:
    """The memory that phases requested and used, as text, most unused first."""
    rows = run.outcome.memory[:most]
    columns = {
        "program or job": [_owner(one.owner) for one in rows],
        "phase": [printable(one.phase) for one in rows],
        "requested": [rounded_size(one.requested) for one in rows],
        "learned": ["yes" if one.is_learned else "" for one in rows],
        "largest peak": [rounded_size(one.peak) for one in rows],
        "unused": [_byte_hours(one.unused_byte_seconds) for one in rows],
        "stopped": [count(one.stopped or None) for one in rows],
    }
    return {title: cells for title, cells in columns.items() if set(cells) - {"", MISSING}}


def memory_table(run: ReportedRun, most: int) -> Table:
    """The same for the terminal; `most` rows."""
    columns = memory_columns(run, most)
    table = _rich({title: [Text(cell) for cell in cells] for title, cells in columns.items()})
    if (more := len(run.outcome.memory) - most) > 0:
        table.caption, table.caption_justify = Text(f"and {more:,} more phases"), "left"
    return table


MAX_OWNER = 60
"""The maximum number of characters of a program in a table."""


def _owner(name: str) -> str:
    """A program, of a command with one space between its words, or a job."""
    return shorten(printable(name.removeprefix(COMMAND_MARK)), MAX_OWNER)


def _byte_hours(byte_seconds: float | None) -> str:
    return MISSING if byte_seconds is None else f"{rounded_size(int(byte_seconds / 3600))} h"


MIN_COLUMNS = 2
"""The number of columns of a table that are shown on a terminal of any width."""


def fit_columns(table: Table, width: int) -> None:
    """Drop the last columns of a table that do not fit in `width` characters.

    Names that are longer than half of it take several lines.
    """
    table.columns[0].no_wrap, table.columns[0].max_width = False, width // 2
    unlimited = Console(width=MAX_WIDTH)
    while len(table.columns) > MIN_COLUMNS and unlimited.measure(table).maximum > width:
        table.columns.pop()


MAX_PATH = 12
"""The number of jobs of a critical path that are named."""


def critical_path(run: ReportedRun) -> str:
    """The done jobs that waited for each other and took longest, in a line; empty without any.

    A job that waits task by task counts from the end of the job before it.
    """
    took: dict[str, float] = {}  # along the longest chain to the end of each job
    before: dict[str, str] = {}
    for job in in_order(list(run.outcome.stated.values())):
        ran = _run_time(run.outcome.jobs[job.id])
        if ran is None:
            continue
        end = run.outcome.jobs[job.id]["completion"] or 0.0
        chains = {"": ran}
        for name in sorted(job.predecessors & took.keys()):
            since = end - (run.outcome.jobs[name]["completion"] or 0.0)
            chains[name] = took[name] + min(ran, since)
        before[job.id] = max(chains, key=chains.__getitem__)
        took[job.id] = chains[before[job.id]]
    name = last = max(took, key=took.__getitem__, default="")
    path: dict[str, float] = {}
    while name:
        path[name] = took[name] - took.get(before[name], 0.0)
        name = before[name]
    if len(path) <= 1:  # No job waited for another.
        return ""
    named = sorted(path, key=path.__getitem__)[-MAX_PATH:]
    parts = [f"{printable(job)} {seconds(path[job])}" for job in reversed(path) if job in named]
    more = f" and {len(path) - MAX_PATH:,} shorter ones" if len(path) > MAX_PATH else ""
    return f"critical path: {', '.join(parts)}{more}; {seconds(took[last])} in all"


def _run_time(times: dict[str, float | None]) -> float | None:
    """The seconds from the first start of a job to its end."""
    start, end = times["start"], times["completion"]
    return None if start is None or end is None else end - start


def _lateness(completion: float | None, deadline: float | None) -> float | None:
    return None if completion is None or deadline is None else completion - deadline


def _rich(columns: dict[str, list[Text]]) -> Table:
    """Build a table of Text cells, in which rich does not interpret markup of users."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title, cells in columns.items():
        numeric = title not in NAMES and is_numeric([cell.plain for cell in cells])
        table.add_column(
            Text(title.replace(" ", "\n") if numeric else title),
            justify="right" if numeric else "left",
            no_wrap=numeric or title in NAMES,
            overflow="ellipsis" if numeric else "fold",
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


# The section of the page about failed jobs.

MAX_FAILED = 500
"""The maximum number of failed jobs listed for a run."""


def failures_section(scene: Scene) -> str:
    """The failed jobs of each run in the order of their failures, with the whole reasons.

    Empty if no job failed.
    """
    parts = []
    for name, run, line in zip(scene.names, scene.runs, scene.timelines, strict=True):
        failed = sorted(run.outcome.failed.items(), key=lambda one: (line.end_of(one[0]), one))
        if not failed:
            continue
        summary = f"{name}: {counted(len(failed), 'failed job')}"
        if len(failed) > MAX_FAILED:
            summary += f"; the first {MAX_FAILED} are listed"
        items = [
            f"<li><strong>{escape(printable(job))}</strong> failed at"
            f" {seconds(line.end_of(job))}: {_reason(reason, len(failed) <= MAX_OPEN)}</li>"
            for job, reason in failed[:MAX_FAILED]
        ]
        parts.append(f"<p>{escape(summary)}</p><ul>{''.join(items[:MAX_OPEN])}</ul>")
        if rest := items[MAX_OPEN:]:
            more = f"<summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul>"
            parts.append(f"<details>{more}</details>")
    if not parts:
        return ""
    return f'<section class="failures"><h2>Failed jobs</h2>{"".join(parts)}</section>'


def _reason(whole: str, is_open: bool) -> str:
    """A reason in one line, and the whole below it if it has more lines."""
    short = printable(in_short(whole))
    if short == whole.strip():
        return escape(short)
    return (
        f"{escape(short)}<details{' open' if is_open else ''}><summary>whole message</summary>"
        f"<pre>{escape(printable(whole, lines=True))}</pre></details>"
    )


# The section of the page about waits.

MAX_JOB_WAITS = 2
"""The maximum number of waits listed for a job."""

MAX_RUN_WAITS = 40
"""The maximum number of waits listed for a run."""

MAX_OPEN = 8
"""A list with more waits is folded, and the failed jobs after this number are."""


def waits_section(scene: Scene) -> str:
    """The longest waits of each job in each run, longest first."""
    text = (
        "A wait is a time in which a job has tasks that are not done, and none of them runs."
        f" The {MAX_JOB_WAITS} longest waits of each job are listed if they exceed"
        f" {percent(MIN_WAIT)} of the run. Each wait names the jobs that held the slots, with"
        " their shares of the held slots. It names a remedy if the log proves one."
    )
    parts = [f"<section><h2>Waits and their causes</h2><p>{text}</p>"]
    for name, run, line in zip(scene.names, scene.runs, scene.timelines, strict=True):
        waits = worst_waits(run.log, line, most=MAX_RUN_WAITS, most_of_job=MAX_JOB_WAITS)
        count = "1 wait" if len(waits) == 1 else f"{len(waits) or 'no'} waits"
        summary = f"<summary>{escape(f'{name}: {count}')}</summary>"
        is_open = " open" if len(waits) <= MAX_OPEN else ""
        items = "".join(map(_item, waits))
        parts.append(f"<details{is_open}>{summary}<ul>{items}</ul></details>")
    return "".join([*parts, "</section>"])


def _item(wait: Wait) -> str:
    return f"<li><strong>{escape(wait.job)}</strong> {escape(wait_sentence(wait))}.</li>"


# Waits as lines of text.

MAX_HOLDERS = 3
"""The number of jobs that a line names as holders of the slots during a wait."""

MIN_FREE = 0.05
"""Free slots are reported if they exceed this fraction of all slots."""


def wait_lines(waits: Sequence[Wait]) -> Iterator[str]:
    """Yield the waits of jobs and their reasons, one wait per line."""
    for wait in waits:
        yield f"{wait.job} {wait_sentence(wait)}"
    if len(waits) == MAX_WAITS:
        yield f"only the {MAX_WAITS} longest waits are listed"
    if not waits:
        yield f"no job waited for longer than {percent(MIN_WAIT)} of the run"


def wait_sentence(wait: Wait) -> str:
    """Describe a wait: its duration, the holders of the slots, the reason and the remedy.

    The sentence has no subject: the caller puts the name of the job before it.
    """
    parts = [
        f"waited {seconds(wait.seconds)} in pool {wait.pool}, from {seconds(wait.start)} to"
        f" {seconds(wait.end)}{_holders(wait)}"
    ]
    area = wait.held_slot_seconds + wait.free_slot_seconds
    if wait.free_slot_seconds > MIN_FREE * area:
        parts.append(f"{percent(wait.free_slot_seconds / area)} of the slots were free")
    return "; ".join([*parts, *filter(None, (wait.reason, wait.remedy))])


def _holders(wait: Wait) -> str:
    if not wait.holders:
        return ""
    named = wait.holders[:MAX_HOLDERS]
    if len(wait.holders) == MAX_HOLDERS + 1:
        named = wait.holders
    total = wait.held_slot_seconds
    words = []
    for holder in named:
        part = "" if len(wait.holders) == 1 else f" {percent(holder.slot_seconds / total)}"
        where = "" if holder.pool == wait.pool else f" in pool {holder.pool}"
        words.append(f"{holder.job}{where}{part}")
    if more := len(wait.holders) - len(named):
        words.append(f"{more} more jobs")
    return f", behind {', '.join(words)}"
