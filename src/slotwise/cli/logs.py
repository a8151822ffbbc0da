"""The command `slotwise logs`: what tasks have printed, and the list of runs.

A job of the server is preferred to one of the last run, unless a run is named.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from slotwise.backends.attempt_logs import ERR, OUT, AttemptFile, attempt_files, file_name
from slotwise.cli.application import print_json, show_message
from slotwise.cli.following import print_logs, server_with
from slotwise.cli.parsing import Json, Server
from slotwise.cli.service import complete_jobs
from slotwise.cli.streams import has_reader
from slotwise.cli.terminal import last_run
from slotwise.core.dependencies import MAX_NAMES
from slotwise.core.errors import InputError, suggestion
from slotwise.core.events import JobArrived
from slotwise.core.log import following
from slotwise.insight.report.text import MISSING, printable, seconds
from slotwise.run_folder import LOGS, RunFolder
from slotwise.service.clients.transport import job_path

POLL_SECONDS = 0.2
"""Seconds between looks at the files of a run that is followed."""

COPY_BYTES = 1 << 16

STREAM_NAMES = {OUT: "stdout", ERR: "stderr"}

Chosen = Callable[[AttemptFile], bool]


def show_logs(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="A job.", autocompletion=complete_jobs),
    ] = None,
    task: Annotated[
        int | None, typer.Argument(metavar="[TASK]", help="The number of a task of it.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for more output until the run ends.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A run, by its id or folder [default: the last one]."),
    ] = None,
    out: Annotated[bool, typer.Option("--out", help="Only stdout.")] = False,
    err: Annotated[bool, typer.Option("--err", help="Only stderr.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt.")] = None,
    lists: Annotated[bool, typer.Option("--list", help="List the runs that are kept.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print what tasks have printed, with a header if there are several files.

    JOB is a job of the server if one runs and has this job and no `--run` is named; otherwise
    it is one of the last run. The bytes are printed as they are. With `--json`, the files and
    their sizes instead; of a job of the server, its output in pieces.

    `slotwise logs train 3 --err`

    `slotwise logs -f 17`
    """
    if lists:
        _list_runs(as_json)
        return
    if job is not None and run is None:
        transport = server_with(job, server, may_be_missing=bool(RunFolder.all()))
        if transport is not None:
            if task is not None:
                _check_task(task, transport.get(job_path(job)))
            stream = None if out == err else "out" if out else "err"
            chosen: Any = {"stream": stream, "attempt": attempt, "follow": follow}
            if not print_logs(transport, job, task, **chosen, as_json=as_json):
                show_message(f"slotwise: job {job!r} of the server has printed nothing")
            return
        if not RunFolder.all():
            raise InputError(
                f"job {job!r}: no server runs, and no run is kept; start a server with"
                " `slotwise serve`, or run a workload with `slotwise run FILE`"
            )
    folder = last_run() if run is None else RunFolder.named(run)

    def is_chosen(file: AttemptFile) -> bool:
        return (
            (job is None or file.path.parent.name == file_name(job))
            and task in (None, file.task)
            and attempt in (None, file.attempt)
            and (out == err or out == (file.stream == OUT))
        )

    if as_json:
        files = _files(folder, is_chosen)
        print_json({"run": folder.id, "files": [_plain(file) for file in files]})
        return
    if follow:
        _follow(folder, is_chosen)
        return
    files = _files(folder, is_chosen)
    if not files and job is not None:
        show_message(f"slotwise: {_silent(folder, job, task)}")
    shown = LogPrinter(has_headers=len(files) > 1)
    for file in files:
        shown.show(file)


class LogPrinter:
    """Files on stdout, each continued where it ended before."""

    def __init__(self, *, has_headers: bool) -> None:
        sys.stdout.flush()
        self._to: BinaryIO = sys.stdout.buffer
        self._has_headers = has_headers
        self._sizes: dict[Path, int] = {}
        self._last: Path | None = None
        self._ends_line = True

    def show(self, file: AttemptFile) -> None:
        """Print what is new in a file, after a header if another one was printed before."""
        try:
            with file.path.open("rb") as source:
                source.seek(self._sizes.get(file.path, 0))
                while data := source.read(COPY_BYTES):
                    self._print(file, data)
        except OSError:
            return  # The run was removed, or the output to which the file belongs.

    def _print(self, file: AttemptFile, data: bytes) -> None:
        if self._has_headers and self._last != file.path:
            between = "" if self._last is None else "\n" if self._ends_line else "\n\n"
            self._to.write(f"{between}==> {_title(file)} <==\n".encode())
        self._last = file.path
        self._sizes[file.path] = self._sizes.get(file.path, 0) + len(data)
        self._ends_line = data.endswith(b"\n")
        self._to.write(data)
        self._to.flush()


def _follow(folder: RunFolder, is_chosen: Chosen) -> None:
    """Print what tasks have printed, and what they print until the run or its reader ends."""
    shown, is_live = LogPrinter(has_headers=True), True
    while is_live and has_reader():
        is_live = folder.is_live  # Before looking, so that nothing is missed at the end.
        for file in _files(folder, is_chosen):
            shown.show(file)
        if is_live:
            time.sleep(POLL_SECONDS)


def _files(folder: RunFolder, is_chosen: Chosen) -> list[AttemptFile]:
    return sorted(filter(is_chosen, attempt_files(folder.path / LOGS)), key=_order)


def _order(file: AttemptFile) -> tuple[object, ...]:
    parts = re.split(r"(\d+)", file.job)  # Then "call-10" comes after "call-2".
    job = [(int(part) if part.isdecimal() else 0, part) for part in parts]
    return (job, *file[1:4], file.stream == ERR)


def _title(file: AttemptFile) -> str:
    phase = f" {file.phase}" if file.phase else ""
    attempt = f" (attempt {file.attempt})" if file.attempt > 1 else ""
    return printable(f"{file.job}{phase} {file.task}{attempt} {STREAM_NAMES[file.stream]}")


def _plain(file: AttemptFile) -> dict[str, Any]:
    found = {**file._asdict(), "path": str(file.path)}
    found["stream"] = STREAM_NAMES[file.stream]
    return {**found, "bytes": file.path.stat().st_size if file.path.exists() else 0}


def _silent(folder: RunFolder, job: str, task: int | None) -> str:
    """The message for a job that has printed nothing. InputError if the run has no such task.

    O(entries of the log), which says what the run had.
    """
    with following(folder.log) as log:
        events = (event for turn in log.turns for event in turn.events)
        arrived = {one.job.id: one.job for one in events if isinstance(one, JobArrived)}
    if job not in arrived:
        more = f" and {len(arrived) - MAX_NAMES} more" if len(arrived) > MAX_NAMES else ""
        known = f"its jobs are {', '.join(islice(arrived, MAX_NAMES))}{more}"
        remedy = suggestion(job, arrived, known if arrived else "no job has arrived")
        raise InputError(f"job {job!r} is not in run {folder.id}; {remedy}")
    phases = arrived[job].phases
    count = max(phase.tasks.count for phase in phases)
    if task is not None and not any(phase.grows for phase in phases) and not 0 <= task < count:
        raise InputError(f"job {job!r} has no task {task}; name one from 0 to {count - 1}")
    what = f"job {job!r}" if task is None else f"task {task} of job {job!r}"
    return f"{what} has printed nothing in run {folder.id}"


def _check_task(task: int, job: Mapping[str, Any]) -> None:
    """InputError if a job of the server has no such task, unless others may still come."""
    count = job["tasks"]
    if count and job["stream"] is None and not 0 <= task < count:
        raise InputError(
            f"job {job['id']!r} has no task {task}; name one from 0 to {count - 1}"
        )


def _list_runs(as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for folder in RunFolder.all():
        about = folder.about()
        stated = {
            key: about.get(key) for key in ("kind", "start", "end", "command", "workload")
        }
        counts = {"state": folder.state, "failed": about.get("failed_count", 0)}
        rows.append({"run": folder.id, **stated, **counts, "path": str(folder.path)})
    if as_json:
        print_json({"runs": rows})
        return
    if not rows:
        RunFolder.last()  # Raises an error with the remedy.
    form = "{:20}  {:10}  {:19}  {:>9}  {:11}  {:>11}  {}"
    print(form.format("run", "kind", "start", "took", "state", "jobs failed", "command"))
    for row in rows:
        print(printable(form.format(*_cells(row))))


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    """A row of the list; the start is in local time."""
    start, end = row["start"], row["end"]
    began = datetime.fromtimestamp(start).isoformat(" ", "seconds") if start else MISSING
    took = seconds(end - start) if start and end else MISSING
    program, *arguments = row["command"] or [MISSING]
    command = " ".join([Path(program).name, *arguments])
    return row["run"], row["kind"], began, took, row["state"], row["failed"], command
