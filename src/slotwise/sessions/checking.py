"""Whether what users give to a session has the right type; other code checks its values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.model.typed import check_number, check_seconds, check_text, check_whole
from slotwise.running import Options
from slotwise.sources import Described, Entry
from slotwise.workload.file import read_job


def check_slots(slots: object) -> None:
    """InputError unless it is a number of slots, or numbers by kind, a `Cluster` or None."""
    if isinstance(slots, Mapping):
        for kind, count in slots.items():
            check_text("slots: the kind of a slot", kind)
            check_whole(f"slots: the number of kind {kind!r}", count)
    elif slots is not None and not isinstance(slots, Cluster):
        check_whole("slots", slots)


def check_pools(pools: Any) -> tuple[Pool, ...]:
    """The pools. InputError unless all are of the class `Pool`."""
    if isinstance(pools, Iterable) and not isinstance(pools, str | Mapping):
        given = tuple(pools)
        wrong = [pool for pool in given if not isinstance(pool, Pool)]
        if not wrong:
            return given
        pools = wrong[0]
    raise InputError(f"pools: {pools!r} is no pool; give a list such as [slotwise.Pool('a')]")


def refuse_shuffle(options: Options) -> None:
    """InputError for an option of runs that a session does not have."""
    if options.get("shuffle") is not None:
        raise InputError(
            "shuffle is no option of a session, where reduces begin when all maps are done;"
            " leave it out, or use slotwise.run"
        )


def checked_entry(entry: Any, folder: Any, slots: int) -> Entry:
    """The job that `Session.run` was given, perhaps as a mapping.

    InputError unless it is of a kind that `run` takes. The classes `Job`, `Phase` and `Tasks`
    check their own values.
    """
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"folder is {folder!r}; give a path, as a text or a Path")
    if isinstance(entry, Mapping):
        entry = read_job(entry, slots, Path(folder))
    stated = entry if isinstance(entry, Job | Described) else getattr(entry, "job", None)
    if not isinstance(stated, Job | Described) or isinstance(entry, type):
        raise InputError(
            f"{_short(entry)} is no job; give one of slotwise.mapreduce(...),"
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
    if stated.deadline is not None:
        check_seconds(f"{job}deadline", stated.deadline)
    for step in stated.steps:
        if not isinstance(step, tuple | list) or len(step) != 2:
            raise InputError(f"{job}step {step!r} is no pair; give (seconds, cost)")
        for number in step:
            check_number(f"{job}step {step!r}: {number!r}", number)
    return cast(Entry, entry)


def check_mapping(
    fn: object, iterables: Iterable[object], chunksize: object, ahead: object
) -> None:
    """InputError unless these are a function, iterables and whole numbers or None."""
    if not callable(fn):
        raise InputError(f"fn is {fn!r}; give a function")
    items = list(iterables)
    if not items:
        raise InputError("map has no iterables; give one for each argument of the function")
    for one in items:
        if not isinstance(one, Iterable) and not hasattr(one, "__getitem__"):
            raise InputError(f"{_short(one)} is no iterable; give a list, a range or the like")
    if chunksize is not None:
        check_whole("chunksize", chunksize)
    if ahead is not None:
        check_whole("ahead", ahead)


def check_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """TypeError for an option that the public function does not have, as Python raises it."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r};"
                f" known: {', '.join(known)}"
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
