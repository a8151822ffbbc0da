"""The tables of `squeue`, `sacct` and `sinfo`: columns by name or letter, and their widths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from slotwise.core.errors import InputError
from slotwise.slurm.jobs import LETTERS, SlurmJob, elapsed, instant

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its title, its width in the table, and the text of a row."""

    title: str
    width: int
    text: Callable[[Row], str]


Columns = Mapping[str, Column[SlurmJob]]

_NOT_KNOWN = "N/A"

QUEUE: Columns = {
    "i": Column("JOBID", 18, lambda job: job.id),
    "A": Column("JOBID", 18, lambda job: str(job.number)),
    "F": Column("ARRAY_JOB_ID", 18, lambda job: job.array[0] if job.array else job.id),
    "K": Column("ARRAY_TASK_ID", 18, lambda job: job.array[1] if job.array else _NOT_KNOWN),
    "j": Column("NAME", 8, lambda job: job.name),
    "u": Column("USER", 8, lambda job: job.user),
    "P": Column("PARTITION", 9, lambda job: job.pool),
    "a": Column("ACCOUNT", 10, lambda job: job.pool),
    "q": Column("QOS", 6, lambda job: "normal"),
    "t": Column("ST", 2, lambda job: LETTERS[job.state]),
    "T": Column("STATE", 10, lambda job: job.state),
    "r": Column("REASON", 16, lambda job: job.why),
    "R": Column("NODELIST(REASON)", 16, lambda job: _place(job)),
    "N": Column("NODELIST", 16, lambda job: "" if job.state == "PENDING" else HOST),
    "M": Column("TIME", 10, lambda job: elapsed(job.seconds, is_short=True)),
    "l": Column("TIME_LIMIT", 10, lambda job: "UNLIMITED"),
    "L": Column("TIME_LEFT", 10, lambda job: "UNLIMITED"),
    "V": Column("SUBMIT_TIME", 20, lambda job: instant(job.plain["submitted"], _NOT_KNOWN)),
    "S": Column("START_TIME", 20, lambda job: instant(job.plain["begun"], _NOT_KNOWN)),
    "e": Column("END_TIME", 20, lambda job: instant(job.plain["ended"], _NOT_KNOWN)),
    "D": Column("NODES", 6, lambda job: "1"),
    "C": Column("CPUS", 4, lambda job: str(job.plain["slots"] or 1)),
    "Q": Column("PRIORITY", 10, lambda job: str(job.plain["priority"])),
    "x": Column("EXIT_CODE", 9, lambda job: job.exit_code),
}
"""The columns of squeue by the letter of its format."""

QUEUE_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
QUEUE_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"

QUEUE_NAMES = {
    **{"jobid": "A", "jobarrayid": "i", "arrayjobid": "F", "arraytaskid": "K", "name": "j"},
    **{"username": "u", "partition": "P", "account": "a", "qos": "q", "statecompact": "t"},
    **{"state": "T", "reason": "r", "reasonlist": "R", "nodelist": "N", "timeused": "M"},
    **{"timelimit": "l", "timeleft": "L", "submittime": "V", "starttime": "S"},
    **{"endtime": "e", "numnodes": "D", "numcpus": "C", "priority": "Q", "exit_code": "x"},
}
"""The names of these columns in `squeue --Format`."""

HOST = "localhost"
"""What stands for the hosts of a server where a list has only one name for all."""

ACCOUNTING: Columns = {
    "jobid": Column("JobID", 12, lambda job: job.id),
    "jobidraw": Column("JobIDRaw", 12, lambda job: str(job.number)),
    "jobname": Column("JobName", 10, lambda job: job.name),
    "user": Column("User", 9, lambda job: job.user),
    "account": Column("Account", 10, lambda job: job.pool),
    "partition": Column("Partition", 10, lambda job: job.pool),
    "cluster": Column("Cluster", 10, lambda job: "slotwise"),
    "qos": Column("QOS", 10, lambda job: "normal"),
    "state": Column("State", 10, lambda job: job.state),
    "exitcode": Column("ExitCode", 8, lambda job: job.exit_code),
    "derivedexitcode": Column("DerivedExitCode", 15, lambda job: job.exit_code),
    "elapsed": Column("Elapsed", 10, lambda job: elapsed(job.seconds)),
    "elapsedraw": Column("ElapsedRaw", 10, lambda job: str(job.seconds)),
    "submit": Column("Submit", 19, lambda job: instant(job.plain["submitted"], "Unknown")),
    "eligible": Column("Eligible", 19, lambda job: instant(job.plain["submitted"], "Unknown")),
    "start": Column("Start", 19, lambda job: instant(job.plain["begun"], "Unknown")),
    "end": Column("End", 19, lambda job: instant(job.plain["ended"], "Unknown")),
    "alloccpus": Column("AllocCPUS", 10, lambda job: str(job.plain["slots"])),
    "ncpus": Column("NCPUS", 10, lambda job: str(job.plain["slots"])),
    "nnodes": Column("NNodes", 8, lambda job: "1"),
    "allocnodes": Column("AllocNodes", 10, lambda job: "1"),
    "nodelist": Column(
        "NodeList", 15, lambda job: HOST if job.plain["begun"] else "None assigned"
    ),
    "priority": Column("Priority", 10, lambda job: str(job.plain["priority"])),
    "reason": Column("Reason", 22, lambda job: job.why),
    **{
        name.lower(): Column[SlurmJob](name, 10, lambda job: "")
        for name in "MaxRSS AveRSS MaxVMSize TotalCPU CPUTime CPUTimeRAW UserCPU SystemCPU"
        " ReqMem ReqCPUS ReqTRES AllocTRES TRESUsageInTot Timelimit Comment WCKey WorkDir"
        " NTasks MaxDiskRead MaxDiskWrite AdminComment Restarts".split()
    },
}
"""The columns of sacct by name in small letters. Those that are not known are empty."""

ACCOUNTING_DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
ACCOUNTING_BRIEF = "JobID,State,ExitCode"


def _place(job: SlurmJob) -> str:
    return HOST if job.state == "RUNNING" else f"({job.why})"


def letters_shown(
    text: str, columns: Mapping[str, Column[Row]]
) -> tuple[str, Callable[[Row], str]]:
    """The title line of a format such as `%.18i %t`, and what shows a row. InputError.

    A number is the width at most; with a point before it the text is at the right.
    """
    pieces = re.split(r"(%\.?\d*[a-zA-Z])", text)
    for one in pieces[1::2]:
        if one[-1] not in columns:
            raise InputError(f"unknown field %{one[-1]}; known: {' '.join(columns)}")

    def line(cells: Callable[[Column[Row]], str]) -> str:
        return "".join(
            _cell(one, cells(columns[one[-1]])) if number % 2 else one
            for number, one in enumerate(pieces)
        )

    return line(lambda column: column.title), lambda row: line(lambda c: c.text(row))


def _cell(field: str, text: str) -> str:
    width = int(field[1:-1].lstrip(".") or 0)
    if not width:
        return text
    return f"{text[:width]:>{width}}" if field[1] == "." else f"{text[:width]:<{width}}"


def names_as_letters(text: str) -> str:
    """The format of letters for that of `squeue --Format`: `jobid:10,state`. InputError."""
    found = ""
    for one in filter(None, text.split(",")):
        name, _, width = one.partition(":")
        letter = QUEUE_NAMES.get(name.lower())
        if letter is None or (width and not width.strip(".").isdecimal()):
            raise InputError(f"unknown field {one!r}; known: {', '.join(QUEUE_NAMES)}")
        found += f"%{width or 20}{letter}"
    return found


def accounting_lines(
    jobs: Iterable[SlurmJob], format: str, *, between: str, ends: str, has_title: bool
) -> Sequence[str]:
    """The lines of sacct. InputError for an unknown column.

    between  what separates columns; empty for a table with widths
    ends     what follows the last column
    """
    chosen: list[tuple[Column[SlurmJob], str]] = []
    for one in filter(None, format.split(",")):
        name, _, width = one.strip().partition("%")
        column = ACCOUNTING.get(name.lower())
        if column is None or not re.fullmatch(r"-?\d*", width):
            raise InputError(f'Invalid field requested: "{name}"')
        chosen.append((column, width))
    rows = [[column.text(job) for column, _ in chosen] for job in jobs]
    titles = [column.title for column, _ in chosen]
    if between:
        shown = [titles, *rows] if has_title else rows
        return [between.join(row) + ends for row in shown]
    widths = [int(width or column.width) for column, width in chosen]
    lines = [" ".join(map(_in_table, row, widths)) for row in rows]
    if has_title:
        rule = " ".join("-" * abs(width) for width in widths)
        lines = [" ".join(map(_in_table, titles, widths)), rule, *lines]
    return [f"{line} " for line in lines]


def _in_table(text: str, width: int) -> str:
    """Text at the right of a column, at the left if the width is negative; `+` if it is cut."""
    room = abs(width)
    cut = text if len(text) <= room else f"{text[: room - 1]}+"
    return f"{cut:<{room}}" if width < 0 else f"{cut:>{room}}"
