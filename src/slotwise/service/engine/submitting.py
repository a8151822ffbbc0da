"""Submissions of jobs: what a client has sent is checked, stored, and given to the session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future as Waiting
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from slotwise.core.dependencies import check_dependencies, in_order, predecessor_failed
from slotwise.core.errors import InputError, check_name
from slotwise.core.job import Job
from slotwise.jobs.execution import Execution
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.planning import Spec, Submitted
from slotwise.service.engine.rights import (
    LimitError,
    check_names,
    check_sees,
    check_submits,
    with_pool,
)
from slotwise.service.planned.hosted import TASKS_MAX
from slotwise.service.settings import HELD
from slotwise.service.store.records import OPEN, StoredJob
from slotwise.service.users.access import User
from slotwise.sessions.promising import promise_jobs

ACTIONS = ("cancel", "hold", "release", "change", "forget")
"""What can be done with a job."""

JOBS_MAX = 10_000
"""The most jobs of one submission."""

PLANNED_MAX = 100
"""The most jobs that one question about what would happen may have."""

REQUESTS = frozenset({"wait", "explain", "eta", "logs", *ACTIONS})
"""What follows the id of a job in the path of a request."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client has sent to `POST /v1/jobs`.

    folder   where relative paths begin
    environ  the environment of the client
    by       who submits
    key      sent again, it gives the jobs of the first time
    user     whose jobs they are, of those that do not state it
    client   the client that wants to know the ends of the jobs
    pickle   the only job, if it is pickled
    hold     no task begins before the jobs are released
    """

    jobs: Sequence[Mapping[str, Any]]
    folder: str
    environ: Mapping[str, str]
    by: User
    key: str | None = None
    user: str | None = None
    client: str | None = None
    pickle: bytes = b""
    hold: bool = False


class JobSubmitter:
    """Accepts submissions, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys: dict[str, Waiting[list[StoredJob]]] = {}
        self._lock = threading.Lock()

    def submit(self, given: Submission) -> list[StoredJob]:
        """Accept jobs: they are durable on return. All or none are accepted.

        InputError for a job that cannot be run; StoreError if it cannot be stored.
        """
        if not given.key:
            return _JobBatch(self._engine, given).accept()
        with self._lock:
            under_way = self._keys.get(given.key)
            if under_way is None:
                self._keys[given.key] = mine = Waiting[list[StoredJob]]()
        if under_way is not None:
            return under_way.result()
        try:
            store = self._engine.store
            ids = store.ids_of(given.key)
            if ids is None:
                mine.set_result(_JobBatch(self._engine, given).accept())
            else:
                mine.set_result(store.jobs(ids=ids, limit=len(ids)))
        except BaseException as error:
            mine.set_exception(error)
        finally:
            with self._lock:
                del self._keys[given.key]
        return mine.result()

    def planned(self, given: Submission) -> list[Job]:
        """The jobs of a submission that is not made: they get no numbers, and are not kept.

        InputError and ForbiddenError as of `submit`; LimitError for too many jobs or tasks.
        """
        return _JobBatch(self._engine, given).planned()


class _JobBatch:
    """The jobs of one submission."""

    def __init__(self, engine: Engine, given: Submission) -> None:
        self._engine, self._given, self._now = engine, given, time.time()
        self._is_trial = False
        self._found: list[tuple[StoredJob, Execution | None]] = []
        self._names: dict[str, str] = {}
        self._owners: dict[str, User] = {}
        self._numbers: set[int] = set()  # Those that nothing was stored with.
        self._ids = list[str]()  # The same; those that are numbers are not among them.

    def accept(self) -> list[StoredJob]:
        """Check, store and begin the jobs. Those that ask for promises come one by one."""
        asks = any(one.get("promise") is not None for one in self._given.jobs)
        with self._engine.core.promising if asks else nullcontext():
            return self._accept()

    def _accept(self) -> list[StoredJob]:
        given, engine = self._given, self._engine
        if not 0 < len(given.jobs) <= JOBS_MAX:
            raise InputError(f"{len(given.jobs)} jobs; expected from 1 to {JOBS_MAX}")
        entries = self._entries()
        try:
            numbered, entries = self._numbered(entries)
            for (_, id), one in zip(numbered, entries, strict=True):
                self._names.setdefault(str(one.entry.get("id", id)), id)
            for (number, id), one in zip(numbered, entries, strict=True):
                self._found.append(self._planned(one, number, id))
            ordered = self._checked()
            promise_jobs(engine.core, ordered)
            for made in ordered:
                made.open()
            records = [record for record, _ in self._found]
            with self._counted():
                self._numbers.clear()
                self._ids.clear()
                engine.store.add(records, given.key, given.environ).result()
        except BaseException:
            self._discard()
            raise
        for record, execution in self._found:
            if execution is None:
                engine.notify(record)
        by_id = {record.id: record for record in records}
        with engine.entering(by_id):
            for execution in ordered:
                engine.enter(by_id[execution.job.id], execution)
        return records

    def planned(self) -> list[Job]:
        if len(self._given.jobs) > PLANNED_MAX:
            raise LimitError(f"{len(self._given.jobs)} jobs; ask about {PLANNED_MAX} at once")
        self._is_trial = True
        entries = self._entries()
        try:
            for one in entries:
                id = stated = _stated_id(one.entry) or "new"
                for number in count(2):
                    if not (id in self._names.values() or self._engine.is_open(id)):
                        break
                    id = f"{stated}-{number}"
                self._names.setdefault(stated, id)
                self._found.append(self._planned(one, 0, id))
            checked = self._checked()
            with self._engine.core.promising:
                promise_jobs(self._engine.core, checked)
            jobs = [made.job for made in checked]
            tasks = sum(phase.tasks.count for job in jobs for phase in job.phases)
            if tasks > TASKS_MAX:
                raise LimitError(f"{tasks} tasks; ask about {TASKS_MAX} at once")
            return jobs
        finally:
            self._discard()

    def _entries(self) -> list[Submitted]:
        found, by = [Submitted.of(one, self._now) for one in self._given.jobs], self._given.by
        settings = self._engine.settings
        return [replace(one, entry=with_pool(by, one.entry, settings)) for one in found]

    def _discard(self) -> None:
        for _, execution in self._found:
            if execution is not None:
                execution.close(succeeded=False)
        self._engine.store.give_back(self._numbers, self._ids)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the jobs of each user, unless they cannot be stored. LimitError."""
        quota, jobs = self._engine.quota, dict[str, dict[str, int]]()
        with ExitStack() as counting:
            for record, execution in self._found:
                if execution is not None and record.user is not None:
                    jobs.setdefault(record.user, {})[record.id] = record.tasks
            for user, tasks in jobs.items():
                quota.reserve(user, tasks, self._owners[user].jobs_max)
                counting.callback(quota.free, user, list(tasks))
            yield
            counting.pop_all()

    def _owner(self, stated: str | None) -> User:
        """Whose job it is. ForbiddenError if who submits may not say so."""
        if stated is not None:
            check_name("user", stated)
        check_names(self._given.by, stated)
        owner = self._engine.owner(stated, self._given.by)
        self._owners[owner.name] = owner
        return owner

    def _numbered(
        self, entries: Sequence[Submitted]
    ) -> tuple[list[tuple[int, str]], list[Submitted]]:
        """The numbers and ids of the jobs, and their entries.

        The tasks of an array have a number in common, which no job has: `12_0`, `12_1`.
        """
        store, array = self._engine.store, ""
        numbered, found = list[tuple[int, str]](), list[Submitted]()
        for one in entries:
            index = one.array_index
            if index is not None and not array:
                self._numbers.add(number := store.new_id()[0])
                array = str(number)
            stated = _stated_id(one.entry) if index is None else f"{array}_{index}"
            numbered.append(store.new_id(stated))
            self._numbers.add(numbered[-1][0])
            if stated is not None:
                self._ids.append(numbered[-1][1])
            found.append(one if index is None else one.with_number(numbered[-1][0]))
        return numbered, found

    def _planned(
        self, one: Submitted, number: int, id: str
    ) -> tuple[StoredJob, Execution | None]:
        """The record of a job, and its execution; None if a job before it has failed."""
        given, engine = self._given, self._engine
        owner = self._owner(one.entry.get("user") or given.user)
        pool = one.entry.get("pool", "default")
        check_submits(given.by, pool, engine.settings)  # Before code of the user runs.
        before, failed = self._predecessors(one, id)
        spec = Spec(one, before, given.pickle)
        record = StoredJob(
            number=number,
            id=id,
            kind=one.kind,
            name=one.name,
            spec=spec.packed(),
            folder=given.folder,
            deadline=one.deadline,
            after=tuple(before.values()),
            submitted=self._now,
            restart=one.restart,
            client=given.client,
            user=owner.name,
            account=engine.account_name(owner),
        )
        if failed:
            reason = predecessor_failed(failed)
            return replace(record, state="cancelled", reason=reason, ended=self._now), None
        changed = {}
        if given.hold:
            check_name(f"job {id!r}: pool", pool)
            engine.check_pool(pool)
            changed["pool"] = HELD
        if owner.name != engine.own.name:
            changed["user"] = owner.name
        execution = engine.planner.execution(
            id,
            spec,
            given.folder,
            given.environ,
            outputs=partial(self._outputs, owner.name),
            changed=changed,
            user=owner.name,
            is_trial=self._is_trial,
        )
        job = execution.job
        if job.user not in (None, owner.name):  # Code of a user has stated another one.
            try:
                if engine.settings.run_as:
                    raise InputError(f"job {id!r} is of user {job.user!r}, not {owner.name!r}")
                owner = self._owner(job.user)
            except BaseException:
                execution.close(succeeded=False)
                raise
        tasks = sum(phase.tasks.count for phase in job.phases)
        return (
            replace(
                record,
                pool=pool if given.hold else job.pool,
                held=given.hold,
                priority=job.priority,
                weight=job.weight,
                tasks=tasks,
                user=owner.name,
                account=engine.account_name(owner),
            ),
            execution,
        )

    def _outputs(self, user: str | None) -> dict[str, tuple[str, ...]]:
        """The folders that other jobs write to, also those of this submission."""
        planned = {made.job.id: made.outputs for _, made in self._found if made is not None}
        return {**self._engine.outputs(user), **planned}

    def _predecessors(self, one: Submitted, id: str) -> tuple[dict[str, str], str]:
        """The jobs that it must wait for, by the names it states, and one that has failed."""
        wanted = list(dict.fromkeys([*one.after, *one.words.values()]))
        found: dict[str, str] = {}
        for name in wanted:
            job = self._names.get(name)
            if job is not None and job != id:
                found[name] = job
                continue
            self._engine.bring(name)
            record = self._engine.store.job(name)
            if record is None:
                raise InputError(f"job {id!r}: after names {name!r}, which is not a job")
            if name in one.words.values():
                what = f"have its output in the command of job {id!r}"
                check_sees(self._given.by, record, self._engine.settings, what)
            if record.state == OPEN:
                found[name] = name
            elif record.state != "done" and one.entry.get("after_failed") != "run":
                return found, name
        return found, ""

    def _checked(self) -> list[Execution]:
        """The jobs, each after those that it waits for. InputError."""
        engine = self._engine
        by_id = {made.job.id: made for _, made in self._found if made is not None}
        jobs: list[Job] = [made.job for made in by_id.values()]
        if any(job.predecessors for job in jobs):
            names = {name for job in jobs for name in job.predecessors}
            check_dependencies(jobs, filter(engine.is_open, names))
        also = {job.id: job for job in jobs}
        for job in jobs:
            if not self._given.hold:  # Else it is checked already, and this is that of holding.
                engine.check_pool(job.pool)
                check_submits(self._given.by, job.pool, engine.settings)
            engine.core.check_job(job, also)
        return [by_id[job.id] for job in in_order(jobs)]


def _stated_id(entry: Mapping[str, Any]) -> str | None:
    stated = entry.get("id")
    if stated is not None and not isinstance(stated, str):
        raise InputError(f"id is {stated!r}; give a string")
    if stated:
        check_name("the id of a job", stated)
    if stated and stated.rpartition("/")[2] in REQUESTS and "/" in stated:
        raise InputError(
            f"id is {stated!r}; its last part is the name of a request of the service; give"
            " another one"
        )
    return stated or None
