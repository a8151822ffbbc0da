"""Jobs as a client sends them: entries like those of `jobs` in a workload file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from slotwise.backends.local.backend import LocalBackend
from slotwise.jobs.commands import ResultOf
from slotwise.sources import Entry, Source
from slotwise.workload.workload import CommandJob, JobProperties, Workload

NOT_STATED: tuple[object, ...] = (None, (), "", {}, [], frozenset())
"""Values of settings that are the same as none."""

OF_OBJECT = ("pool", "priority", "weight", "user")
"""The properties of a pickled job that the server reads without its pickle."""


def check_command(job: CommandJob, slots: int) -> None:
    """InputError for a command that no server of this machine could run."""
    # Another job of the server, for which it waits, may have the same id.
    after = frozenset({f"before {job.id}"} if job.predecessors else ())
    checked = replace(job, after=after, after_each=frozenset())
    workload = Workload((checked,), folder=Path())
    for execution in Source(workload).executions(LocalBackend.cluster(max(1, slots))):
        execution.close(succeeded=False)


def entry_of_command(job: CommandJob) -> dict[str, Any]:
    """A job of commands as an entry; its deadline is in seconds from now."""
    words: Any = job.command
    if not isinstance(words, str):
        words = [_word(word) for word in words]
    defaults, later = JobProperties(), -job.arrival
    stated: dict[str, Any] = {"id": job.id, "command": words}
    for one in fields(JobProperties):
        if one.name != "arrival" and (value := getattr(job, one.name)) != getattr(
            defaults, one.name
        ):
            stated[one.name] = value
    for key in ("deadline", "promise"):
        if (at := getattr(job, key)) is not None:
            stated[key] = at + later
    if job.steps:
        stated["steps"] = [(at + later, cost) for at, cost in job.steps]
    if job.output is not None:
        stated["output"] = os.path.abspath(job.output)
    settings = {name: one for name, one in job.settings.items() if one not in NOT_STATED}
    for name, usual in (("tasks", 1), ("overwrite", False), ("slots_min", 0)):
        if settings.get(name) == usual:
            del settings[name]
    return _entry({**stated, **settings})


def entry_of_mapping(stated: Mapping[str, Any], described: Any) -> dict[str, Any]:
    """An entry as it is stated, but with the times that `described` has, from now."""
    entry = {name: value for name, value in stated.items() if name != "arrival"}
    later = -described.arrival
    for key in ("deadline", "promise"):
        if (at := getattr(described, key)) is not None:
            entry[key] = at + later
    if described.steps:
        entry["steps"] = [(at + later, cost) for at, cost in described.steps]
    return _entry(entry)


def entry_of_object(entry: Entry) -> dict[str, Any]:
    """What the server reads of a job whose pickle it does not load."""
    stated: Any = entry if hasattr(entry, "id") else entry.job
    found = {"id": stated.id, **{name: getattr(stated, name) for name in OF_OBJECT}}
    for key in ("deadline", "promise"):
        if (at := getattr(stated, key)) is not None:
            found[key] = at - stated.arrival
    if stated.after:
        found["after"] = stated.after
    return _entry(found)


def _entry(stated: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(one) for name, one in stated.items()}


def plain(value: Any) -> Any:
    """A value of an entry as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _word(word: object) -> object:
    if not isinstance(word, ResultOf):
        return word
    return {"result_of": word.job} if word.job else ""
