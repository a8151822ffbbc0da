"""The jobs that were open when the server ended, at the start of the next one."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from slotwise.core.dependencies import CANCELLED, in_order, predecessor_failed
from slotwise.service.engine.engine import IS_BROKEN, IS_CANCELLED, Engine
from slotwise.service.engine.planning import Spec
from slotwise.service.engine.streams import binding_of
from slotwise.service.settings import HELD
from slotwise.service.store.records import OPEN, StoredJob
from slotwise.service.supervision import supervisor_records

LOST = "it ran when the server ended, and does not run again (restart: false)"
"""Why a job is lost."""

TOGETHER_SECONDS = 1.0
"""For how long jobs are prepared that arrive together: a turn for each would take longer."""


class Restored(NamedTuple):
    """The jobs that a server has found, by what became of them."""

    queued: int = 0
    adopted: int = 0
    again: int = 0
    lost: int = 0

    def __str__(self) -> str:
        texts = {
            "waiting": self.queued,
            "continued": self.adopted,
            "begun again": self.again,
            "lost": self.lost,
        }
        return ", ".join(f"{count} {name}" for name, count in texts.items() if count)


def restore(engine: Engine) -> Restored:
    """Give all open jobs to the session: first those whose commands still run."""
    jobs = engine.store.open_jobs()
    adopted = {one.id: _found(engine, one) for one in jobs}
    counts = [0, 0, 0, 0]
    for record in jobs:
        if record.kind == "calls" and not _is_lost(record):
            _expect(engine, record)
    first = sorted(jobs, key=lambda one: (not adopted[one.id], one.number))
    left = deque(in_order(first))
    while left:
        until = time.monotonic() + TOGETHER_SECONDS
        with engine.core.inbox.together():
            while left and time.monotonic() < until:
                record = left.popleft()
                try:
                    counts[_restored(engine, record, adopted[record.id])] += 1
                except Exception as error:  # No job may keep the server from starting.
                    engine.end(record, "failed", f"it cannot run after a restart: {error}")
                    if stream := engine.streams.of_job(record.id):
                        engine.streams.cancel(stream)
    return Restored(*counts)


QUEUED, ADOPTED, AGAIN, LOST_NOW = range(4)


def _restored(engine: Engine, record: StoredJob, adopted: bool) -> int:
    """Give a job to the session; the index of the count that it belongs to."""
    has_begun = record.begun is not None
    if _is_lost(record) and not adopted:
        engine.end(record, "lost", LOST)
        return LOST_NOW
    if record.kind == "calls":
        return _calls(engine, record)
    if record.changes.get(IS_CANCELLED):
        engine.end(record, "cancelled", "")
        return QUEUED
    if has_begun and not adopted:
        record = replace(record, restarts=record.restarts + 1)
        engine.store.change(record.id, restarts=record.restarts)
    spec = Spec.of(record)
    before: dict[str, str] = {}
    for name, job in spec.before.items():
        other = engine.store.job(job)
        state = "done" if other is None else other.state  # Only what has ended is forgotten.
        if state == OPEN:
            before[name] = job
        elif state != "done" and spec.submitted.entry.get("after_failed") != "run":
            engine.end(record, "cancelled", predecessor_failed(job))
            return QUEUED
    environ = engine.store.environment(record.environ) if record.environ else None
    done = sorted({one.task for one in engine.store.tasks(record.id) if one.state == "done"})
    if len(done) >= record.tasks:
        done.pop()  # The end of a task ends the job; this one is attached to once more.
    execution = engine.planner.execution(
        record.id,
        replace(spec, before=before),
        record.folder,
        environ or {},
        outputs=partial(engine.outputs, record.user),
        changed=_changed(engine, record),
        done=done,
        since=record.submitted,
        user=record.user,
    )
    if execution.job.promise is not None:  # It was accepted with it.
        if record.changes.get(IS_BROKEN):
            execution.job = replace(execution.job, promise=None)
        else:
            execution.job = replace(execution.job, promised=True)
    try:
        execution.open()
    except BaseException:
        execution.close(succeeded=False)
        raise
    engine.enter(record, execution)
    return ADOPTED if adopted else AGAIN if has_begun else QUEUED


def _found(engine: Engine, record: StoredJob) -> bool:
    """Whether commands of a job still run, or have ended since."""
    if record.kind != "command" or record.begun is None:
        return False
    found = supervisor_records.records(engine.folder, record.id)
    done = {one.task for one in engine.store.tasks(record.id) if one.state == "done"}
    return any(one.state != "lost" and one.task not in done for one in found)


def _is_lost(record: StoredJob) -> bool:
    """Whether a job may have run, and must not run again. Its commands may still run."""
    return record.begun is not None and not record.restart


def _expect(engine: Engine, record: StoredJob) -> None:
    """Open a job of calls: these may be inputs of any other call, also of an earlier job."""
    entry = Spec.of(record).submitted.entry
    binding = binding_of({**entry["binding"], **_changed(engine, record)})
    stream = engine.streams.open(record, binding, entry["program"], grows=entry["grows"])
    for one in engine.store.call_states(record.id):
        if one.state == OPEN:
            engine.streams.expect(stream, one.number)


def _calls(engine: Engine, record: StoredJob) -> int:
    """Give the calls of a job that are not done to the session."""
    stream = engine.streams.of_job(record.id)
    assert stream is not None
    for one in engine.store.call_states(record.id):
        stream.numbers.add(one.number)
        if one.state != OPEN:
            stream.done += one.state != CANCELLED
            stream.cancelled += one.state == CANCELLED
            stream.raised += one.state != CANCELLED and not one.is_value
        elif call := engine.store.call(record.id, one.number):
            engine.streams.restore(stream, one.number, call)
    if record.changes.get(IS_CANCELLED):
        engine.streams.cancel(stream)
        return QUEUED
    if engine.store.is_closed(record.id) or not stream.grows:
        engine.streams.close(stream)
    if record.begun is not None:
        engine.store.change(record.id, restarts=record.restarts + 1)
        return AGAIN
    return QUEUED


def _changed(engine: Engine, record: StoredJob) -> dict[str, Any]:
    """The properties of a job that its entry may state otherwise."""
    pool = HELD if record.held else record.pool
    found = {"pool": pool, "priority": record.priority, "weight": record.weight}
    return found if record.user in (None, engine.own.name) else {**found, "user": record.user}
