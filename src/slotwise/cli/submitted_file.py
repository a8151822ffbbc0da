"""The jobs of a workload file as a server takes them; slow to load, unlike commands."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slotwise.cli.application import show_message
from slotwise.core.errors import InputError
from slotwise.workload.file import read_workload
from slotwise.workload.text import parse_text, read_text

OF_FILES = frozenset(
    {"key", "hold", "dry_run", "no_restart", "user", "wait", "follow", "json", "server"}
)
"""The options of a submission that a workload file takes; the others are keys of its jobs."""

TAKEN = ("slotwise", "start", "jobs")
"""The keys of a workload file that a submission uses."""


def entries_of(file: str, options: Mapping[str, Any] | None = None) -> tuple[list[Any], str]:
    """The entries of the jobs, with dates as instants, and the folder of relative paths.

    The file is validated. InputError for a wrong one, and for options of a command.
    """
    if foreign := sorted(set(options or ()) - OF_FILES):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        raise InputError(f"{names}: for a command only; state it for the jobs in {file}")
    now = time.time()
    data, _ = parse_text(read_text(file, "a workload file"))
    workload = read_workload(
        file, now=datetime.fromtimestamp(now), defaults={"pools": _pools(data)}
    )
    if unused := [key for key in data if key not in TAKEN]:
        show_message(
            f"slotwise: {file}: not used, because the server has its own: {', '.join(unused)}"
        )
    entries = []
    for stated, job in zip(data["jobs"], workload.jobs, strict=True):
        resolved: dict[str, Any] = {}
        for key in ("deadline", "promise"):
            if (at := getattr(job, key)) is not None:
                resolved[key] = {"at": now + at}
        if job.arrival:
            resolved["arrival"] = job.arrival
        if job.steps:
            resolved["steps"] = [list(step) for step in job.steps]
        if "no_restart" in (options or ()):
            resolved["restart"] = False
        entries.append({**stated, **resolved})
    return entries, os.path.dirname(os.path.abspath(file))


def _pools(data: Any) -> list[dict[str, str]]:
    """The pools that the jobs name: those of the server count, not those of the file."""
    jobs = data.get("jobs") if isinstance(data, dict) else None
    entries = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    named = dict.fromkeys(
        job["pool"]
        for job in entries
        if isinstance(job.get("pool"), str) and job["pool"] not in ("", "default")
    )
    return [{"name": name} for name in named]
