"""The hosts of a session: its cluster, and changes of hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from slotwise.backends.agents.source import dask_workers
from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.live import LiveBackend
from slotwise.backends.local.backend import LocalBackend, check_emulated, on_this_machine
from slotwise.backends.local.presence import Presence, enter
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import (
    InputError,
    check_number,
    check_seconds,
    check_text,
    check_whole,
    suggestion,
)
from slotwise.core.events import HostAdded, HostDrained, HostRemoved
from slotwise.core.job import Job
from slotwise.running import RunOptions, warn_user
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sources import (
    Described,
    Entry,
    Slots,
    check_live_slots,
    processors,
    refuse_resources,
    resources_of_host,
)
from slotwise.workload.file import read_job


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The hosts of a session, and a function that makes the backend for them.

    presence  the entry among the runs on this machine; None for other hosts
    discard   releases what was reserved, if no backend is made
    """

    cluster: Cluster
    backend: Callable[[AttemptLogs | None], LiveBackend]
    presence: Presence | None
    discard: Callable[[], None]


def place_for(
    slots: Slots | Cluster | None,
    dask: Any,
    dask_slots: int | None = None,
    resources: Mapping[str, Any] | None = None,
) -> SessionPlace:
    """This machine, or the hosts of a Dask cluster. InputError if they cannot be used."""
    if dask is None:
        if dask_slots is not None:
            raise InputError("dask_slots is for the workers of a Dask cluster; give dask too")
        cluster = _cluster(slots, resources)
        presence = enter(sum(cluster.capacity.values()), processors(), warn_user)
        return SessionPlace(
            cluster,
            lambda logs: LocalBackend((), cluster, is_open=True, logs=logs),
            presence,
            presence.close,
        )
    if slots is not None:
        raise InputError(
            "slots and dask are both given; a Dask worker has a slot a thread, or dask_slots"
        )
    refuse_resources(resources, "Dask workers state their own")
    source = dask_workers(dask, dask_slots)  # Raises if the extra dask is not installed.
    from slotwise.backends.agents.backend import AgentsBackend, cluster_of

    try:
        hosts = source.connect()
    except BaseException:
        source.close()
        raise
    return SessionPlace(
        cluster_of(hosts),
        lambda logs: AgentsBackend((), source, hosts, is_open=True, logs=logs),
        None,
        source.close,
    )


def check_on_this_machine(cluster: Cluster) -> None:
    """InputError for another host, which does not see the temporary folders of this one."""
    this_host = socket.gethostname()
    for host in cluster.hosts:
        if host.addresses and this_host not in host.addresses:
            raise InputError(
                f"a command without an output writes to a temporary folder of {this_host!r},"
                f" which host {host.name!r} does not see; name a folder that all hosts see, as"
                " in output='/shared/out'"
            )


def _cluster(slots: Slots | Cluster | None, resources: Mapping[str, Any] | None) -> Cluster:
    """The hosts of a new session on this machine. InputError if they cannot be emulated."""
    if isinstance(slots, Cluster):
        refuse_resources(resources, "the hosts of a Cluster have resources of their own")
        return on_this_machine(slots)
    if slots is not None:
        check_live_slots(slots)
    has = resources_of_host(None, resources)
    return LocalBackend.cluster(processors() if slots is None else slots, has)


def add_host(
    loop: LoopThread,
    name: str,
    slots: Slots,
    speed: float,
    rack: str,
    resources: Mapping[str, Any],
) -> None:
    """Add a host with its own worker processes. See `Session.add_host`."""
    if not loop.backend.is_local:
        raise InputError("the hosts are the workers of a Dask cluster; start another worker")
    check_text("the name of a host", name)
    check_text(f"host {name!r}: rack", rack)
    if not isinstance(slots, int | Mapping):
        raise InputError(f"host {name!r}: slots is {slots!r}; expected a whole number >= 1")
    check_slots(slots)
    check_number(f"host {name!r}: speed", speed)
    by_kind = {ANY_KIND: slots} if isinstance(slots, int) else dict(slots)
    host = Host(name, by_kind, rack, speed, resources=resources)
    check_emulated(host)
    if not any(by_kind.values()):
        raise InputError(f"host {name!r} has no slots; give it at least 1")

    def add() -> None:
        present = loop.state.cluster
        if name in present.by_name:
            leaves = name in loop.state.leaving
            why = "leaves when its last task has ended" if leaves else "exists already"
            raise InputError(f"host {name!r} {why}; give the new host another name")
        present.with_host(host)  # Refuses too many slots.
        loop.on_event(HostAdded(loop.backend.now, host))

    loop.ask(add)
    loop.ask(lambda: None)  # Return only after the event was applied to the state.


def remove_host(loop: LoopThread, name: str, *, drain: bool) -> None:
    """Start no more tasks on a host. See `Session.remove_host`."""
    check_text("the name of a host", name)

    def remove() -> None:
        known = loop.state.cluster.by_name
        if name not in known:
            hint = suggestion(name, known, f"hosts: {', '.join(known) or 'none'}")
            raise InputError(f"there is no host {name!r}; {hint}")
        event = HostDrained if drain else HostRemoved
        loop.on_event(event(loop.backend.now, name))

    loop.ask(remove)
    loop.ask(lambda: None)


# Checks of the types of arguments of a session; other code checks the values.


def check_slots(slots: object) -> None:
    """InputError unless it is a number of slots, or numbers by kind, a `Cluster` or None."""
    if isinstance(slots, Mapping):
        for kind, count in slots.items():
            check_text("slots: the kind of a slot", kind)
            check_whole(f"slots: the number of kind {kind!r}", count)
    elif slots is not None and not isinstance(slots, Cluster):
        check_whole("slots", slots)


def refuse_shuffle(options: RunOptions) -> None:
    """InputError for an option of runs that a session does not have."""
    if options.shuffle is not None:
        raise InputError(
            "shuffle is not an option of a session, whose reduces begin when all maps are done;"
            " leave it out, or use slotwise.run"
        )


def checked_entry(entry: Any, folder: Any, slots: int) -> Entry:
    """The job for `Session.run`, which may be a mapping.

    InputError unless it is of a type that `run` accepts. The classes `Job`, `Phase` and `Tasks`
    check their own values.
    """
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"folder is {folder!r}; expected a path, as a string or a Path")
    if isinstance(entry, Mapping):
        entry = read_job(entry, slots, Path(folder), now=datetime.now())
    stated = entry if isinstance(entry, Job | Described) else getattr(entry, "job", None)
    if not isinstance(stated, Job | Described) or isinstance(entry, type):
        raise InputError(
            f"{_short(entry)} is not a job; expected one of slotwise.mapreduce(...),"
            " slotwise.command(...), slotwise.Calls(...), slotwise.Job(...) and the job(...) of"
            " a slotwise.Dataflow, or a mapping like an entry of `jobs` in a workload file."
            " `submit` takes functions"
        )
    check_text("the id of a job", stated.id)
    job = f"job {stated.id!r}: "
    check_text(f"{job}pool", stated.pool)
    check_text(f"{job}priority", stated.priority)
    check_number(f"{job}weight", stated.weight)
    check_seconds(f"{job}arrival", stated.arrival)
    for key in ("deadline", "promise"):
        if (at := getattr(stated, key)) is not None:
            check_seconds(f"{job}{key}", at)
    for step in stated.steps:
        if not isinstance(step, tuple | list) or len(step) != 2:
            raise InputError(f"{job}step {step!r} is not a pair; expected (seconds, cost)")
        for number in step:
            check_number(f"{job}step {step!r}: {number!r}", number)
    return cast(Entry, entry)


def check_mapping(
    fn: object, iterables: Iterable[object], chunksize: object, ahead: object
) -> None:
    """InputError unless these are a function, iterables and whole numbers or None."""
    if not callable(fn):
        raise InputError(f"fn is {fn!r}; expected a function")
    items = list(iterables)
    if not items:
        raise InputError("map has no iterables; expected one for each argument of the function")
    for one in items:
        if not isinstance(one, Iterable) and not hasattr(one, "__getitem__"):
            raise InputError(f"{_short(one)} is not an iterable; expected a list or the like")
    if chunksize is not None:
        check_whole("chunksize", chunksize)
    if ahead is not None:
        check_whole("ahead", ahead)


def check_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """TypeError, like that of Python, for an option that `function` does not have."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r};"
                f" {suggestion(name, known)}"
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
