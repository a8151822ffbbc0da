"""Waits for jobs of a server, and prints what they print."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from slotwise.cli.application import show_message
from slotwise.cli.streams import has_reader
from slotwise.core.errors import SlotwiseError
from slotwise.insight.report.text import in_short, printable
from slotwise.service.clients.transport import (
    MissingJobError,
    NoServerError,
    ServerClosedError,
    Transport,
    job_path,
)

OVER = frozenset({"done", "failed", "cancelled", "lost"})
"""The states of jobs that have ended."""

LIVE = "running,queued,waiting,held"
"""The other states, as they are asked for."""

WAIT_SECONDS = 30.0
"""How long one request waits for the end of a job."""

ANY_SECONDS = 0.5
"""Seconds between looks at several jobs of which the first end counts."""

RETURN_SECONDS = 60.0
"""How long a wait continues after the end of its server, until another one has started."""

FAILED, TIMED_OUT, CANCELLED = 1, 124, 130
"""Exit codes: for a failure without one of its own, for `--timeout`, for a cancelled job."""

PLACE = ("run", "phase", "task", "attempt", "stream")
"""What identifies a file with output, in the headers of frames."""

STREAMS = {"out": "stdout", "err": "stderr"}

Job = Mapping[str, Any]


def server_with(
    job: str, url: str | None = None, *, may_be_missing: bool = False
) -> Transport | None:
    """The server, or None if none runs, or it has no such job and that may be.

    One that is named must run and have it.
    """
    transport = Transport(url)
    try:
        transport.get(job_path(job))
    except (NoServerError, MissingJobError) as error:
        is_expected = may_be_missing or isinstance(error, NoServerError)
        if url is not None or not is_expected:
            raise
        return None
    return transport


def is_over(job: Job) -> bool:
    """Whether a job has ended."""
    return job["state"] in OVER


def exit_code(job: Job) -> int:
    """The exit code of a job that is over: of a command its own, or 128 and its signal."""
    if job["state"] == "done":
        return 0
    if job["state"] == "cancelled":
        return CANCELLED
    code = job.get("code")
    if not isinstance(code, int) or code == 0:
        return FAILED
    return code if code > 0 else 128 - code


def wait_for(transport: Transport, job: str, until: float | None = None) -> Job:
    """The job when it is over, or as it is at an instant of the monotonic clock.

    If the server ends meanwhile, another one is awaited for `RETURN_SECONDS`.
    """
    patience = Patience()
    while True:
        left = WAIT_SECONDS if until is None else max(0.0, until - time.monotonic())
        timeout = min(WAIT_SECONDS, left)
        try:
            found: Job = transport.get(job_path(job, "wait"), timeout=f"{timeout:.3f}")
        except (NoServerError, ServerClosedError) as error:
            if until is not None and time.monotonic() >= until:
                raise
            patience.wait(error)
            continue
        patience = Patience()
        if is_over(found) or (until is not None and time.monotonic() >= until):
            return found


class Patience:
    """Waits for another server after the end of one, at most `RETURN_SECONDS`."""

    def __init__(self) -> None:
        self._until: float | None = None

    def wait(self, error: SlotwiseError) -> None:
        """Wait a little. Raises the error if there was no server, or none has come in time."""
        now = time.monotonic()
        if self._until is None:
            if isinstance(error, NoServerError):
                raise error
            self._until = now + RETURN_SECONDS
            show_message(f"slotwise: {error}; waiting {RETURN_SECONDS:g} s for another")
        if now >= self._until:
            raise error
        time.sleep(ANY_SECONDS)


def wait_for_any(transport: Transport, jobs: Sequence[str], until: float | None) -> Job:
    """The first of the jobs that is over, or the first one if none is at an instant."""
    while True:
        found: list[Job] = [transport.get(job_path(job)) for job in jobs]
        over = [job for job in found if is_over(job)]
        if over:
            return min(over, key=lambda job: (job.get("ended") or 0.0, job["number"]))
        if until is not None and time.monotonic() >= until:
            return found[0]
        time.sleep(ANY_SECONDS)


def follow_jobs(transport: Transport, jobs: Sequence[str], *, prints: bool) -> list[Job]:
    """Wait for jobs, and print their output, one after the other; the jobs when over."""
    found = []
    for job in jobs:
        if prints:
            print_logs(transport, job, follow=True, has_name=len(jobs) > 1)
        found.append(wait_for(transport, job))
        show_end(found[-1])
    return found


def left_to_server(jobs: Sequence[str]) -> str:
    """What Ctrl-C leaves, and how to wait for the jobs or to end them."""
    ids = " ".join(jobs)
    return (
        f"interrupted; the server continues: `slotwise wait {ids}` waits for the jobs, and"
        f" `slotwise cancel {ids}` ends them"
    )


def show_end(job: Job) -> None:
    """Print on stderr how a job has ended, if it is over and not done."""
    if is_over(job) and job["state"] != "done":
        why = in_short(job.get("reason") or "")
        text = f"slotwise: job {job['id']}: {job['state']}{f': {why}' if why else ''}"
        print(printable(text, lines=True), file=sys.stderr)


def print_logs(
    transport: Transport,
    job: str,
    task: int | None = None,
    *,
    stream: str | None = None,
    attempt: int | None = None,
    follow: bool = False,
    has_name: bool = False,
    as_json: bool = False,
) -> bool:
    """Print what tasks of a job have printed; whether there was any.

    Of one task stdout goes to stdout and stderr to stderr, as they are; of several tasks all
    goes to stdout, with headers. With `follow`, until the job or the reader of stdout ends.
    """
    has_headers = has_name or (
        task is None and (transport.get(job_path(job))["tasks"] or 1) > 1
    )
    sys.stdout.flush()
    last: tuple[int, int, str] | None = None
    ends_line, is_any = True, False
    query: dict[str, Any] = {"task": task, "stream": stream, "follow": int(follow)}
    with closing(_received(transport, job, query)) as received:
        for header, data in received:
            if not data or attempt not in (None, header["attempt"]):
                continue
            is_any = True
            if as_json:
                text = data.decode(errors="replace")
                print(json.dumps({**header, "text": text}), flush=True)
                continue
            place = (header["task"], header["attempt"], header["stream"])
            is_error = header["stream"] == "err" and not has_headers and stream is None
            to = sys.stderr.buffer if is_error else sys.stdout.buffer
            if has_headers and place != last:
                between = "" if last is None else "\n" if ends_line else "\n\n"
                to.write(f"{between}==> {_title(job, *place)} <==\n".encode())
            elif last is not None and header["attempt"] > last[1]:
                show_message(f"slotwise: attempt {header['attempt']} of job {job}")
            last, ends_line = place, data.endswith(b"\n")
            to.write(data)
            to.flush()
            if not has_reader():
                break
    return is_any


def _received(
    transport: Transport, job: str, query: Mapping[str, Any]
) -> Generator[tuple[Mapping[str, Any], bytes]]:
    """What tasks of a job have printed, piece by piece.

    If the server ends while the job is followed, what the next one sends again is left out.
    """
    received, patience = Counter[tuple[Any, ...]](), Patience()
    while True:
        known = received.copy()
        try:
            frames: Any = transport.stream(job_path(job, "logs"), **query)
            with closing(frames):
                for header, parts in frames:
                    data, place = b"".join(parts), tuple(header[name] for name in PLACE)
                    old = min(known[place], len(data))
                    known[place] -= old
                    received[place] += len(data) - old
                    patience = Patience()
                    yield header, data[old:]
            if not query["follow"] or is_over(transport.get(job_path(job))):
                return
            raise ServerClosedError("the server stops")
        except (NoServerError, ServerClosedError) as error:
            if not query["follow"]:
                raise
            patience.wait(error)


def _title(job: str, task: int, attempt: int, stream: str) -> str:
    again = f" (attempt {attempt})" if attempt > 1 else ""
    return printable(f"{job} {task}{again} {STREAMS.get(stream, stream)}")
