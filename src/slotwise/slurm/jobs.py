"""Jobs of a server as Slurm names them: ids that are numbers, states, reasons and times.

A job has the number of the server as its id. The tasks of an array are jobs of their own, whose
ids are `12_0`, `12_1` and so on: 12 is a number that no other job has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotwise.core.errors import InputError
from slotwise.insight.report.text import printable
from slotwise.service.clients.transport import Transport

LIST_MAX = 10_000
"""The most jobs that a command shows, the newest; the server lists no more at once."""

LIVE = ("running", "queued", "waiting", "held")
OVER = ("done", "failed", "cancelled", "lost")
"""The states of the server, of jobs that are not over, and of those that are."""

LETTERS = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM",
    "NODE_FAIL": "NF",
}
"""The states that jobs have, and their short names."""

OTHER_STATES = (
    "SUSPENDED S PREEMPTED PR BOOT_FAIL BF COMPLETING CG CONFIGURING CF DEADLINE DL REQUEUED"
    " RQ STOPPED ST SPECIAL_EXIT SE REVOKED RV RESIZING RS"
)
"""States of Slurm that no job has here."""

_STATE = {
    **dict.fromkeys(("queued", "waiting", "held"), "PENDING"),
    **{"running": "RUNNING", "done": "COMPLETED", "failed": "FAILED"},
    **{"cancelled": "CANCELLED", "lost": "NODE_FAIL"},
}

_WHY = {"waiting": "Dependency", "held": "JobHeldUser", "queued": "Resources"}

_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,-]+)(?:%\d+)?\]|\*))?(?:\.(\w+))?")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, from its JSON of the server."""

    plain: Mapping[str, Any]

    @property
    def number(self) -> int:
        """The number that only this job has: JobIDRaw."""
        return int(self.plain["number"])

    @property
    def array(self) -> tuple[str, str] | None:
        """The number of its array and that of the task, or None."""
        array, found, task = str(self.plain["id"]).partition("_")
        is_of_array = found and array.isdecimal() and task.isdecimal()
        return (array, task) if is_of_array else None

    @property
    def id(self) -> str:
        """Its id as Slurm shows it."""
        return "_".join(self.array) if self.array else str(self.number)

    @property
    def name(self) -> str:
        """Its name, or its command, in one line."""
        return printable(str(self.plain["name"] or self.plain["id"]))

    @property
    def user(self) -> str:
        """Its user."""
        return printable(str(self.plain["user"] or ""))

    @property
    def pool(self) -> str:
        """Its partition."""
        return printable(str(self.plain["pool"]))

    @property
    def reason(self) -> str:
        """Why it failed or waits, as the server says."""
        return str(self.plain.get("reason") or "")

    @property
    def state(self) -> str:
        """Its state, in full."""
        state = _STATE[self.plain["state"]]
        if state == "FAILED" and "exceeded its time limit" in self.reason:
            return "TIMEOUT"
        is_of_memory = "lack of memory" in self.reason or "more memory than" in self.reason
        return "OUT_OF_MEMORY" if state == "FAILED" and is_of_memory else state

    @property
    def why(self) -> str:
        """The reason of its state, in one word of Slurm."""
        if self.state == "PENDING":
            return _WHY[self.plain["state"]]
        words = {"TIMEOUT": "TimeLimit", "FAILED": "NonZeroExitCode", "NODE_FAIL": "NodeDown"}
        return words.get(self.state, "None")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.plain["state"] in OVER

    @property
    def seconds(self) -> int:
        """For how long it has run."""
        begun, ended = self.plain["begun"], self.plain["ended"]
        return max(0, int((ended or time.time()) - begun)) if begun else 0

    @property
    def exit_code(self) -> str:
        """Its exit code and the signal that ended it, as `1:0`."""
        code = self.plain["code"]
        if code is None:
            return "0:0" if self.state in ("PENDING", "RUNNING", "COMPLETED") else "0:15"
        return f"0:{-code}" if code < 0 else f"{code}:0"


def elapsed(seconds: int, *, is_short: bool = False) -> str:
    """A time as [D-]HH:MM:SS, or if it is short without leading zeros, as squeue shows it."""
    days, rest = divmod(seconds, 86_400)
    hours, minutes = divmod(rest // 60, 60)
    if is_short and seconds < 86_400:
        return f"{hours}:{minutes:02}:{rest % 60:02}" if hours else f"{minutes}:{rest % 60:02}"
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{rest % 60:02}"


def instant(at: float | None, otherwise: str) -> str:
    """A local date and time as Slurm shows it."""
    return otherwise if at is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


# Ids.


@dataclass(frozen=True, slots=True)
class JobRange:
    """An id of a command line: a job, or an array, or some of its tasks.

    Steps of jobs, as in `12.0`, are not known, but for `12.batch`, which is the job.
    """

    number: str
    tasks: tuple[tuple[int, int], ...] = ()
    step: str = "batch"

    @classmethod
    def of(cls, text: str) -> JobRange:
        """Parse `12`, `12_3`, `12_[0-2,5]` or `12.batch`. InputError."""
        found = _ID.fullmatch(text.strip())
        if found is None:
            raise InputError(f"Invalid job id specified: {text!r}; expected as in 17, 17_3")
        ranges = [
            one.split("-") for one in filter(None, (found[2] or found[3] or "").split(","))
        ]
        tasks = tuple((int(one[0] or 0), int(one[-1] or 0)) for one in ranges)
        return cls(str(int(found[1])), tasks, found[4] or "batch")

    def has(self, job: SlurmJob) -> bool:
        """Whether it names this job."""
        if self.step != "batch":
            return False
        if job.array is None or job.array[0] != self.number:
            return not self.tasks and str(job.number) == self.number
        task = int(job.array[1])
        return not self.tasks or any(first <= task <= last for first, last in self.tasks)


def found_jobs(transport: Transport, names: Sequence[str]) -> dict[str, list[SlurmJob]]:
    """The jobs of each id of a command line; an unknown one has none. InputError.

    One request for all jobs that were submitted by `sbatch` without an array, and one or two
    for each other id.
    """
    wanted = {name: JobRange.of(name) for name in dict.fromkeys(names)}
    numbers = list(dict.fromkeys(one.number for one in wanted.values() if not one.tasks))
    by_number: dict[str, SlurmJob] = {}
    for start in range(0, len(numbers), 500):  # The line of a request is not endless.
        some = ",".join(numbers[start : start + 500])
        for job in listed(transport, ids=some):
            by_number[str(job.number)] = job
    found: dict[str, list[SlurmJob]] = {}
    arrays: dict[str, list[SlurmJob]] = {}
    for name, one in wanted.items():
        known = by_number.get(one.number)
        if known is not None and one.has(known):
            found[name] = [known]
            continue
        if one.number not in arrays:
            arrays[one.number] = list(listed(transport, array=one.number))
        tasks = [job for job in arrays[one.number] if one.has(job)]
        found[name] = tasks or [job for job in _with_number(transport, one) if one.has(job)]
    return found


def _with_number(transport: Transport, one: JobRange) -> Iterator[SlurmJob]:
    """The job with this number whose id is another one, as of a task of an array."""
    return listed(transport, before=int(one.number) + 1, limit=1)


def listed(transport: Transport, **query: Any) -> Iterator[SlurmJob]:
    """The jobs that the server lists."""
    found = transport.get("/v1/jobs", **{"limit": LIST_MAX, **query})
    return map(SlurmJob, found["jobs"])


def states_named(option: str, names: Iterable[str]) -> set[str] | None:
    """The full names of states; None for all. InputError for one that Slurm has not."""
    full = {short: name for name, short in LETTERS.items()}
    found: set[str] = set()
    for name in names:
        upper = name.upper()
        if upper == "ALL":
            return None
        upper = full.get(upper, upper)
        if upper not in LETTERS and upper not in OTHER_STATES.split():
            raise InputError(f"{option}: invalid job state specified: {name}")
        found.add(upper)
    return found


def asked_states(states: Iterable[str]) -> str:
    """The states of the server that jobs in these states of Slurm may have."""
    wanted = set(states)
    also = {"FAILED"} if wanted & {"TIMEOUT", "OUT_OF_MEMORY"} else set()
    return ",".join(name for name, state in _STATE.items() if state in wanted | also)
