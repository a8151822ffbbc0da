"""`slotwise run` with a server: submit a workload file, follow its jobs, and wait."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import typer

from slotwise.cli.application import print_json, show_message
from slotwise.cli.following import follow_jobs, is_over, left_to_server
from slotwise.cli.service_tables import show_jobs
from slotwise.cli.submit import SubmittedWords, posted, request_of
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.service.clients.transport import Transport, job_path

TAKEN = {"file", "server", "as_json"}
"""The parameters of `slotwise run` that apply on a server, too."""


def run_on_server(file: Path, url: str | None, stated: set[str], *, as_json: bool) -> NoReturn:
    """Run all jobs of a workload file on a server. Exits with 1 if one is not done.

    `stated` are the parameters on the command line. InputError for those that are for runs of
    this process. Interrupted, it asks whether to cancel the jobs, and exits with 130.
    """
    if foreign := sorted(stated - TAKEN):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        raise InputError(
            f"{names}: the server schedules by its own options; leave it out, or run without"
            " --server and with SLOTWISE_SERVER unset"
        )
    transport = Transport(url)
    words = SubmittedWords({}, str(file), [])
    body = request_of(words, is_network=transport.place.is_network)
    jobs = [str(job["id"]) for job in posted(transport, body)]
    show_message(f"slotwise: submitted {', '.join(jobs)}")
    try:
        found = follow_jobs(transport, jobs, prints=not as_json)
    except KeyboardInterrupt:
        _cancel_or_leave(transport, jobs)
        raise typer.Exit(130) from None
    if as_json:
        print_json({"jobs": found})
    else:
        show_jobs(found)
    raise typer.Exit(0 if all(job["state"] == "done" for job in found) else 1)


def _cancel_or_leave(transport: Transport, jobs: Sequence[str]) -> None:
    """Ask whether the jobs are to be cancelled; without a terminal, they are left."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write("\ncancel the jobs, or leave them to the server? [c/L] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("c", "cancel"):
            for job in jobs:
                with suppress(SlotwiseError):  # It may be over.
                    if not is_over(transport.get(job_path(job))):
                        transport.post(job_path(job, "cancel"))
            show_message("slotwise: the jobs are cancelled")
            return
    show_message(f"slotwise: {left_to_server(jobs)}")
