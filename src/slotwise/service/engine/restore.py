"""The jobs that were open when the server ended, at the start of the next one."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from threading import Condition
from typing import Any, NamedTuple

from slotwise.backends.attempt_logs import file_name
from slotwise.core.dependencies import CANCELLED, in_order, predecessor_failed
from slotwise.policy.scheduler import BACKFILLINGS
from slotwise.service.engine.engine import IS_BROKEN, IS_CANCELLED, Engine
from slotwise.service.engine.planning import Spec, promised_at
from slotwise.service.engine.retention import forget_unknown
from slotwise.service.engine.streams import binding_of
from slotwise.service.settings import HELD
from slotwise.service.store.records import OPEN, StoredJob
from slotwise.service.supervision import supervisor_records

LOST = "it ran when the server ended, and does not run again (restart: false)"
"""Why a job is lost."""

TOGETHER_SECONDS = 1.0
"""For how long jobs are prepared that arrive together: a turn for each would take longer."""

PROMISE = b'"promise"'
"""What the stored entry of a job contains that asks for a promise."""

BY_ARRIVAL = frozenset({"fifo", *BACKFILLINGS})
"""The schedulers that serve jobs of all pools in the order in which they arrive."""


class Restored(NamedTuple):
    """The jobs that a server has found, by what became of them; `left` are to come."""

    queued: int = 0
    adopted: int = 0
    again: int = 0
    lost: int = 0
    left: int = 0

    def __str__(self) -> str:
        texts = {
            "waiting": self.queued,
            "continued": self.adopted,
            "begun again": self.again,
            "lost": self.lost,
            "still to restore": self.left,
        }
        return ", ".join(f"{count} {name}" for name, count in texts.items() if count)


class Restoration:
    """Gives all open jobs of earlier servers to the session: O(jobs), about 0.5 ms for each.

    `begin` restores those that cannot wait (calls, promises, and what has begun) and the first
    of the others. `finish` restores the rest while the server serves: one of each pool in turn,
    so that no pool waits for the jobs of another one. `bring` restores what a request needs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._environs: dict[str, dict[str, str]] = {}
        self._counts = Counter[str]()  # By the names of `Restored`.
        self._adopted: set[str] = set()
        self._folders: set[str] = set()  # Of jobs of which an attempt may have begun.
        self._records: dict[str, StoredJob] = {}  # Those that no turn has taken yet.
        self._later: deque[str] = deque()
        self._changed = Condition()  # Held for changes of what other threads see.
        self._left: set[str] = set()  # Not in the session yet.
        self._wanted: deque[str] = deque()
        self._is_over = False
        engine.bring = self.bring

    def begin(self) -> Restored:
        """Restore the jobs that cannot wait: first those whose commands still run.

        No job may be submitted before it returns.
        """
        engine = self._engine
        forget_unknown(engine)
        jobs = engine.store.open_jobs()
        self._folders = supervisor_records.folders(engine.folder)
        self._adopted = {one.id for one in jobs if _found(engine, one)}
        for record in jobs:
            if record.kind == "calls" and not _is_lost(record):
                _expect(engine, record)
        self._records = {one.id: one for one in jobs}
        self._left = set(self._records)
        first = sorted(jobs, key=lambda one: (one.id not in self._adopted, one.number))
        ordered = in_order(first)
        urgent = deque(one.id for one in ordered if self._is_urgent(one))
        at_once = set(urgent)
        self._later.extend(one.id for one in self._in_turn(ordered) if one.id not in at_once)
        while urgent:
            self._restore_some(urgent)
        self._restore_some(self._later)  # Of a small service, all.
        return self._restored()

    def finish(self) -> Restored:
        """Restore the others, until all are restored or `stop` was called."""
        try:
            while self._later and not self._is_over:
                self._restore_some(self._later)
        finally:
            self.stop()
        return self._restored()

    def stop(self) -> None:
        """Restore no more jobs: the next server has those that are left. From any thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all jobs are restored, or `stop` was called. From any thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over)

    def bring(self, job: str) -> None:
        """Have a job restored now if it is left. From any thread.

        It returns when the job is in the session, or after `stop`.
        """
        if job not in self._left:
            return
        with self._changed:
            self._wanted.append(job)
            self._changed.wait_for(lambda: self._is_over or job not in self._left)

    def _restored(self) -> Restored:
        return Restored(**self._counts, left=len(self._left))

    def _is_urgent(self, record: StoredJob) -> bool:
        return (
            record.kind == "calls"
            or record.begun is not None
            or file_name(record.id) in self._folders
            or (PROMISE in record.spec and promised_at(record) is not None)
        )

    def _in_turn(self, jobs: Sequence[StoredJob]) -> Iterable[StoredJob]:
        """Jobs, one of each pool in turn; as they are if their order decides who is served."""
        if self._engine.settings.scheduler in BY_ARRIVAL:
            return jobs
        by_pool: dict[str, list[StoredJob]] = {}
        for one in jobs:
            by_pool.setdefault(HELD if one.held else one.pool, []).append(one)
        return filter(None, chain.from_iterable(zip_longest(*by_pool.values())))

    def _restore_some(self, jobs: deque[str]) -> None:
        """Restore the next jobs, which arrive together, until another one is wanted."""
        taken, until = list[str](), time.monotonic() + TOGETHER_SECONDS
        with self._engine.core.inbox.together():
            while (is_wanted := bool(self._wanted)) or jobs:
                job = (self._wanted if is_wanted else jobs).popleft()
                for record in _with_predecessors(job, self._records):
                    taken.append(record.id)
                    self._restore(self._records.pop(record.id))
                if is_wanted or self._is_over or time.monotonic() > until:
                    break
        with self._changed:
            self._left.difference_update(taken)
            self._changed.notify_all()

    def _restore(self, record: StoredJob) -> None:
        engine = self._engine
        try:
            self._counts[self._outcome(record)] += 1
        except Exception as error:  # No job may keep the server from starting.
            engine.end(record, "failed", f"it cannot run after a restart: {error}")
            if stream := engine.streams.of_job(record.id):
                engine.streams.cancel(stream)

    def _outcome(self, record: StoredJob) -> str:
        """Give a job to the session; the name of the count that it belongs to."""
        engine, adopted = self._engine, record.id in self._adopted
        has_begun = record.begun is not None
        if _is_lost(record) and not adopted:
            engine.end(record, "lost", LOST)
            return "lost"
        if record.kind == "calls":
            return _calls(engine, record)
        if record.changes.get(IS_CANCELLED):
            engine.end(record, "cancelled", "")
            return "queued"
        if has_begun and not adopted:
            record = replace(record, restarts=record.restarts + 1)
            engine.store.change(record.id, restarts=record.restarts)
        spec = Spec.of(record)
        before: dict[str, str] = {}
        for name, job in spec.before.items():
            other = engine.store.job(job)
            # Only what has ended is forgotten.
            state = "done" if other is None else other.state
            if state == OPEN:
                before[name] = job
            elif state != "done" and spec.submitted.entry.get("after_failed") != "run":
                engine.end(record, "cancelled", predecessor_failed(job))
                return "queued"
        done = sorted(_done(engine, record.id))
        if len(done) >= record.tasks:
            done.pop()  # The end of a task ends the job; this one is attached to once more.
        execution = engine.planner.execution(
            record.id,
            replace(spec, before=before),
            record.folder,
            self._environ(record),
            outputs=partial(engine.outputs, record.user),
            changed=_changed(engine, record),
            done=done,
            since=None if self._is_new(record) else record.submitted,
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
        return "adopted" if adopted else "again" if has_begun else "queued"

    def _environ(self, record: StoredJob) -> Mapping[str, str]:
        """The environment of a job; one for all jobs that have the same."""
        hashed = record.environ
        if hashed and hashed not in self._environs:
            self._environs[hashed] = self._engine.store.environment(hashed) or {}
        return self._environs.get(hashed or "", {})

    def _is_new(self, record: StoredJob) -> bool:
        """Whether no attempt of a command can have begun: before one, its folder is made."""
        if record.kind != "command" or self._engine.supervision is None:
            return False
        return file_name(record.id) not in self._folders


def _with_predecessors(job: str, records: Mapping[str, StoredJob]) -> Sequence[StoredJob]:
    """Of these records that of a job, after those of all jobs that it waits for."""
    found, names = dict[str, StoredJob](), [job]
    while names:
        name = names.pop()
        if name in records and name not in found:
            found[name] = records[name]
            names += found[name].predecessors
    return in_order(list(found.values()))


def _found(engine: Engine, record: StoredJob) -> bool:
    """Whether commands of a job still run, or have ended since."""
    if record.kind != "command" or record.begun is None:
        return False
    found = supervisor_records.records(engine.folder, record.id)
    done = _done(engine, record.id)
    return any(one.state != "lost" and one.task not in done for one in found)


def _done(engine: Engine, job: str) -> set[int]:
    """The tasks of a job that have ended well."""
    return {one.task for one in engine.store.tasks(job) if one.state == "done"}


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


def _calls(engine: Engine, record: StoredJob) -> str:
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
        return "queued"
    if engine.store.is_closed(record.id) or not stream.grows:
        engine.streams.close(stream)
    if record.begun is not None:
        engine.store.change(record.id, restarts=record.restarts + 1)
        return "again"
    return "queued"


def _changed(engine: Engine, record: StoredJob) -> dict[str, Any]:
    """The properties of a job that its entry may state otherwise."""
    pool = HELD if record.held else record.pool
    found = {"pool": pool, "priority": record.priority, "weight": record.weight}
    return found if record.user in (None, engine.own.name) else {**found, "user": record.user}
