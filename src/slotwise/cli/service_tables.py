"""What the commands that ask a server show: tables and sentences. Foreign text is escaped."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotwise.core.resources import MEMORY
from slotwise.core.units import size_text
from slotwise.insight.report.ranges import instant_near, instants
from slotwise.insight.report.text import MISSING, counted, in_short, number, printable, seconds

PIPE_WIDTH = 200
"""The width of tables outside a terminal."""

COMMAND_LEAST = 16
"""The characters of a command for which other columns are left out if jobs have forecasts."""

COMMAND_WIDTH = 60
"""The maximum number of characters of a command in a table outside a terminal."""

AGES = (("s", 1.0, 60.0), ("m", 60.0, 3600.0), ("h", 3600.0, 86_400.0), ("d", 86_400.0, inf))
"""Symbol and seconds of a unit of ages, and the age from which the next one is used."""

STYLES = {"running": "green", "failed": "red", "lost": "red", "held": "yellow"}
"""The colours of states on a terminal."""

Plain = Mapping[str, Any]


def console() -> Console:
    """A console on stdout, wide enough outside a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def text_of(value: object, style: str = "") -> Text:
    """A cell, without control characters and markup."""
    return Text(MISSING if value in (None, "") else printable(str(value)), style)


def table_of(
    headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> Table:
    """A table of plain cells; columns of `numbers` are aligned to the right.

    The last column is cut to the width of the terminal, so that the others are whole.
    """
    cells = [[one if isinstance(one, Text) else text_of(one) for one in row] for row in rows]
    right = set(numbers)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        justify: Any = "right" if place in right else "left"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
    others = [
        max(len(heading), *(row[place].cell_len for row in cells), 0) + 2
        for place, heading in enumerate(headings[:-1])
    ]
    width = max(len(headings[-1]), console().width - sum(others))
    for row in cells:
        row[-1].truncate(width, overflow="ellipsis")
        table.add_row(*row)
    return table


def ago(at: float | None, now: float) -> str:
    """How long ago an instant is, as in "2 m ago"; "in 2 m" for a later one."""
    if at is None:
        return MISSING
    age = abs(now - at)
    symbol, size = next(unit[:2] for unit in AGES if age < unit[2])
    if at > now:  # Rounded, as a token of 90 days has a little less a moment later.
        return f"in {round(age / size)} {symbol}"
    return f"{int(age / size)} {symbol} ago"


def took(job: Plain, now: float) -> str:
    """How long a job has run until its end or now."""
    begun = job.get("begun")
    return MISSING if begun is None else seconds(max(0.0, (job.get("ended") or now) - begun))


def what_runs(job: Plain) -> str:
    """The command of a job in one line, or its kind; nothing if users may not see it."""
    if not job.get("name") and job.get("kind") == "command":
        return MISSING
    line = " ".join(str(job.get("name") or job.get("kind") or "").split())
    return line if len(line) <= COMMAND_WIDTH else f"{line[: COMMAND_WIDTH - 3]}..."


def tasks_done(job: Plain) -> str:
    """The tasks that are done, of all."""
    return f"{job.get('tasks_done') or 0:,}/{job.get('tasks') or MISSING}"


def state_of(job: Plain) -> Text:
    """The state in its colour."""
    return text_of(job["state"], STYLES.get(str(job["state"]), ""))


def jobs_table(jobs: Sequence[Plain], now: float) -> Table:
    """Jobs, one in a row; when they start and end if forecasts of any say so."""
    columns: dict[str, list[object]] = {
        "id": [job["id"] for job in jobs],
        "state": [state_of(job) for job in jobs],
        "pool": [job.get("pool") for job in jobs],
        "user": [job.get("user") for job in jobs],
        "tasks": [tasks_done(job) for job in jobs],
        "submitted": [ago(job.get("submitted"), now) for job in jobs],
        "took": [took(job, now) for job in jobs],
        "starts": [range_of(job, "start", now) for job in jobs],
        "ends": [range_of(job, "end", now) for job in jobs],
        "command": [what_runs(job) for job in jobs],
    }
    for name in ("starts", "ends"):
        if all(cell == MISSING for cell in columns[name]):
            del columns[name]
    for name in ("submitted", "took", "user") if "ends" in columns else ():
        widths = [max(map(len, map(str, (key, *columns[key])))) for key in columns][:-1]
        if sum(widths) + 2 * len(widths) + COMMAND_LEAST > console().width:
            del columns[name]
    numbers = [n for n, name in enumerate(columns) if name in ("tasks", "submitted", "took")]
    return table_of(tuple(columns), zip(*columns.values(), strict=True), numbers)


def range_of(job: Plain, which: str, now: float) -> str:
    """When a job is expected to start or to end; nothing if that is over, or not forecast."""
    found = (job.get("eta") or {}).get(which)
    return instants(found["low"], found["high"], now) if found else MISSING


def show_etas(jobs: Sequence[Plain], now: float) -> None:
    """Print when jobs start and end, and what that is based on."""
    rows = [
        (
            job["id"],
            state_of(job),
            range_of(job, "start", now),
            range_of(job, "end", now),
            _median(job, now),
        )
        for job in jobs
    ]
    console().print(table_of(("id", "state", "starts", "ends", "half end by"), rows))
    if etas := [job["eta"] for job in jobs if job.get("eta")]:
        print("\n".join(_basis(etas, now)))


def _median(job: Plain, now: float) -> str:
    at = ((job.get("eta") or {}).get("end") or {}).get("median")
    return MISSING if at is None else instant_near(at, now)


def _basis(etas: Sequence[Plain], now: float) -> Iterator[str]:
    """How sure forecasts are, how old, and what they are based on."""
    eta = min(etas, key=lambda eta: eta["at"])
    age = seconds(max(0.0, now - eta["at"]))
    sure = f"{100 * eta['confidence']:.0f} of 100 ranges are to hold what happens"
    yield f"{sure}; {'at most ' if len(etas) > 1 else ''}{age} old"
    least = min(etas, key=lambda eta: eta["past"])
    if past := least["past"]:
        what = f"the errors of {counted(past, 'earlier forecast')}"
        others = least["of_another"]
        which = f"; {others:,} of them for another scheduler" if others else ""
        yield f"from simulations of the scheduler in use, corrected by {what}{which}"
    else:
        yield "from simulations of the scheduler in use; no earlier forecasts correct them yet"


def pools_table(pools: Sequence[Plain]) -> Table:
    """Pools, one in a row: what they may hold, what they hold, and their jobs."""
    headings = ["pool", "weight", "min", "max", "slots", "jobs running", "jobs queued"]
    keys = ("slots_min", "slots_max", "held", "running", "queued")
    rows = [
        [pool["name"], number(pool.get("weight")), *(_share(pool.get(key)) for key in keys)]
        for pool in pools
    ]
    if any(pool.get("resources") for pool in pools):
        headings.append("resources")
        rows = [[*row, _used(pool)] for row, pool in zip(rows, pools, strict=True)]
    return table_of(headings, rows, range(1, 7))


def _used(one: Plain) -> str:
    """What is used of each resource of a host, or within each limit of a pool."""
    return ", ".join(
        f"{name} {_amount(name, amount['used'])} of {_amount(name, amount['total'])}"
        for name, amount in (one.get("resources") or {}).items()
    )


def _share(value: object) -> str:
    """Slots as a number, or by kind."""
    if isinstance(value, Mapping):
        return ",".join(f"{kind}={_share(one)}" for kind, one in value.items()) or MISSING
    if isinstance(value, int) or value is None:
        return MISSING if value is None else f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def show_jobs(jobs: Sequence[Plain]) -> None:
    """Print a table of jobs; outside a terminal nothing if there are none."""
    if jobs:
        console().print(jobs_table(jobs, time.time()))
    elif sys.stdout.isatty():
        print("no jobs")


def show_pools(pools: Sequence[Plain]) -> None:
    """Print a table of pools."""
    console().print(pools_table(pools))


def _amount(name: str, value: float) -> str:
    return size_text(int(value)) if name == MEMORY else number(value)


def show_workers(workers: Sequence[Plain]) -> None:
    """Print a table of hosts."""
    rows = (
        (
            one["host"],
            one.get("state"),
            f"{one.get('busy') or 0}/{one['slots']}",
            _used(one),
        )
        for one in workers
    )
    console().print(table_of(("host", "state", "busy", "resources"), rows, (2,)))


def show_tokens(tokens: Sequence[Plain]) -> None:
    """Print a table of tokens."""
    now = time.time()

    def state(one: Plain) -> str:
        if one["revoked"] is not None:
            return "revoked"
        if not one.get("has_user", True):
            return "no such user"
        if one["expires"] is None:
            return "valid"
        is_valid = one["expires"] > now
        return f"ends {ago(one['expires'], now)}" if is_valid else "expired"

    rows = (
        (one["id"], one["user"], ago(one["created"], now), ago(one["used"], now), state(one))
        for one in tokens
    )
    console().print(table_of(("id", "user", "created", "used", "state"), rows))


def server_lines(server: Plain) -> list[str]:
    """The state of a server in a few lines."""
    since = ago(server.get("started"), time.time())
    jobs = server.get("jobs") or {}
    process = f", process {server['pid']}" if "pid" in server else ""
    return [
        f"slotwise {server['version']} is {server['state']}: started {since}{process}",
        f"slots: {server.get('busy') or 0} of {server.get('slots')} busy; scheduler"
        f" {server.get('scheduler')}, objective {server.get('objective')}",
        f"jobs: {', '.join(f'{count:,} {state}' for state, count in jobs.items()) or 'none'}",
    ]


def show_server(server: Plain) -> None:
    """Print the state of a server."""
    lines = server_lines(server)
    if "folder" in server:
        lines.append(f"folder: {server['folder']}")
    if server.get("config"):
        lines.append(f"configuration: {server['config']}")
    print("\n".join(map(printable, lines)))


def show_job(job: Plain) -> None:
    """Print all about a job, and a table of its tasks."""
    now = time.time()
    about = {
        "user": job.get("user"),
        "pool": job.get("pool"),
        "priority": f"{job.get('priority')}, weight {number(job.get('weight'))}",
        "command": what_runs(job),
        "output": job.get("output"),
        "after": ", ".join(map(str, job.get("after") or ())),
        "submitted": _dated(job.get("submitted"), now),
        "begun": _dated(job.get("begun"), now),
        "ended": _dated(job.get("ended"), now),
        "starts": range_of(job, "start", now),
        "ends": range_of(job, "end", now),
        "deadline": _dated(job.get("deadline"), now),
        "promise": _promise(job, now),
        "tasks": f"{tasks_done(job)} done, {job.get('tasks_running') or 0} running,"
        f" {job.get('tasks_failed') or 0} failed",
        "exit code": _code(job.get("code")),
        "restarts": job.get("restarts") or None,
    }
    why = in_short(job.get("reason") or "")
    lines = [f"{sentence(job)}{f', {why}' if why else ''}"]
    lines += [f"{name + ':':11} {value}" for name, value in about.items() if _is_known(value)]
    print("\n".join(map(printable, lines)))
    if job.get("tasks_listed"):
        console().print(_tasks_table(job["tasks_listed"], now))


def _code(code: int | None) -> str | None:
    """An exit code as `slotwise wait` has it; negative ones are signals."""
    if code is None or code >= 0:
        return None if code is None else str(code)
    return f"{128 - code} (signal {-code})"


def _is_known(value: object) -> bool:
    return value not in (None, "", MISSING)


def _dated(at: float | None, now: float) -> str:
    """An instant in local time, and how long ago it was."""
    if at is None:
        return MISSING
    return f"{datetime.fromtimestamp(at).isoformat(' ', 'seconds')} ({ago(at, now)})"


def _promise(job: Plain, now: float) -> str:
    """The promised date of a job, and whether it has been kept."""
    if (at := job.get("promise")) is None:
        return MISSING
    kept = ", kept" if job.get("state") == "done" else ""
    return f"{_dated(at, now)}{', not kept' if (job.get('ended') or now) > at else kept}"


def _tasks_table(tasks: Sequence[Plain], now: float) -> Table:
    """The tasks of a job; they are named with their phases if it has several."""
    has_phases = len({task.get("phase") for task in tasks}) > 1
    headings = ("task", "state", "attempt", "begun", "took", "code", "reason")
    return table_of(
        headings,
        (
            (
                f"{task.get('phase')} {task['task']}" if has_phases else task["task"],
                state_of(task),
                task.get("attempt"),
                ago(task.get("begun"), now),
                took(task, now),
                task.get("code"),
                in_short(task.get("reason") or ""),
            )
            for task in tasks
        ),
        (0, 2, 3, 4, 5),
    )


def sentence(job: Plain) -> str:
    """A job's state in words."""
    count = job.get("tasks") or 0
    of_tasks = f" of {counted(count, 'task')}" if count > 1 else ""
    where = f" in pool {job['pool']}" if job.get("pool") else ""
    return printable(f"job {job['id']}{of_tasks}{where}: {job['state']}")
