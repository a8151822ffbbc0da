"""The tables of `squeue`, `sacct` and `sinfo`: columns by name or letter, and their widths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from slotwise.core.errors import InputError
from slotwise.slurm.jobs import LETTERS, SlurmJob, elapsed, instant

Row = TypeVar("Row")

HOST = "localhost"
"""What stands for the hosts of a server: a list does not say which of them a job uses."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its title, the text of a row, and its width in the table of sacct."""

    title: str
    text: Callable[[Row], str]
    width: int = 10


FIELDS: Mapping[str, Callable[[SlurmJob], str]] = {
    "jobid": lambda job: job.id,
    "jobidraw": lambda job: str(job.number),
    "array": lambda job: job.array[0] if job.array else job.id,
    "task": lambda job: job.array[1] if job.array else "N/A",
    "jobname": lambda job: job.name,
    "user": lambda job: job.user,
    "partition": lambda job: job.pool,
    "cluster": lambda job: "slotwise",
    "qos": lambda job: "normal",
    "state": lambda job: job.state,
    "short": lambda job: LETTERS[job.state],
    "reason": lambda job: job.why,
    "place": lambda job: HOST if job.why == "None" else f"({job.why})",
    "node": lambda job: HOST if job.plain["begun"] else "",
    "nodelist": lambda job: HOST if job.plain["begun"] else "None assigned",
    "exitcode": lambda job: job.exit_code,
    "time": lambda job: elapsed(job.seconds, is_short=True),
    "unlimited": lambda job: "UNLIMITED",
    "elapsed": lambda job: elapsed(job.seconds),
    "elapsedraw": lambda job: str(job.seconds),
    "submit": lambda job: instant(job.plain["submitted"], "Unknown"),
    "start": lambda job: instant(job.plain["begun"], "Unknown"),
    "end": lambda job: instant(job.plain["ended"], "Unknown"),
    "cpus": lambda job: str(job.plain["slots"]),
    "nodes": lambda job: "1",
    "priority": lambda job: str(job.plain["priority"]),
    "unknown": lambda job: "",
}
"""What columns show of a job."""


def _columns(words: str) -> dict[str, Column[SlurmJob]]:
    """Columns by name or letter, from words `LETTER:TITLE%WIDTH:FIELD`."""
    found: dict[str, Column[SlurmJob]] = {}
    for word in words.split():
        name, title, field = word.split(":")
        title, _, width = title.partition("%")
        found[name or title.lower()] = Column(title, FIELDS[field], int(width or 10))
    return found


QUEUE = _columns(
    "i:JOBID:jobid A:JOBID:jobidraw F:ARRAY_JOB_ID:array K:ARRAY_TASK_ID:task j:NAME:jobname"
    " u:USER:user P:PARTITION:partition a:ACCOUNT:partition q:QOS:qos t:ST:short T:STATE:state"
    " r:REASON:reason R:NODELIST(REASON):place N:NODELIST:node M:TIME:time"
    " l:TIME_LIMIT:unlimited L:TIME_LEFT:unlimited V:SUBMIT_TIME:submit S:START_TIME:start"
    " e:END_TIME:end D:NODES:nodes C:CPUS:cpus Q:PRIORITY:priority x:EXIT_CODE:exitcode"
)
"""The columns of squeue by the letter of its format."""

QUEUE_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
QUEUE_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"

ACCOUNTING = _columns(
    ":JobID%12:jobid :JobIDRaw%12:jobidraw :JobName:jobname :User%9:user :Account:partition"
    " :Partition:partition :Cluster:cluster :QOS:qos :State:state :ExitCode%8:exitcode"
    " :DerivedExitCode%15:exitcode :Elapsed:elapsed :ElapsedRaw:elapsedraw :Submit%19:submit"
    " :Eligible%19:submit :Start%19:start :End%19:end :AllocCPUS:cpus :NCPUS:cpus"
    " :NNodes%8:nodes :AllocNodes:nodes :NodeList%15:nodelist :Priority:priority"
    " :Reason%22:reason :Timelimit:unlimited :MaxRSS:unknown :AveRSS:unknown"
    " :MaxVMSize:unknown :TotalCPU:unknown :CPUTime:unknown :CPUTimeRAW:unknown"
    " :ReqMem:unknown :ReqCPUS:unknown :ReqTRES:unknown :AllocTRES:unknown :Comment:unknown"
    " :WorkDir:unknown :NTasks:unknown"
)
"""The columns of sacct by name in small letters. Those that are not known are empty."""

ACCOUNTING_DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
ACCOUNTING_BRIEF = "JobID,State,ExitCode"


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
